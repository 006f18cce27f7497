"""Drafts of this project and of others, whole and broken, told from config and headers alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.cli import main
from draftkiln.errors import ExitCode
from draftkiln.export import folders, inspect, layout, reading

DECODER = {
    "model_type": "llama",
    "attention_bias": False,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "vocab_size": 100,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
SIZES = layout.Sizes(64, 4, 2, 32, 96, 100, 40)
VLLM = folders.vllm_config(
    DECODER, aux=(2, 4, 5), draft_vocab=40, norm_before_residual=False, draft_tokens=3, target={"name_or_path": "a/b"}
)
SGLANG = folders.sglang_config(DECODER, aux=(2, 4, 5), architecture="LlamaForCausalLM", draft_vocab=40)
KINDS = {layout.D2T: ("I64", 8), layout.T2D: ("BOOL", 1)}


def shapes(*, sglang=False):
    return {layout.sglang_name(name) if sglang else name: shape for name, shape in layout.tensors(SIZES).items()}


def write(folder, config, tensors, file="model.safetensors", kind=("BF16", 2)):
    """A draft's folder; the weights are a hole of the right size."""
    folder.mkdir(exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config))
    header, at = {}, 0
    for name, shape in tensors.items():
        code, size = KINDS.get(name, kind)
        length = size
        for extent in shape:
            length *= extent
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(header).encode()
    with (folder / file).open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        out.truncate(8 + len(text) + at)
    return folder


def problems(folder):
    return list(reading.read(folder).problems)


def test_a_draft_for_vllm(tmp_path, capsys):
    folder = write(tmp_path / "d", VLLM, shapes())
    assert main(["inspect", str(folder)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "format: speculators (vLLM)\narchitecture: Eagle3Speculator\ntarget: a/b\n" in out
    assert "layer ids: [2, 4, 5]: the states after 2, 4, 5 decoder layers (0 = embeddings), as vLLM counts" in out
    assert "draft vocabulary: 40, a part of the target's" in out
    assert "norm_before_residual false" in out
    assert "  layers.0.self_attn.q_proj.weight          BF16  [128, 128]" in out
    assert out.endswith("nothing is wrong with it\n")


def test_a_draft_for_sglang(tmp_path, capsys):
    folder = write(tmp_path / "d", SGLANG, shapes(sglang=True))
    assert main(["inspect", str(folder)]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "format: Hugging Face layout (SGLang)" in out
    assert "layer ids: [1, 3, 4]: outputs of layers, as SGLang counts: the states after 2, 4, 5 decoder layers" in out


def test_json_has_all_of_it(tmp_path, capsys):
    folder = write(tmp_path / "d", VLLM, shapes())
    assert main(["inspect", str(folder), "--json"]) == ExitCode.OK
    content = json.loads(capsys.readouterr().out)
    assert content["parameters"] == sum(
        a * b if b else a for a, b in ((*shape, 0)[:2] for name, shape in shapes().items() if name not in KINDS)
    )
    assert content["tensors"]["fc.weight"] == {"shape": [64, 192], "dtype": "BF16"}
    assert (content["layer_ids"], content["problems"], content["embeddings"]) == ([2, 4, 5], [], "the target's")


def test_published_drafts_in_speculators_format_bring_embeddings_and_leave_flags_out(tmp_path):
    config = {key: value for key, value in VLLM.items() if key not in {"fc_norm", "norm_output", "norm_before_fc"}}
    config["norm_before_residual"] = True
    folder = write(tmp_path / "d", config, {**shapes(), layout.EMBEDDINGS: (100, 64)})
    draft = reading.read(folder)
    assert draft.problems == ()
    described = inspect.describe(draft)
    assert described["embeddings"] == "its own"
    assert described["norm_flags"]["fc_norm"] == "not written, vLLM takes False"


def test_published_drafts_in_the_plain_layout_leave_head_size_and_ids_out(tmp_path):
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 100,
        "draft_vocab_size": 40,
    }
    tensors = shapes(sglang=True)
    wide = {
        "midlayer.self_attn.q_proj.weight": (64, 128),
        "midlayer.self_attn.k_proj.weight": (32, 128),
        "midlayer.self_attn.v_proj.weight": (32, 128),
        "midlayer.self_attn.o_proj.weight": (64, 64),
    }
    tensors = {**tensors, **wide}
    del tensors["t2d"]
    draft = reading.read(write(tmp_path / "d", config, tensors, kind=("F16", 2)))
    assert draft.problems == ()
    assert inspect.layer_meaning(draft).startswith("not written")


def test_an_mla_draft_is_named_and_not_judged(tmp_path):
    config = {
        "architectures": ["Eagle3DeepseekV2ForCausalLM"],
        "hidden_size": 64,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]},
    }
    folder = write(tmp_path / "d", config, {"midlayer.self_attn.kv_a_proj_with_mqa.weight": (8, 64)})
    assert problems(folder) == ["its attention is MLA's: this project neither trains nor checks such drafts yet"]


