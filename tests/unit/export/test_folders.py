from draftkiln.export import folders, layout

DECODER = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "head_dim": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 100,
    "rope_parameters": {"rope_type": "default", "rope_theta": 50000.0},
}
SIZES = layout.Sizes(64, 4, 2, 32, 96, 100, 40)


def test_every_tensor_of_the_layer_moves_to_midlayer() -> None:
    names = [layout.sglang_name(name) for name in layout.tensors(SIZES)]
    assert not [name for name in names if name.startswith("layers.")]
    assert len([name for name in names if name.startswith("midlayer.")]) == 10
    assert {"fc.weight", "norm.weight", "lm_head.weight", "d2t", "t2d"} <= set(names)


def test_the_embeddings_stay_out_of_sglangs_folder() -> None:
    tensors = dict.fromkeys([*layout.tensors(SIZES), layout.EMBEDDINGS], 0)
    assert layout.EMBEDDINGS not in folders.sglang_tensors(tensors, SIZES)


def test_sglangs_config() -> None:
    made = folders.sglang_config(DECODER, aux=(2, 4, 5), architecture="LlamaForCausalLM", draft_vocab=40)
    assert made["architectures"] == ["LlamaForCausalLMEagle3"]
    assert made["eagle_config"] == {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}
    assert (made["rope_theta"], made["rope_scaling"], made["draft_vocab_size"]) == (50000.0, None, 40)
    assert not [key for key in layout.OFF_FLAGS if made.get(key)]


def test_case_51_sglang_refuses_a_residual_from_after_the_norm() -> None:
    served = {"aux": (2, 4, 5), "architecture": "LlamaForCausalLM"}
    assert folders.sglang_refusal(norm_before_residual=False, **served) is None
    assert "norm_before_residual" in (folders.sglang_refusal(norm_before_residual=True, **served) or "")


def test_case_8_sglang_is_refused_ids_that_it_would_shift() -> None:
    refusal = folders.sglang_refusal(norm_before_residual=False, aux=(1, 4, 5), architecture="DeepseekV3ForCausalLM")
    assert "begins with 1" in (refusal or "")


def test_vllms_config_writes_every_key_that_vllm_reads() -> None:
    made = folders.vllm_config(
        DECODER, aux=(2, 4, 5), draft_vocab=40, norm_before_residual=False, draft_tokens=3, target={"name_or_path": "t"}
    )
    assert not layout.READ_BY_VLLM - made.keys()
    assert made["norm_before_residual"] is False
    assert made["speculators_config"]["proposal_methods"][0]["speculative_tokens"] == 3
