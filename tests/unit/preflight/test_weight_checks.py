"""config.json against the shapes that the weights themselves have."""

import json

import pytest

from draftkiln.preflight.weight_checks import check_shapes
from draftkiln.target import facts

CONFIG = {"num_hidden_layers": 3, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 20}


def tensors(prefix="model.", layers=3, hidden=8, rows=20, **more):
    found = {f"{prefix}embed_tokens.weight": [rows, hidden], f"{prefix}norm.weight": [hidden]}
    found |= {f"{prefix}layers.{place}.input_layernorm.weight": [hidden] for place in range(layers)}
    return found | {"lm_head.weight": [rows, hidden]} | more


def write(folder, shapes, config=None, name="model.safetensors"):
    """A file whose header is right and whose data are a hole: only headers may be read."""
    header, end = {}, 0
    for key, shape in shapes.items():
        size = 2
        for number in shape:
            size *= number
        header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    with (folder / name).open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    return facts.read(folder)


@pytest.mark.parametrize("prefix", ["model.", "language_model.model.", "model.language_model."])
def test_case_53_weights_of_the_right_shapes_pass_under_the_names_that_targets_use(tmp_path, prefix):
    found = check_shapes(write(tmp_path, tensors(prefix)))
    assert (found.status, found.reason) == (
        "pass", "3 layers, vocabulary and hidden size [20, 8], as config.json says"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (tensors(hidden=16), "embed_tokens is [20, 16], config.json says [20, 8]"),
        (tensors(hidden=16), "the final norm is [16], config.json says hidden size 8"),
        (tensors(rows=24), "lm_head is [24, 8], config.json says [20, 8]"),
        (tensors(layers=2), "layers 2 of 3 have no weights"),
        (tensors(layers=5), "there are weights of 5 layers, config.json says 3"),
    ],
)
def test_what_differs_is_named_with_both_values(tmp_path, shapes, words):
    found = check_shapes(write(tmp_path, shapes))
    assert found.status == "fail"
    assert words in found.reason
    assert "same revision" in found.fix


def test_a_layer_that_only_predicts_further_tokens_is_no_layer_of_the_target(tmp_path):
    assert check_shapes(write(tmp_path, tensors(layers=4), CONFIG | {"num_nextn_predict_layers": 1})).status == "pass"
    assert check_shapes(write(tmp_path, tensors(layers=5), CONFIG | {"num_nextn_predict_layers": 1})).status == "fail"


def test_a_vision_part_of_another_size_is_left_alone(tmp_path):
    more = {"vision_tower.encoder.blocks.0.norm0.weight": [4], "vision_tower.layers.30.norm.weight": [4]}
    assert check_shapes(write(tmp_path, tensors("language_model.model.", **more))).status == "pass"


def test_shards_are_read_together_and_a_tensor_of_the_index_that_no_file_has_is_named(tmp_path):
    shapes = tensors()
    names = list(shapes)
    write(tmp_path, {name: shapes[name] for name in names[:2]}, name="a.safetensors")
    index = {"weight_map": {name: "a.safetensors" if name in names[:2] else "b.safetensors" for name in names}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    found = write(tmp_path, {name: shapes[name] for name in names[2:]}, name="b.safetensors")
    assert check_shapes(found).status == "pass"
    write(tmp_path, {name: shapes[name] for name in names[3:]}, name="b.safetensors")
    assert "1 tensors of the index are in no file, such as model.layers.0." in check_shapes(found).reason


def test_case_53_names_that_nothing_is_known_of_are_unknown_and_a_broken_header_fails(tmp_path):
    assert check_shapes(write(tmp_path, {"transformer.wte.weight": [20, 8]})).status == "unknown"
    found = write(tmp_path, tensors())
    for data in (
        b"",
        b"version https://git-lfs.github.com/spec/v1",
        b"\x10" + bytes(7) + b"{" * 16,
        b"\x02" + bytes(7) + b"[]",
    ):
        (tmp_path / "model.safetensors").write_bytes(data)
        assert check_shapes(found).status == "fail"
