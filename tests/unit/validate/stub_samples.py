"""Files of samples, laid by hand: numpy has no bfloat16 for the safetensors library to write."""

import json

import numpy as np

from draftkiln.extract import manifest, samples

LAYERS = (2, 4, 5, 8)
TOKENS = list(range(1, 41))


def bf16(array):
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def honest(rows=40, hidden=32, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, len(LAYERS), hidden))


def write(folder, states, token_ids=TOKENS, index=0, dtype="BF16"):
    """A sample's file, its tensors in another order than draftkiln writes them in."""
    codes = {
        "BF16": bf16,
        "F16": lambda s: s.astype("<f2"),
        "F32": lambda s: s.astype("<f4"),
        "F8_E4M3": lambda s: s.astype("u1"),
        "I8": lambda s: s.astype("i1"),
    }
    data, ids = codes[dtype](states).tobytes(), np.asarray(token_ids, dtype="<i8").tobytes()
    header = {
        "hidden_states": {"dtype": dtype, "shape": list(states.shape), "data_offsets": [0, len(data)]},
        "token_ids": {"dtype": "I64", "shape": [len(token_ids)], "data_offsets": [len(data), len(data) + len(ids)]},
    }
    return lay(folder, header, data + ids, index)


def lay(folder, header, data, index=0):
    text = json.dumps(header).encode()
    path = folder / samples.name(index)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def receipt(path, token_ids=TOKENS, index=0):
    ids = samples.token_ids_checksum(np.array(token_ids, dtype="<i8").tobytes())
    return manifest.Receipt(index, len(token_ids), path.stat().st_size, samples.checksum(path), ids)


def made(folder, states, **changes):
    """One sample with its manifest."""
    path = write(folder, states)
    fields = {
        "layer_ids": LAYERS, "hidden_size": 32, "dtype": "bfloat16",
        "computed_in": "float32", "samples": 1,
        "dataset_sha256": "d", "stack": "s", "patched_wheel_sha256": "p", **changes,
    }  # fmt: skip
    return path, manifest.Manifest(manifest.Head(**fields), {0: receipt(path)})
