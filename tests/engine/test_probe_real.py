"""The probe on the real engine: speculators as released, patched, and patched but for one thing.

`$DRAFTKILN_ENGINE_PYTHON` names an interpreter that has the engine, `$DRAFTKILN_BASE_WHEEL` a pristine wheel; both are
found through the stack otherwise.
"""

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from draftkiln import cache
from draftkiln.patches import base, queue, wheel
from draftkiln.seams.engines import download
from draftkiln.seams.probe_command import probe
from draftkiln.stack import environment, model

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
STACK = os.environ.get("DRAFTKILN_ENGINE_STACK", "spec0.3.0-vllm0.16.0-cpu")


@pytest.fixture(scope="module")
def run():
    """Runs the probe of a tree."""
    named = os.environ.get("DRAFTKILN_ENGINE_PYTHON")
    if named:
        python, variables = Path(named), {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    else:
        found = environment.ensure(STACK)
        python, variables = found.python, found.variables()
    return lambda tree: probe(python, variables, tree)


def unpacked(file, folder):
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def pristine():
    named = os.environ.get("DRAFTKILN_BASE_WHEEL")
    sha256 = model.read(STACK).locked().base_wheel_sha256
    return Path(named) if named else base.base_wheel("speculators", "0.3.0", sha256, cache.root())


@pytest.fixture(scope="module")
def patched(pristine, tmp_path_factory):
    series = queue.load_series(ROOT / "patches" / "speculators", STACK)
    built = wheel.build(pristine, series, tmp_path_factory.mktemp("wheel"))
    return unpacked(built.path, tmp_path_factory.mktemp("patched"))


def test_the_released_0_3_0_shows_every_break_in_one_run_and_case_37_only_once_a_block_is_full(run, pristine, tmp_path):
    report = run(unpacked(pristine, tmp_path))
    found = {item.number: item for item in report.findings}
    assert set(found) == {1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 14}
    assert found[7].scenario.startswith("prompts around the block size")
    assert "block_hashes" in found[7].seen
    assert found[11].scenario == "18 prompts of 500 tokens, budget 8192"


def test_the_released_0_4_0_1_shows_breaks_12_and_13(run, tmp_path):
    report = run(unpacked(download("speculators", "0.4.0.1"), tmp_path))
    assert {item.number for item in report.findings} == {3, 12, 13, 14}


def test_the_patched_tree_shows_nothing(run, patched):
    report = run(patched)
    assert report.findings == ()
    print(f"import {report.import_seconds} s, probe {report.probe_seconds} s")


def test_case_55_a_capture_without_the_residual_is_found(run, patched, tmp_path):
    tree = tmp_path / "broken"
    shutil.copytree(patched, tree)
    worker = tree / "speculators" / "data_generation" / "custom_worker.py"
    text = worker.read_text()
    assert text.count("output[0] + output[1]") == 1
    worker.write_text(text.replace("output[0] + output[1]", "output[0]"))
    report = run(tree)
    assert any("wrong rows" in item.seen for item in report.findings)
