import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from draftkiln import cli, pipeline
from draftkiln.errors import ExitCode
from draftkiln.recipe.model import STAGES
from draftkiln.stack import environment

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


def test_a_low_cosine_that_passed_is_told_with_what_makes_it_pass():
    """Of a target that routes its tokens: close calls between experts fall otherwise in other batches."""
    routed = RECORDS["validate"] | {"min_cosine": 0.08342, "median_cosine": 0.99876, "nearest": 0.957}
    lines = list(pipeline.summary(RECORDS | {"validate": routed}, Path("r")))
    told = "least cosine 0.08342, median 0.99876, 95.7% of rows nearest to their own state on 8 samples"
    assert f"against transformers: {told}" in lines
    plain = list(pipeline.summary(RECORDS, Path("r")))
    assert "against transformers: least cosine 0.99981 on 8 samples" in plain


def test_output_that_differs_is_not_called_identical():
    records = RECORDS | {"evaluate": RECORDS["evaluate"] | {"lossless": False}}
    assert any("DIFFERENT from" in line for line in pipeline.summary(records, Path("r")))


def test_a_run_stopped_after_extract_says_only_what_was_done():
    lines = list(pipeline.summary({"extract": RECORDS["extract"]}, Path("r")))
    assert not any("acceptance" in line or "loss" in line for line in lines)


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """What a run of the tiny recipe asks for, with nothing that is really run: environments, images, stages."""
    found = {"environments": [], "images": set(), "stages": []}
    monkeypatch.setattr(environment, "ensure", found["environments"].append)
    monkeypatch.setattr(
        pipeline, "_demand_images", lambda recipe, boxed, *_: found["images"].update(map(recipe.stacks.of, boxed))
    )

    def third_fails(words):
        found["stages"].append(words)
        return 7 if len(found["stages"]) == 3 else 0

    monkeypatch.setattr(pipeline, "_run", third_fails)
    monkeypatch.chdir(tmp_path)
    return found


def run(*words):
    recipe = Path(__file__).parents[2] / "recipes" / "tiny-cpu.yaml"
    return cli.main(["run", "--recipe", str(recipe), *words])


def test_without_a_word_every_stage_runs_in_its_environment(asked):
    assert run() == 7
    assert len(asked["environments"]) == 2
    assert asked["images"] == set()
    assert [words[0] for words in asked["stages"]] == ["prepare", "extract", "validate"]


def test_chosen_stages_run_in_images_and_the_rest_in_environments(asked):
    assert run("--in-container", "extract") == 7
    assert asked["environments"] == ["spec0.9.0-vllm0.32.0-cpu"]
    assert asked["images"] == {"spec0.3.0-vllm0.16.0-cpu"}
    assert [words[:3] for words in asked["stages"]][:2] == [
        ["prepare", "--recipe", asked["stages"][0][2]],
        ["image", "stage", "extract"],
    ]


def test_all_stages_in_images_need_no_environment(asked):
    assert run("--in-container") == 7
    assert asked["environments"] == []
    assert len(asked["images"]) == 2
    assert all(words[:2] == ["image", "stage"] for words in asked["stages"])


def test_a_stage_that_does_not_exist_is_refused(asked, capsys):
    with pytest.raises(SystemExit) as caught:
        run("--in-container", "cook")
    assert caught.value.code == ExitCode.USAGE
    said = capsys.readouterr().err
    assert [stage for stage in STAGES if stage not in said] == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_told_to_end_ends_its_stage_first(tmp_path, number):
    """The parent has no terminal: whoever signals it signals it alone."""
    stage = (
        "import pathlib, signal, sys, time\n"
        f"def ended(*_):\n    pathlib.Path({str(tmp_path / 'ended')!r}).touch()\n    sys.exit(3)\n"
        f"signal.signal({int(number)}, ended)\npathlib.Path({str(tmp_path / 'ready')!r}).touch()\ntime.sleep(60)\n"
    )
    code = (
        "import subprocess, sys\nfrom draftkiln import signals\n"
        f"with subprocess.Popen([sys.executable, '-c', {stage!r}]) as process, signals.passed_on(process):\n"
        "    sys.exit(process.wait())\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    until = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(timeout=60) == 3
    assert (tmp_path / "ended").exists()
