"""Case 23 and 51: each way a draft can fail to fit the serving build has its own message."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from draftkiln.errors import TrainingError
from draftkiln.export import check, folders, layout

AUX, LAYERS = (2, 4, 5), 8
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
CONFIG = folders.vllm_config(
    DECODER,
    aux=AUX,
    draft_vocab=40,
    norm_before_residual=False,
    draft_tokens=3,
    target={"name_or_path": "a/target", "architectures": ["DeepseekV3ForCausalLM"]},
)


def headers(config: dict[str, Any]) -> check.Header:
    kinds = {layout.D2T: "I64", layout.T2D: "BOOL"}
    shapes = layout.tensors(layout.Sizes.of(config))
    return {name: (shape, kinds.get(name, "BF16")) for name, shape in shapes.items()}


def found(change: Callable[[dict[str, Any], check.Header], object]) -> list[str]:
    config = deepcopy(CONFIG)
    header = headers(config)
    change(config, header)
    return check.problems(config, header, AUX, LAYERS)


def test_a_draft_that_fits_has_no_problems() -> None:
    assert found(lambda _config, _header: None) == []


def test_embeddings_may_be_there() -> None:
    assert found(lambda _, header: header.update({layout.EMBEDDINGS: ((100, 64), "BF16")})) == []


def test_a_draft_of_the_whole_vocabulary_has_no_maps() -> None:
    whole = folders.vllm_config(
        DECODER, aux=AUX, draft_vocab=100, norm_before_residual=True, draft_tokens=3, target={"name_or_path": "t"}
    )
    assert layout.D2T not in headers(whole)
    assert check.problems(whole, headers(whole), AUX, LAYERS) == []


def reshape(name: str, shape: tuple[int, ...]) -> Callable[[dict[str, Any], check.Header], None]:
    return lambda _config, header: header.__setitem__(name, (shape, header[name][1]))


def retype(name: str, kind: str) -> Callable[[dict[str, Any], check.Header], None]:
    return lambda _config, header: header.__setitem__(name, (header[name][0], kind))


MUTATIONS: dict[str, tuple[Callable[[dict[str, Any], check.Header], object], str]] = {
    "head of another vocabulary": (reshape(layout.HEAD, (100, 64)), "a row for each draft token"),
    "d2t too short": (reshape(layout.D2T, (39,)), "an offset for each draft token"),
    "t2d of the draft's length": (reshape(layout.T2D, (40,)), "a flag for each token of the target"),
    "fc of four states": (reshape("fc.weight", (64, 256)), "hidden size x 3 fused states"),
    "attention reads one side": (reshape("layers.0.self_attn.q_proj.weight", (128, 64)), "twice the hidden size"),
    "heads of another size": (reshape("layers.0.self_attn.o_proj.weight", (64, 64)), "o_proj.weight has shape"),
    "missing tensor": (lambda _, header: header.pop("norm.weight"), "tensor norm.weight is missing"),
    "unknown tensor": (lambda _, header: header.update({"input_norm.weight": ((192,), "BF16")}), "none that vLLM"),
    "second layer": (lambda _, header: header.update({"layers.1.mlp.up_proj.weight": ((96, 64), "BF16")}), "layers.1."),
    "renamed tensor": (lambda _, h: h.update({"midlayer.x": h.pop("layers.0.hidden_norm.weight")}), "midlayer.x"),
    "integer head": (retype(layout.HEAD, "I8"), "lm_head.weight is I8"),
    "d2t in floats": (retype(layout.D2T, "F32"), "d2t is F32"),
    "case 9: no ids": (lambda config, _: config.pop("eagle_aux_hidden_state_layer_ids"), "vLLM would guess [2, 4, 5]"),
    "case 9: other ids": (lambda config, _: config.update(eagle_aux_hidden_state_layer_ids=[1, 3, 4]), "is [1, 3, 4]"),
    "case 10: last layer as auxiliary": (
        lambda config, _: config.update(eagle_aux_hidden_state_layer_ids=[2, 4, 5, 8]),
        "8 is the state after the last layer and no auxiliary one",
    ),
    "norm_before_residual unsaid": (lambda config, _: config.pop("norm_before_residual"), "norm_before_residual"),
    "another algorithm": (lambda config, _: config.update(speculators_model_type="dflash"), "'dflash'"),
    "case 51: norm_before_fc": (lambda config, _: config.update(norm_before_fc=True), "norm_before_fc is True"),
    "case 51: fc_norm": (lambda config, _: config.update(fc_norm=True), "fc_norm is True"),
    "case 51: norm_output": (lambda config, _: config.update(norm_output=True), "norm_output is True"),
    "case 51: a flag nobody reads": (lambda config, _: config.update(sandwich_norm=True), "sandwich_norm is True"),
    "case 51: trained embeddings": (lambda config, _: config.update(embed_requires_grad=True), "embed_requires_grad"),
    "qwen layer": (lambda config, _: config["transformer_layer_config"].update(model_type="qwen3"), "'qwen3'"),
    "two layers": (lambda config, _: config["transformer_layer_config"].update(num_hidden_layers=2), "is 2, it must"),
    "biases": (lambda config, _: config["transformer_layer_config"].update(attention_bias=True), "attention_bias"),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_case_23_every_mutation_has_its_own_message(name: str) -> None:
    change, words = MUTATIONS[name]
    texts = found(change)
    assert any(words in text for text in texts), texts
    assert len(texts) <= 2  # a renamed tensor is both missing and unknown


def test_case_23_no_two_mutations_share_a_message() -> None:
    texts = [tuple(found(change)) for change, _ in MUTATIONS.values()]
    assert len(set(texts)) == len(texts)


def test_a_known_key_at_its_default_is_no_problem() -> None:
    assert found(lambda config, _: config.update(embed_requires_grad=False, transformers_version="5.19.0")) == []


def test_a_missing_size_is_told_by_name() -> None:
    config = deepcopy(CONFIG)
    del config["transformer_layer_config"]["head_dim"]
    with pytest.raises(TrainingError, match="head_dim"):
        layout.Sizes.of(config)


@pytest.mark.parametrize(
    ("d2t", "t2d", "words"),
    [
        ([1, 0], [False, True, True], "ascending"),
        ([0, 9], [True, True, True], "outside"),
        ([0, 1], [True, True, False], "different target tokens"),
    ],
)
def test_maps_that_disagree(d2t: list[int], t2d: list[bool], words: str) -> None:
    assert any(words in text for text in check.vocabulary_problems(d2t, t2d))


def test_maps_that_agree() -> None:
    assert check.vocabulary_problems([0, 1, 1], [True, False, True, True]) == []
