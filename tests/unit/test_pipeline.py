from pathlib import Path

from draftkiln import pipeline

RECORDS = {
    "extract": {
        "samples": 48, "shape": [512, 4, 7168], "dtype": "bfloat16", "layer_ids": [2, 4, 5, 8],
        "tokens_per_second": 412.5, "tokens": 24576,
    },
    "validate": {"checks": ["count", "order"], "samples": 48, "min_cosine": 0.99981, "compared": 8},
    "train": {"loss_first": 4.5, "loss_last": 0.25, "steps": 40},
    "evaluate": {"acceptance_length": 3.125, "num_draft_tokens": 3, "prompts": 16, "lossless": True},
}  # fmt: skip


def test_the_summary_has_a_line_for_each_thing_a_person_looks_for():
    lines = list(pipeline.summary(RECORDS, Path("runs/tiny")))
    assert lines[0] == ("samples: 48, up to [512, 4, 7168] bfloat16, slots are layers [2, 4, 5, 8], each [512, 7168]")
    assert any(line.startswith("acceptance length: 3.12 at 3 draft tokens on 16 held-out prompts") for line in lines)
    assert "training loss: 4.500 -> 0.250 in 40 steps" in lines
    assert lines[-1] == "everything lies in: runs/tiny"


def test_output_that_differs_is_not_called_identical():
    records = RECORDS | {"evaluate": RECORDS["evaluate"] | {"lossless": False}}
    assert any("DIFFERENT from" in line for line in pipeline.summary(records, Path("r")))


def test_a_run_stopped_after_extract_says_only_what_was_done():
    lines = list(pipeline.summary({"extract": RECORDS["extract"]}, Path("r")))
    assert not any("acceptance" in line or "loss" in line for line in lines)
