import json

import numpy as np
import pytest

from draftkiln import cli
from draftkiln.errors import ExitCode
from draftkiln.target import bits, wide_weights, width


@pytest.fixture
def narrow():
    """Kimi-K2.5's text part with sizes that fit a test."""
    return width.config("kimi-k2.5-text", 2) | {
        "hidden_size": 64, "intermediate_size": 32, "kv_lora_rank": 8, "moe_intermediate_size": 32,
        "n_routed_experts": 2, "num_attention_heads": 2, "num_experts_per_tok": 1, "q_lora_rank": 16,
        "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "vocab_size": 32,
    }  # fmt: skip


def test_experts_are_packed_as_the_checkpoints_have_them(narrow):
    tensors = {tensor.name: tensor for tensor in wide_weights.all_tensors(narrow, 3)}
    name = "model.layers.1.mlp.experts.1.down_proj"
    packed, scale, shape = (tensors[f"{name}.weight_{part}"] for part in ("packed", "scale", "shape"))
    assert (packed.dtype, packed.shape) == ("I32", (64, 32 // 8))
    assert (scale.dtype, scale.shape) == ("BF16", (64, 1))
    assert shape.build().tolist() == [64, 32]
    assert "model.layers.0.mlp.down_proj.weight" in tensors
    assert not any(".layers.0.mlp.experts" in found for found in tensors)
    for tensor in tensors.values():
        data = tensor.build()
        assert (data.shape, data.nbytes) == (tensor.shape, tensor.nbytes)


def test_unpacked_weights_have_the_spread_of_plain_ones(narrow):
    sizes = narrow | {"hidden_size": 1024, "moe_intermediate_size": 512}
    tensors = {tensor.name: tensor for tensor in wide_weights.all_tensors(sizes, 3)}
    name = "model.layers.1.mlp.experts.0.gate_proj"
    words = tensors[f"{name}.weight_packed"].build().view("<u4")
    values = np.stack([(words >> np.uint32(4 * place)) & np.uint32(15) for place in range(8)], axis=-1).astype(int) - 8
    scales = (tensors[f"{name}.weight_scale"].build().astype("<u4") << np.uint32(16)).view("<f4")
    weights = values.reshape(512, 1024 // 32, 32) * scales[..., None]
    assert weights.std() == pytest.approx(1024**-0.5, rel=0.1)


def test_the_same_key_gives_the_same_words_and_another_one_others():
    first, again, other = (bits.words(key, (3, 5)) for key in ("a", "a", "b"))
    assert (first == again).all()
    assert (first != other).any()


def test_weights_are_written_with_an_index_that_names_every_tensor(narrow, tmp_path, monkeypatch):
    monkeypatch.setattr(width, "config", lambda _name, _layers: narrow)
    monkeypatch.setattr(width, "_SHARD_BYTES", 4000)
    folder = width.write("kimi-k2.5-text", 2, tmp_path / "t", seed=1)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index) == {tensor.name for tensor in wide_weights.all_tensors(narrow, 1)}
    found = {}
    for file in sorted(set(index.values())):
        data = (folder / file).read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        for name, entry in header.items():
            if name != "__metadata__":
                begin, end = entry["data_offsets"]
                found[name] = data[8 + length + begin : 8 + length + end]
    assert len(set(index.values())) > 1
    for tensor in wide_weights.all_tensors(narrow, 1):
        assert found[tensor.name] == tensor.build().tobytes()


def test_a_wide_target_has_no_weights_unless_asked(tmp_path, capsys):
    assert cli.main(["make-target", str(tmp_path / "t"), "--shape", "kimi-k2.5-text", "--layers", "2"]) == ExitCode.OK
    assert "2 layers, no weights" in capsys.readouterr().out
    assert not list((tmp_path / "t").glob("*.safetensors"))
