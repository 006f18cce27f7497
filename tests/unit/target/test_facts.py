import json

import pytest

from draftkiln.errors import ProblemsError, TargetError
from draftkiln.target import facts

TEXT = {"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64, "vocab_size": 163840}
VISION = {"num_hidden_layers": 27, "hidden_size": 1152, "num_attention_heads": 16}


def write(folder, config, *, weights=("model.safetensors",), index=None, tokenizer=None):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for name in weights:
        (folder / name).write_bytes(b"\x02" + bytes(7) + b"{}")
    if index is not None:
        names = {f"w{number}": name for number, name in enumerate(index)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    for name, value in ({"tokenizer.json": {}} if tokenizer is None else tokenizer).items():
        (folder / name).write_text(json.dumps(value))
    return folder


@pytest.mark.parametrize(
    "config",
    [
        TEXT,
        {"text_config": TEXT, "vision_config": VISION},
        {**VISION, "vocab_size": 5, "text_config": TEXT},
        {"llm_config": TEXT, "vision_config": VISION},
    ],
    ids=["flat", "nested", "both differing", "another name"],
)
def test_case_24_sizes_are_those_of_the_text_part(tmp_path, config):
    found = facts.read(write(tmp_path, config))
    assert (found.num_layers, found.hidden_size, found.num_heads, found.vocab_size) == (61, 7168, 64, 163840)


def test_case_24_a_text_part_without_sizes_is_refused_though_the_wrapper_has_some(tmp_path):
    with pytest.raises(TargetError, match="its text section has no usable num_hidden_layers"):
        facts.read(write(tmp_path, {**TEXT, "text_config": {**TEXT, "num_hidden_layers": None}}))


def test_facts_of_a_made_target(small):
    found = facts.check(small, trust_remote_code=False)
    assert (found.architecture, found.dtype, found.num_layers) == ("KimiK25ForConditionalGeneration", "bfloat16", 8)
    assert (found.has_weights, found.tokenizer_needs_remote_code, found.model_needs_remote_code) == (True, False, True)
    assert found.weight_bytes > 5 * 10**6


def test_quantization_is_read_from_the_text_part(tmp_path):
    method = {"quantization_config": {"quant_method": "compressed-tensors"}}
    assert facts.read(write(tmp_path, {"text_config": {**TEXT, **method}})).quantization == "compressed-tensors"


def test_a_directory_that_is_missing_is_named(tmp_path):
    with pytest.raises(TargetError, match=r"nowhere is not there") as caught:
        facts.read(tmp_path / "nowhere")
    assert caught.value.code == 7


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_broken_config_is_named(tmp_path, text):
    write(tmp_path, TEXT)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(TargetError, match=r"cannot read .*config.json"):
        facts.read(tmp_path)


def test_a_directory_without_weights_is_refused_unless_none_are_needed(tmp_path):
    folder = write(tmp_path, TEXT, weights=())
    with pytest.raises(ProblemsError, match="has no complete weights"):
        facts.check(folder, trust_remote_code=False)
    assert not facts.check(folder, trust_remote_code=False, weights=False).has_weights


def test_a_shard_that_is_missing_is_named(tmp_path):
    folder = write(tmp_path, TEXT, weights=("a.safetensors",), index=("a.safetensors", "b.safetensors"))
    with pytest.raises(ProblemsError, match=r"1 files of .* are missing, such as b.safetensors"):
        facts.check(folder, trust_remote_code=False)


def test_a_tokenizer_of_python_code_needs_the_recipes_word(tmp_path):
    code = {"tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", None]}}}
    folder = write(tmp_path, TEXT, tokenizer=code)
    with pytest.raises(ProblemsError, match="its tokenizer is a Python file"):
        facts.check(folder, trust_remote_code=False)
    assert facts.check(folder, trust_remote_code=True).tokenizer_needs_remote_code


def test_all_problems_are_told_at_once(tmp_path):
    with pytest.raises(ProblemsError) as caught:
        facts.check(write(tmp_path, TEXT, weights=(), tokenizer={}), trust_remote_code=False)
    assert len(caught.value.problems) == 2
    assert "no tokenizer" in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"\x02" + bytes(7) + b"{", b"version https://git-lfs.github.com/spec/v1\noid sha256:4\n"]
)
def test_weights_that_were_cut_or_are_a_pointer_are_refused_by_name(tmp_path, data):
    folder = write(tmp_path, TEXT)
    (folder / "model.safetensors").write_bytes(data)
    with pytest.raises(ProblemsError, match=r"model\.safetensors is not a whole safetensors file"):
        facts.check(folder, trust_remote_code=False)
    facts.check(folder, trust_remote_code=False, weights=False)
