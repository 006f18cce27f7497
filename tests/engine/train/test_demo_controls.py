"""Controls that show that the acceptance length can fail: a draft that cannot see the states is not accepted.

On the small run of this folder, or on any finished run directory:

    DRAFTKILN_RUN=runs/tiny-cpu DRAFTKILN_RECIPE=recipes/tiny-cpu.yaml nox -s train_tests -- -k controls
"""

import io
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftkiln import cache
from draftkiln.evaluate.evaluation import evaluate_draft
from draftkiln.export.command import _export
from draftkiln.recipe.load import load
from draftkiln.rundir import RunDirectory
from draftkiln.stage import Context
from draftkiln.stagelog import Terminal
from draftkiln.target import facts
from draftkiln.target.resolve import ensure
from draftkiln.train.command import _train

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def finished(request: pytest.FixtureRequest) -> Context:
    """The run named by DRAFTKILN_RUN, or the small one."""
    if "DRAFTKILN_RUN" not in os.environ:
        request.getfixturevalue("exported")
        small: Context = request.getfixturevalue("small").context()
        return small
    recipe = load(Path(os.environ["DRAFTKILN_RECIPE"]))
    target = ensure(recipe.target.source, cache.root() / "targets")
    run = RunDirectory(Path(os.environ["DRAFTKILN_RUN"]).absolute())
    run.require("export")
    return Context(recipe, run, target, facts.read(target), recipe.stacks.evaluate, {}, "cpu")


def length(finished: Context, draft: Path, folder: Path) -> float:
    results = evaluate_draft(finished, Terminal(io.StringIO()), draft, folder)
    assert results["lossless"]
    return float(results["acceptance_length"])


def test_controls_the_draft_as_trained_is_accepted(finished: Context, tmp_path: Path) -> None:
    assert length(finished, finished.run.path / "export" / "vllm", tmp_path) >= 2.0


def test_controls_shuffled_fusion_weights_are_not_accepted(finished: Context, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    shutil.copytree(finished.run.path / "export" / "vllm", draft)
    tensors = load_file(draft / "model.safetensors")
    columns = torch.randperm(tensors["fc.weight"].shape[1], generator=torch.Generator().manual_seed(0))
    tensors["fc.weight"] = tensors["fc.weight"][:, columns].contiguous()
    save_file(tensors, draft / "model.safetensors")
    assert length(finished, draft, tmp_path / "out") < 1.3


def test_controls_a_draft_trained_on_zeroed_states_is_not_accepted(finished: Context, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished.run.path / "extract", run / "extract", ignore=shutil.ignore_patterns("*.safetensors"))
    for stage in ("prepare", "validate"):  # as if these states had passed: the trainer is to learn from nothing
        (run / stage).symlink_to(finished.run.path / stage)
    for file in (finished.run.path / "extract" / "hidden_states").glob("hs_*.safetensors"):
        tensors = load_file(file)
        tensors["hidden_states"][:, :-1] = 0  # the last slot only tells the trainer what the target answers
        save_file(tensors, run / "extract" / "hidden_states" / file.name)
    blind = Context(finished.recipe, RunDirectory(run), finished.target, finished.facts, finished.stack, {}, "cpu")
    for stage, body in (("train", _train), ("export", _export)):
        blind.run.finish(stage, {}, body(blind, Terminal(io.StringIO())))
    assert length(finished, run / "export" / "vllm", tmp_path / "out") < 1.5
