from draftkiln.recipe.model import DraftShape
from draftkiln.train.draft_config import decoder_config

SHAPE = DraftShape(num_attention_heads=64, num_key_value_heads=8, head_dim=128, intermediate_size=12288)
KIMI = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "head_dim": 64,
        "vocab_size": 163840,
        "max_position_embeddings": 262144,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000.0,
        "rope_scaling": {"type": "yarn", "factor": 64.0},
    },
}


def test_sizes_are_the_text_parts_and_the_shape_is_the_recipes() -> None:
    made = decoder_config(KIMI, SHAPE)
    assert (made["hidden_size"], made["vocab_size"], made["rms_norm_eps"]) == (7168, 163840, 1e-5)
    assert (made["num_attention_heads"], made["num_key_value_heads"], made["head_dim"]) == (64, 8, 128)
    assert made["intermediate_size"] == 12288


def test_the_head_size_is_never_the_targets() -> None:
    assert decoder_config(KIMI, SHAPE)["head_dim"] == SHAPE.head_dim


def test_positions_are_plain_with_the_targets_theta() -> None:
    assert decoder_config(KIMI, SHAPE)["rope_parameters"] == {"rope_type": "default", "rope_theta": 50000.0}


def test_theta_in_the_newer_place_is_found() -> None:
    text = {"hidden_size": 8, "vocab_size": 8, "max_position_embeddings": 8, "rope_parameters": {"rope_theta": 1e6}}
    assert decoder_config(text, SHAPE)["rope_parameters"]["rope_theta"] == 1e6
