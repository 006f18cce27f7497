"""The whole path on a real GPU: the sink by itself, then a made target from extraction to both references."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.gpu


def run(*words, cwd=None):
    done = subprocess.run([sys.executable, *map(str, words)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("storage", ["bfloat16", "float8_e4m3fn"])
def test_files_hold_what_was_captured_byte_for_byte(tmp_path, storage):
    words = ["--steps", "8", "--writers", "4", "--rounds", "1", "--storage", storage]
    found = json.loads(run(HERE / "sink_on_cuda.py", tmp_path / "sink", *words).splitlines()[-1])
    assert found["equal"] == 8 * 8192 // 512


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run("-m", "draftkiln", "run", "--recipe", HERE / "tiny.yaml", "--run", folder, "--until", "extract")
    return folder


def test_tiny_states_have_their_shape_and_are_written_whole(extracted):
    told = run("-m", "draftkiln", "validate", "--recipe", HERE / "tiny.yaml", "--run", extracted, "--headers-only")
    assert "samples are good" in told
    results = json.loads((extracted / "extract" / "stage.json").read_text())["results"]
    assert results["shape"] == [512, 4, 7168]


@pytest.mark.parametrize("reference", ["transformers", "vllm"])
def test_tiny_states_agree(extracted, reference):
    words = ["--recipe", HERE / "tiny.yaml", "--run", extracted, "--against", reference]
    assert f"agree with {reference}" in run("-m", "draftkiln", "validate", *words)


def test_a_draft_is_learnt_and_followed(extracted):
    """The stages behind extraction, on the training stack: what is learnt is served, and changes no answer."""
    run("-m", "draftkiln", "run", "--recipe", HERE / "tiny.yaml", "--run", extracted)
    found = json.loads((extracted / "evaluate" / "result.json").read_text())
    assert found["lossless"]
    assert found["acceptance_length"] > max(1.3, found["unigram_length"])


def test_steps_wait_no_more_with_the_sink_than_without(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    words = ["targets/deepseek-v3-narrow", "--shape", "deepseek-v3-narrow", "--layers", "6"]
    run("-m", "draftkiln", "make-target", *words, cwd=folder)
    told = run(HERE / "step_profile.py", HERE / "narrow.yaml", _memory(tmp_path), cwd=folder)
    found = json.loads(told.split("PROFILE ")[-1].splitlines()[0])
    plain, extract = (waits_of_the_model(found[name]) for name in ("plain", "extract"))
    # A report of the sink may fall into a step; what every step did would show dozens of times.
    assert extract <= plain + 4
    # Copies run beside kernels.
    assert found["extract"]["both_seconds"] > 0.5 * found["extract"]["copy_seconds"]
    # What is held, after steps of each kind: the peak of an engine that has made no step yet is lower by a step's own.
    assert found["device_extract"]["allocated"] - found["device_plain"]["allocated"] < 1e9


def waits_of_the_model(profile):
    return sum(count for name, count in profile["waits"].items() if name.endswith("model thread"))


def _memory(folder):
    shared = Path("/dev/shm")
    return shared / f"draftkiln-{os.getpid()}" if shared.is_dir() else folder / "profile"
