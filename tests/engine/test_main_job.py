"""The main job on the small target (hidden size 256), through the command line, on the real engines."""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml
from safetensors import safe_open

from commandline import draftkiln
from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, samples

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
IDS = [2, 4, 5, 8]
SAMPLES, TOKENS, HIDDEN = 41, 128, 256


def recipe(**changes):
    content = yaml.safe_load((ROOT / "recipes" / "tiny-cpu.yaml").read_text())
    content["name"] = "small"
    content["target"]["source"] = {"make": "small", "seed": 17}
    content["data"] |= {"source": {"synthetic": SAMPLES, "seed": 1}, "max_tokens": TOKENS, "held_out": 4}
    content["extract"]["token_budget"] = 1000
    content["train"] |= {
        "draft": {"num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 256},
        "max_steps": 3,
    }
    content["evaluate"] |= {"prompts": 2, "max_tokens": 8}
    for path, value in changes.items():
        *sections, key = path.split("__")
        place = content
        for section in sections:
            place = place[section]
        place[key] = value
    return content


def stage(name, file, run):
    return draftkiln(name, "--recipe", file, "--run", run)


def write(folder, **changes):
    file = folder / "small.yaml"
    file.write_text(yaml.safe_dump(recipe(**changes)))
    return file


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Recipe and run directory after prepare, extract and validate."""
    folder = tmp_path_factory.mktemp("main-job")
    file = write(folder)
    for name in ("prepare", "extract", "validate"):
        result = stage(name, file, folder / "run")
        assert result.returncode == 0, result.stderr + result.stdout
    return file, folder / "run"


@pytest.fixture
def copy(done, tmp_path):
    """A copy of the finished run, to be damaged."""
    file, run = done
    shutil.copytree(run, tmp_path / "run")
    return file, tmp_path / "run"


def test_every_sample_is_there_with_the_shape_type_and_ids_of_the_recipe(done):
    _, run = done
    found = manifest.read(run / "extract" / manifest.FILE)
    assert list(found.head.layer_ids) == IDS
    assert sorted(found.receipts) == list(range(SAMPLES))
    for index in range(SAMPLES):
        with safe_open(run / "extract" / samples.FOLDER / samples.name(index), "numpy") as file:
            part = file.get_slice("hidden_states")
            assert (part.get_shape(), part.get_dtype()) == ([TOKENS, len(IDS), HIDDEN], "BF16")


def test_every_slot_of_eight_samples_agrees_with_transformers(done):
    _, run = done
    found = json.loads((run / "validate" / "report.json").read_text())["agreements"]
    assert len({agreement["index"] for agreement in found}) == 8
    assert {agreement["layer"] for agreement in found} == set(IDS)
    assert min(agreement["min_cosine"] for agreement in found) >= 0.9995
    last = [agreement["argmax"] for agreement in found if agreement["layer"] == IDS[-1]]
    assert min(last) >= 0.98


def test_case_8_the_comparison_fails_when_ids_are_shifted_by_one(copy):
    file, run = copy
    path = run / "extract" / manifest.FILE
    head, _, rest = path.read_text().partition("\n")
    path.write_text(json.dumps(json.loads(head) | {"layer_ids": [layer - 1 for layer in IDS]}) + "\n" + rest)
    shutil.rmtree(run / "validate")
    result = stage("validate", file, run)
    assert result.returncode == ExitCode.VALIDATION, result.stdout
    assert "layer 1" in result.stderr
    assert "cosine" in result.stderr


def test_a_sample_with_the_states_of_another_is_refused(copy):
    file, run = copy
    folder = run / "extract" / samples.FOLDER
    shutil.copyfile(folder / samples.name(1), folder / samples.name(2))
    shutil.rmtree(run / "validate")
    result = stage("validate", file, run)
    assert result.returncode == ExitCode.VALIDATION
    assert "hs_2.safetensors" in result.stderr


def test_a_stage_that_is_done_is_not_done_again(done):
    file, run = done
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    result = stage("extract", file, run)
    assert result.returncode == 0
    assert "done already" in result.stdout
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()} == before


def test_case_26_resume_makes_holes_and_cut_files_again_and_leaves_the_rest(copy):
    file, run = copy
    folder = run / "extract" / samples.FOLDER
    original = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / samples.name(3)).unlink()
    (folder / samples.name(7)).write_bytes(original[samples.name(7)][:100])
    (folder / ".hs_9.safetensors.tmp").write_bytes(b"torn")
    record = json.loads((run / "extract" / "stage.json").read_text())
    (run / "extract" / "begun.json").write_text(json.dumps({"schema_version": 1, "inputs": record["inputs"]}))
    (run / "extract" / "stage.json").unlink()
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    result = stage("extract", file, run)
    assert result.returncode == 0, result.stderr
    assert "2 of 41 samples to do" in result.stdout
    assert ".hs_9.safetensors.tmp" in result.stdout
    made = {samples.name(3), samples.name(7)}
    for path in folder.iterdir():
        if path.name not in made and path.name in original:
            assert path.stat().st_mtime_ns == kept[path]
    assert {name: (folder / name).stat().st_size for name in made} == {name: len(original[name]) for name in made}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"name": "other"}, ExitCode.RUN_DIRECTORY, ["belongs to another run", "small"]),
        ({"layers__aux": [1, 4, 5]}, ExitCode.RUN_DIRECTORY, ["recipe.layers", "[2, 4, 5]", "[1, 4, 5]"]),
        ({"layers__aux": [2, 4, 9]}, ExitCode.RECIPE, ["layers.aux", "outside 1..7"]),
        ({"layers__aux": [0, 4, 5]}, ExitCode.RECIPE, ["embeddings"]),
        ({"target__source": {"path": "no/such/folder"}}, ExitCode.TARGET, ["no/such/folder"]),
        ({"stacks__extract": "spec9"}, ExitCode.STACK, ["spec9", "known stacks"]),
    ],
)
def test_bad_input_is_told_and_nothing_is_lost(copy, tmp_path, changes, code, words):
    _, run = copy
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    result = stage("extract", write(tmp_path, **changes), run)
    assert result.returncode == code, result.stderr
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.stderr
    after = {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.is_file()}
    assert {path: after.get(path) for path in before} == before


@pytest.mark.skipif(len(os.sched_getaffinity(0)) >= 8, reason="this machine has the eight cores that are asked for")
def test_more_devices_than_there_are_is_refused(copy, tmp_path):
    _, run = copy
    shutil.rmtree(run / "extract")
    result = stage("extract", write(tmp_path, target__tensor_parallel_size=8), run)
    assert result.returncode == ExitCode.SYSTEM, result.stderr
    assert "tensor_parallel_size is 8" in result.stderr


def test_an_error_of_the_engine_is_one_line_of_cause_and_a_traceback_in_the_log(copy, tmp_path):
    _, run = copy
    target = tmp_path / "target"
    record = json.loads((run / "extract" / "stage.json").read_text())
    assert record
    shutil.copytree(_target(), target)
    for weights in target.glob("*.safetensors"):
        # Whole by its size, so that only the engine finds that a name is not one of its own.
        weights.write_bytes(weights.read_bytes().replace(b"embed_tokens", b"embed_tokenz"))
    fresh = tmp_path / "fresh"
    file = write(tmp_path, target__source={"path": str(target)})
    assert stage("prepare", file, fresh).returncode == 0
    result = stage("extract", file, fresh)
    assert result.returncode in (ExitCode.ENGINE, ExitCode.TARGET), result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.splitlines()[0].strip()
    if result.returncode == ExitCode.ENGINE:
        assert "Traceback" in (fresh / "logs" / "extract.log").read_text()


def _target():
    from draftkiln import cache
    from draftkiln.recipe.model import MakeTarget
    from draftkiln.target.resolve import ensure

    return ensure(MakeTarget(make="small", seed=17), cache.root() / "targets")
