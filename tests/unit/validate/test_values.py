import json

import numpy as np
import pytest

from draftkiln.extract import manifest, samples
from draftkiln.validate import headers, values

LAYERS = (2, 4, 5, 8)
TOKENS = list(range(1, 41))


def bf16(array):
    return (array.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def honest(rows=40, hidden=32, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, len(LAYERS), hidden))


def write(folder, states, token_ids=TOKENS, index=0):
    """A sample's file laid by hand: numpy has no bfloat16 for the library to write."""
    values, ids = bf16(states).tobytes(), np.asarray(token_ids, dtype="<i8").tobytes()
    header = {
        "hidden_states": {"dtype": "BF16", "shape": list(states.shape), "data_offsets": [0, len(values)]},
        "token_ids": {"dtype": "I64", "shape": [len(token_ids)], "data_offsets": [len(values), len(values) + len(ids)]},
    }
    text = json.dumps(header).encode()
    path = folder / samples.name(index)
    path.write_bytes(len(text).to_bytes(8, "little") + text + values + ids)
    return path


def test_an_honest_sample_passes(tmp_path):
    assert values.problems(write(tmp_path, honest()), TOKENS, LAYERS) == []


def test_case_49_a_sample_of_one_token_and_one_of_repeated_tokens_pass(tmp_path):
    assert values.problems(write(tmp_path, honest(1), [7]), [7], LAYERS) == []
    same = np.repeat(honest(1), 40, axis=0)
    assert values.problems(write(tmp_path, same, [7] * 40), [7] * 40, LAYERS) == []


def test_the_largest_bfloat16_is_legal(tmp_path):
    states = honest()
    states[3, 1, 2] = 3.3895e38
    assert values.problems(write(tmp_path, states), TOKENS, LAYERS) == []


def broken(change):
    states = honest()
    change(states)
    return states


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.fill(0), "layer 2: all zero"),
        (lambda s: s[:, 2].fill(0), "layer 5: all zero"),
        (lambda s: s[20:].fill(0), "layer 2: 20 rows are zero, 20 of them in one run"),
        (lambda s: s[:, 1].__setitem__(slice(None), s[:, 0]), "layers 2 and 4 are the same"),
        (lambda s: s.__setitem__(slice(None), s[:1]), "all 40 rows are equal"),
        (lambda s: s[:, 3].fill(1.5), "layer 8: every value is 1.5"),
        (lambda s: s[7, 2].__setitem__(3, np.nan), "layer 5: 1 values are not finite, the first in row 7"),
        (lambda s: s[0, 0].__setitem__(0, np.inf), "layer 2: 1 values are not finite, the first in row 0"),
    ],
)
def test_case_22_and_49_broken_states_are_named_with_layer_and_row(tmp_path, change, words):
    found = values.problems(write(tmp_path, broken(change)), TOKENS, LAYERS)
    assert any(words in text for text in found), found


def test_states_of_another_sample_are_found_by_the_token_echo(tmp_path):
    other = [*TOKENS[:10], 99, *TOKENS[11:]]
    found = values.problems(write(tmp_path, honest(), other), TOKENS, LAYERS)
    assert "from position 10 on" in found[0]


def made(folder, states, **changes):
    path = write(folder, states)
    ids = samples.token_ids_checksum(np.array(TOKENS, dtype="<i8").tobytes())
    receipt = manifest.Receipt(0, len(states), path.stat().st_size, samples.checksum(path), ids)
    fields = {
        "layer_ids": LAYERS, "hidden_size": 32, "dtype": "bfloat16",
        "computed_in": "float32", "samples": 1,
        "dataset_sha256": "d", "stack": "s", "patched_wheel_sha256": "p", **changes,
    }  # fmt: skip
    return path, manifest.Manifest(manifest.Head(**fields), {0: receipt})


def texts(folder, found, lengths=(40,)):
    return [str(problem) for problem in headers.problems(folder, found, list(lengths))]


def test_headers_of_an_honest_sample_pass(tmp_path):
    _, found = made(tmp_path, honest())
    assert texts(tmp_path, found) == []


def test_case_5_fewer_rows_than_tokens_names_the_prefix_cache(tmp_path):
    _, found = made(tmp_path, honest())
    assert "token_ids is I64 [40], not I64 [48]" in texts(tmp_path, found, [48])[0]


@pytest.mark.parametrize("size", [0, 5, 100, 6000])
def test_case_26_a_cut_file_is_found_by_its_header(tmp_path, size):
    path, found = made(tmp_path, honest())
    path.write_bytes(path.read_bytes()[:size])
    assert texts(tmp_path, found)


def test_one_flipped_bit_is_found_by_the_checksum(tmp_path):
    path, found = made(tmp_path, honest())
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(bytes(data))
    assert "altered after it was written" in texts(tmp_path, found)[0]


def test_case_57_another_type_is_refused(tmp_path):
    _, found = made(tmp_path, honest(), dtype="float16")
    assert "hidden_states is BF16, the manifest says float16" in texts(tmp_path, found)[0]


def test_case_50_post_norm_states_are_refused(tmp_path):
    _, found = made(tmp_path, honest(), norm_state="post-norm")
    assert "post-norm" in texts(tmp_path, found)[0]


def test_case_54_one_slot_too_few_is_refused(tmp_path):
    _, found = made(tmp_path, honest()[:, :3])
    assert "shape [40, 3, 32], not [40, 4, 32]" in texts(tmp_path, found)[0]


def test_a_missing_receipt_is_told(tmp_path):
    _, found = made(tmp_path, honest(), samples=2)
    assert any("1 samples have no receipt" in text for text in texts(tmp_path, found, [40, 40]))
