"""Two real vLLM engines on this CPU as Ray actors: one manifest, samples that validate, as one host makes them."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

import commandline
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
SAMPLES, TOKENS = 48, 96


def draftkiln(*words):
    done = commandline.draftkiln(*words, DRAFTKILN_STACK="")
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_two_engines_make_the_run_that_one_makes(tmp_path):
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["name"] = "two-replicas"
    content["target"]["source"] = {"make": "small", "seed": 17}
    content["data"] |= {"source": {"synthetic": SAMPLES, "seed": 1}, "max_tokens": TOKENS, "held_out": 16}
    content["extract"]["token_budget"] = 200
    recipe, run, alone = tmp_path / "recipe.yaml", tmp_path / "run", tmp_path / "alone"
    recipe.write_text(yaml.safe_dump(content))
    draftkiln("prepare", "--recipe", recipe, "--run", run)
    shutil.copytree(run, alone)
    said = draftkiln("extract", "--recipe", recipe, "--run", run, "--ray", "local", "--replicas", 2)
    assert said.count("computes on host") == 2, said
    draftkiln("validate", "--recipe", recipe, "--run", run)
    draftkiln("extract", "--recipe", recipe, "--run", alone)
    found, wanted = (manifest.read(path / "extract" / manifest.FILE) for path in (run, alone))
    assert found.head == wanted.head
    assert sorted(found.receipts) == list(range(SAMPLES))
    for index, receipt in wanted.receipts.items():
        # Other samples beside it in a step may change the last bits of a state, and so the checksum alone.
        assert replace(found.receipts[index], checksum=receipt.checksum) == receipt
    names = {path.name for path in (run / "extract" / samples.FOLDER).iterdir()}
    assert names == {samples.name(index) for index in range(SAMPLES)}
    assert not (run / "extract" / "replicas").exists()
    assert "done already" in draftkiln("extract", "--recipe", recipe, "--run", run, "--ray", "local")
