import re

import pytest

from draftkiln import checkout
from draftkiln.containers import context
from draftkiln.containers.locked import Locked

TEXT = (checkout.root() / "containers" / "Containerfile").read_text()
CODE = "\n".join(line for line in TEXT.splitlines() if not line.startswith("#"))
STEPS = sorted((checkout.root() / "containers" / "steps").glob("*.sh"))


def test_case_64_nothing_that_a_builder_lacks():
    assert "<<" not in CODE
    assert not re.search(r"^SHELL\b", CODE, re.MULTILINE)
    assert not re.search(r"RUN .*--network", CODE)
    assert not TEXT.startswith("# syntax")
    assert "pipefail" not in CODE


@pytest.mark.parametrize("step", STEPS, ids=lambda path: path.name)
def test_case_64_steps_are_plain_sh(step):
    text = step.read_text()
    assert "set -eu" in text
    assert not re.search(r"\[\[|pipefail|<\(|\bfunction\b|\bsource\b", text)


def test_case_64_every_outside_base_has_registry_and_digest():
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", CODE, re.MULTILINE))
    default = re.search(r"^ARG BASE=(\S+)", CODE, re.MULTILINE)[1]
    for image in re.findall(r"^FROM (\S+)", CODE, re.MULTILINE):
        image = default if image == "${BASE}" else image  # noqa: PLW2901
        assert image in stages | {"scratch"} or re.search(r"^[a-z0-9.-]+/.+@sha256:[0-9a-f]{64}$", image), image


def test_case_34_entrypoint_user_and_stop_signal_are_ours():
    assert 'ENTRYPOINT ["draftkiln"]' in CODE
    assert re.search(r"^USER \d+:\d+$", CODE, re.MULTILINE)
    assert re.search(r"^STOPSIGNAL SIGTERM$", CODE, re.MULTILINE)


def test_case_35_no_resolver_and_no_network_in_any_step():
    for step in STEPS:
        for line in step.read_text().replace("\\\n", "").splitlines():
            if "pip install" in line:
                assert {"--no-index", "--no-deps", "--require-hashes", "--no-build"} <= set(line.split()), line


def test_every_input_that_podmans_cache_cannot_see_is_an_argument():
    stages = CODE.split("FROM ")
    for stage in stages:
        if "--mount=type=bind" in stage:
            assert "ARG STEPS_SHA256" in stage
            assert "_SHA256" in stage.replace("STEPS_SHA256", "")


def test_parts_of_the_environment_hold_every_package_once():
    names = ("nvidia-cublas", "nvidia-cudnn-cu12", "nvidia-nccl-cu12", "numpy", "torch", "triton", "vllm")
    found = context.parts([Locked(name, "1.0", frozenset("a")) for name in names])
    assert {part: [package.name for package in items] for part, items in found.items()} == {
        "cudnn": ["nvidia-cublas", "nvidia-cudnn-cu12"],
        "nvidia": ["nvidia-nccl-cu12"],
        "torch": ["torch", "triton"],
        "rest": ["numpy", "vllm"],
    }
