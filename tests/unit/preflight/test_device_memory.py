import json
from types import SimpleNamespace

import pytest

from draftkiln.preflight import device_memory
from draftkiln.recipe import shipped
from draftkiln.recipe.load import load
from draftkiln.target import facts, width

LLAMA_8B = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip


def test_kimi_at_full_depth_comes_to_its_published_size():
    text = width.config("kimi-k2.5-text", 61)
    assert device_memory.weight_bytes(text, 1) == pytest.approx(595e9, rel=0.01)
    eighth = device_memory.weight_bytes(text, 8)
    # What each GPU keeps whole makes it more than an eighth.
    assert 595e9 / 8 < eighth < 595e9 / 8 * 1.05
    # The compressed state is not shared out: 61 layers of 512 + 64 values.
    assert device_memory.kv_bytes(text, 8) == device_memory.kv_bytes(text, 1) == 61 * 576 * 2


def test_a_llama_of_8_billion_parameters_takes_16_gb_and_shares_its_heads_out():
    assert device_memory.weight_bytes(LLAMA_8B, 1) == pytest.approx(16.06e9, rel=0.01)
    assert device_memory.kv_bytes(LLAMA_8B, 1) == 131072
    assert device_memory.kv_bytes(LLAMA_8B, 4) == 131072 // 4


def test_what_extraction_takes_is_told(tmp_path):
    folder_ = width.write("kimi-k2.5-text", 61, tmp_path / "kimi")
    found = facts.read(folder_)
    recipe = load(shipped.find("kimi-k2.5-int4-tp8"))
    needed = device_memory.need(recipe, found)
    # Two steps of 8192 tokens with 4 states of 7168 values in bfloat16.
    assert needed.capture == 2 * 8192 * 4 * 7168 * 2
    assert "76.3 GB of weights a GPU" in needed.told()
    assert "0.94 GB for capture" in needed.told()


def test_a_config_of_another_kind_is_not_guessed(tmp_path):
    text = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 1, "vocab_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(text))
    assert device_memory.weight_bytes(text, 1) is None
    needed = device_memory.need(
        load(shipped.find("tiny-cpu")),
        SimpleNamespace(path=tmp_path, weight_bytes=0, num_layers=8, hidden_size=8),
    )
    assert (needed.weights, needed.kv_token) == (None, None)
    assert "unknown size" in needed.told()
