import json

import pytest
from safetensors import safe_open

from draftkiln.cli import main
from draftkiln.durable import sha256_file
from draftkiln.errors import TargetError
from draftkiln.target import layers, make, record, vision
from draftkiln.target.shape import SHAPES

SMALL_SHA256 = "54823c7ddd5c88954aaf5eefeb49cf92d03b48d8a0a76ae52f403381db2b095c"


def weights(folder):
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for file in set(index.values()):
        with safe_open(folder / file, framework="numpy") as shard:
            found |= {name: shard.get_slice(name) for name in shard.keys()}  # noqa: SIM118 - not a mapping
    assert set(found) == set(index)
    return found


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(small, tmp_path):
    again = make.make("small", 17, tmp_path / "again")
    assert record.read_record(again) == record.read_record(small)
    other = make.make("small", 18, tmp_path / "other")
    names = {
        name
        for name, entry in record.read_record(other)["files"].items()
        if entry != record.read_record(small)["files"][name]
    }
    assert names == {"model-00001-of-00001.safetensors"}


def test_the_bytes_are_those_of_every_machine(small):
    assert sha256_file(small / "model-00001-of-00001.safetensors") == SMALL_SHA256


def test_the_safetensors_library_reads_what_is_written(small):
    found = weights(small)
    shape = SHAPES["small"]
    assert found["language_model.model.embed_tokens.weight"].get_shape() == [shape.vocab_size, shape.hidden_size]
    assert found["language_model.lm_head.weight"].get_dtype() == "BF16"
    assert found["language_model.model.layers.7.mlp.gate.e_score_correction_bias"].get_dtype() == "F32"


@pytest.mark.parametrize("name", SHAPES)
def test_a_made_target_has_the_sizes_that_are_promised(name):
    shape = SHAPES[name]
    tensors = [*layers.all_tensors(shape, 17), *vision.vision_tensors(shape, 17)]
    assert len({tensor.name for tensor in tensors}) == len(tensors)
    assert sum(tensor.nbytes for tensor in tensors) < 500 * 10**6
    assert shape.num_hidden_layers >= 8


def test_kimi_tiny_has_kimis_attention():
    shape = SHAPES["kimi-tiny"]
    ranks = (shape.hidden_size, shape.q_lora_rank, shape.kv_lora_rank)
    heads = (shape.num_attention_heads, shape.qk_nope_head_dim, shape.qk_rope_head_dim, shape.v_head_dim)
    assert (ranks, heads) == ((7168, 1536, 512), (8, 128, 64, 128))


def test_every_expert_is_chosen_for_every_token(small):
    text = json.loads((small / "config.json").read_text())["text_config"]
    assert text["num_experts_per_tok"] == text["n_routed_experts"]
    assert text["n_group"] == text["topk_group"] == 1


def test_an_existing_folder_is_refused_and_left_as_it_is(tmp_path):
    (tmp_path / "kept").write_text("mine")
    with pytest.raises(TargetError, match="exists already"):
        make.make("small", 17, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_an_unknown_shape_is_refused_with_those_that_are_known(tmp_path):
    with pytest.raises(TargetError) as caught:
        make.make("huge", 17, tmp_path / "huge")
    assert "kimi-tiny, small" in caught.value.fix


def test_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(*_):
        raise RuntimeError("cut")

    monkeypatch.setattr(make, "write_shards", fail)
    with pytest.raises(RuntimeError, match="cut"):
        make.make("small", 17, tmp_path / "small")
    assert list(tmp_path.iterdir()) == []


def test_the_command_writes_the_target_and_says_so(tmp_path, capsys):
    assert main(["make-target", str(tmp_path / "made"), "--shape", "small"]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path / 'made'}: small, seed 17, 5.3 MB in ")
    assert main(["make-target", str(tmp_path / "made"), "--shape", "small"]) == 7
    assert "exists already" in capsys.readouterr().err


def test_the_media_token_is_where_the_configuration_says(small):
    config = json.loads((small / "config.json").read_text())
    added = {
        token["content"]: token["id"] for token in json.loads((small / "tokenizer.json").read_text())["added_tokens"]
    }
    assert config["media_placeholder_token_id"] == added["<|media_pad|>"]
    ids = sorted(added.values())
    assert ids == list(range(256, 256 + len(ids)))
    assert ids[-1] < config["text_config"]["vocab_size"]