def test_case_8_what_ids_mean_is_told_for_both_engines(tmp_path):
    config = {**SGLANG, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [15, 23, 28]}}
    meaning = inspect.layer_meaning(reading.read(write(tmp_path / "d", config, shapes(sglang=True))))
    assert "the states after 16, 24, 29 decoder layers" in meaning
    assert "as they are, the states after 15, 23, 28 decoder layers" in meaning


def without(name):
    return {key: shape for key, shape in shapes().items() if key != name}


@pytest.mark.parametrize(
    ("config", "tensors", "words"),
    [
        (VLLM, without("fc.weight"), "tensor fc.weight is missing; its shape would be [64, 192]"),
        (VLLM, {**shapes(), "fc.weight": (64, 128)}, "tensor fc.weight has shape [64, 128]"),
        (VLLM, {**shapes(), "layers.1.mlp.up_proj.weight": (1, 1)}, "layers.1.mlp.up_proj.weight is none that vLLM"),
        (SGLANG, shapes(), "tensor layers.0.hidden_norm.weight is none that SGLang loads"),
        ({**SGLANG, "norm_before_residual": True}, shapes(sglang=True), "SGLang's Llama drafts know no such flag"),
        ({**VLLM, "norm_output": True}, shapes(), "norm_output is True"),
        ({**VLLM, "eagle_aux_hidden_state_layer_ids": None}, shapes(), "layer_ids is not written: vLLM takes its own"),
        ({"model_type": "llama"}, shapes(), "config.json is that of no EAGLE-3 draft"),
        ({**VLLM, "transformer_layer_config": {"hidden_size": 64}}, shapes(), "does not say num_attention_heads"),
        ({**VLLM, "transformer_layer_config": 5}, shapes(), "config.json: transformer_layer_config is no object"),
        ({**VLLM, "draft_vocab_size": "many"}, shapes(), "config.json: draft_vocab is 'many', which is no size"),
        ({**VLLM, "draft_vocab_size": 10**30}, shapes(), "which is no size"),
        ("{", shapes(), "config.json cannot be read"),
        ("[]", shapes(), "config.json cannot be read: it is not a JSON object"),
        (None, shapes(), "config.json is not there"),
    ],
)
def test_case_23_and_51_each_fault_is_told(tmp_path, config, tensors, words):
    found = problems(write(tmp_path / "d", config, tensors))
    assert any(words in text for text in found), found


