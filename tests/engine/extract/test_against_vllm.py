"""States beside those of vLLM itself: the build that extracted, unpatched, and a later one that serves drafts."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from commandline import draftkiln
from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[3]
SERVING = "spec0.9.0-vllm0.32.0-cpu"


@pytest.fixture(scope="module")
def extracted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("against")
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["name"] = "against"
    content["target"]["source"] = {"make": "small", "seed": 17}
    content["data"] |= {"source": {"synthetic": 24, "seed": 1}, "max_tokens": 96, "held_out": 16}
    content["extract"]["token_budget"] = 200
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump(content))
    words = ("--recipe", file, "--run", folder / "run")
    for stage in ("prepare", "extract"):
        done = draftkiln(stage, *words)
        assert done.returncode == 0, done.stderr
    return folder / "run", words


@pytest.mark.parametrize(
    ("stack", "taken"), [(None, "as its layers put them out"), (SERVING, "as it would hand them to a draft")]
)
def test_case_8_states_are_those_of_vllm_itself_under_its_own_ids(extracted, stack, taken):
    run, words = extracted
    done = draftkiln("validate", *words, "--against", "vllm", *(["--stack", stack] if stack else []))
    assert done.returncode == 0, done.stderr
    assert taken in done.stdout
    found = json.loads((run / "validate" / "against-vllm.json").read_text())["agreements"]
    assert {agreement["layer"] for agreement in found} == {2, 4, 5, 8}
    assert min(agreement["nearest"] for agreement in found) == 1
    assert not (run / "validate" / "stage.json").exists()


def test_case_8_states_of_the_layer_before_are_refused(extracted):
    run, words = extracted
    path = run / "extract" / samples.FOLDER / samples.name(0)
    original, entry = path.read_bytes(), samples.header(path)["hidden_states"]
    start = 8 + int.from_bytes(original[:8], "little") + entry["data_offsets"][0]
    states = np.frombuffer(original, dtype="<u2", offset=start).reshape(entry["shape"]).copy()
    states[:, 1] = states[:, 0]
    path.write_bytes(original[:start] + states.tobytes())
    try:
        done = draftkiln("validate", *words, "--against", "vllm")
    finally:
        path.write_bytes(original)
    assert done.returncode == ExitCode.VALIDATION
    assert "hs_0.safetensors: layer 4, row" in done.stderr
    assert "to vllm, at least 0.9995 wanted" in done.stderr
    assert samples.checksum(path) == manifest.read(run / "extract" / manifest.FILE).receipts[0].checksum
