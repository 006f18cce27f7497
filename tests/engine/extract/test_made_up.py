"""Weights that the real engine made up: states that differ from layer to layer, and are the same at the next start."""

from pathlib import Path

import pytest
import yaml

from commandline import draftkiln
from draftkiln.extract import manifest

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[3]


def test_states_of_made_up_weights_are_good_and_the_same_at_every_start(tmp_path):
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["target"]["load_format"] = "dummy"
    content["validate"] = {"against": None}
    content["data"] |= {"source": {"synthetic": 6, "seed": 1}, "max_tokens": 96, "held_out": 16}
    file = tmp_path / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    checksums = []
    for name in ("one", "other"):
        done = draftkiln("run", "--recipe", file, "--run", tmp_path / name, "--until", "validate")
        assert done.returncode == 0, done.stderr
        assert "slots differ" in done.stdout
        found = manifest.read(tmp_path / name / "extract" / manifest.FILE).receipts
        checksums.append({index: receipt.checksum for index, receipt in found.items()})
    assert checksums[0] == checksums[1]