def test_weights_of_another_kind_are_named_and_not_opened(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SGLANG))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04cos\nsystem\n")
    assert problems(tmp_path) == [
        "there is no .safetensors file; pytorch_model.bin is a pickle, which could run code and is not opened"
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cut short"),
        (b"\xff" * 8, "cut short"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n", "it is a Git LFS pointer"),
        ((2).to_bytes(8, "little") + b"[]", "not a safetensors file"),
        ((12).to_bytes(8, "little") + b'{"a": {"b":1', "not a safetensors file"),
        ((14).to_bytes(8, "little") + b'{"a": {"b":1}}', "an entry of its header is broken"),
        ((10).to_bytes(8, "little") + b'{"a": [1]}', "an entry of its header is broken"),
    ],
)
def test_broken_weights_are_told_with_their_file(tmp_path, content, words):
    (tmp_path / "config.json").write_text(json.dumps(VLLM))
    (tmp_path / "model.safetensors").write_bytes(content)
    assert [
        text for text in problems(tmp_path) if text.startswith("model.safetensors cannot be read") and words in text
    ]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (
            {"dtype": "BF16", "shape": [3, 2], "data_offsets": [0, 8]},
            "tensor a has 8 bytes, its shape and type need 12",
        ),
        ({"dtype": "BF16", "shape": ["x", 2], "data_offsets": [0, 8]}, "the shape of a is ['x', 2]"),
        ({"dtype": "BF16", "shape": [-1, 2], "data_offsets": [0, 8]}, "the shape of a is [-1, 2]"),
        ({"dtype": "BF16", "shape": 4, "data_offsets": [0, 8]}, "an entry of its header is broken"),
    ],
)
def test_entries_that_say_what_is_not_there_are_told(tmp_path, entry, words):
    (tmp_path / "config.json").write_text(json.dumps(VLLM))
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    assert any(words in problem for problem in problems(tmp_path)), problems(tmp_path)


def test_weights_in_several_files_are_read_together(tmp_path):
    every = shapes()
    first = dict(list(every.items())[:5])
    write(tmp_path, VLLM, first, "model-00001-of-00002.safetensors")
    write(
        tmp_path, None, {name: every[name] for name in every if name not in first}, "model-00002-of-00002.safetensors"
    )
    index = {"weight_map": {name: f"model-0000{1 if name in first else 2}-of-00002.safetensors" for name in every}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert problems(tmp_path) == []
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert any(
        "model-00002-of-00002.safetensors, named by model.safetensors.index.json" in text for text in problems(tmp_path)
    )


@pytest.mark.parametrize("name", ["file", "nothing"])
def test_what_is_no_folder_is_refused(tmp_path, name, capsys):
    (tmp_path / "file").write_text("x")
    assert main(["inspect", str(tmp_path / name)]) == ExitCode.TRAINING
    assert "is no draft" in capsys.readouterr().err


def test_problems_have_their_exit_code(tmp_path, capsys):
    assert main(["inspect", str(tmp_path)]) == ExitCode.TRAINING
    assert capsys.readouterr().out.endswith("2 problems\n")


@given(
    st.dictionaries(
        st.sampled_from([*VLLM, *SGLANG, "norm_before_residual"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(max_size=5)
        | st.lists(st.integers() | st.text(max_size=3), max_size=3)
        | st.dictionaries(
            st.sampled_from([*DECODER, "verifier"]), st.none() | st.integers() | st.text(max_size=3), max_size=4
        ),
        max_size=12,
    ),
    st.text(max_size=10),
)
def test_any_config_is_told_without_a_traceback(tmp_path_factory, config, name):
    folder = write(tmp_path_factory.mktemp("draft"), config, {name: (2, 3)})
    content = inspect.describe(reading.read(folder))
    assert all(line.isprintable() for line in inspect._text(content))
    assert json.loads(json.dumps(content))["problems"]


def test_a_run_directory_is_told_with_the_folder_of_its_draft(tmp_path, capsys):
    (tmp_path / "run.json").write_text("{}")
    assert main(["inspect", str(tmp_path)]) == ExitCode.TRAINING
    told = capsys.readouterr().err
    assert "it is a run directory" in told
    assert f"name {tmp_path}/export/vllm, its draft" in told
