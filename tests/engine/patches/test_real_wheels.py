"""The queue's tools on the released wheels of speculators, out of the cache or the index."""

import os

import pytest

from draftkiln import cache
from draftkiln.errors import ProblemsError
from draftkiln.patches import apply, queue, wheel
from draftkiln.patches.base import base_wheel
from draftkiln.patches.repository import Repository

pytestmark = pytest.mark.engine

SHA256 = {
    "0.3.0": "10e67b28fd7a09b3f2a0c522ac0ec5d9f459c4021f7bf7e6b32413e551995f73",
    "0.4.0": "dd1ee839c9966b8ff85911f60d2155746d4a3f61c7f76e9dce76466409e32861",
    "0.4.0.1": "e880958ecbec6b8d59854f846937d20576c73ecfaa5844382afcf0d4a6630f0b",
    "0.9.0": "f0de7571274ce996d769ce81240379728dcb38701f77d2d34cfd0d670d1b4481",
}
GENERATOR = "speculators/data_generation/vllm_hidden_states_generator.py"
HEADER = """\
From: A Person <a@example.org>
Date: Sun, 29 Nov 2026 12:00:00 +0000
Subject: Load the tokenizer's own code and copy results

The tokenizer asks on the terminal. Only a patch reaches the call.

Upstream-Status: Inappropriate [upstream removed the file]
Origin: draftkiln
Base: speculators==0.4.0.1
Check: tests/test_it.py::test_it
Drop-When: no stack uses it

"""


def release(version):
    path = base_wheel("speculators", version, SHA256[version], cache.root())
    return wheel.read(path, sha256=SHA256[version])


@pytest.fixture
def two_hunks(tmp_path):
    """A patch made on 0.4.0.1: the tokenizer's line, then the loop over results."""
    found = release("0.4.0.1")
    text = found.package[GENERATOR].decode()
    edited = text
    for old, new in [
        ("Tokenizer.from_pretrained(model_path)", "Tokenizer.from_pretrained(model_path, trust_remote_code=True)"),
        ("for req_id in sorted(request_id_to_idx.keys()):", "for req_id in request_id_to_idx:"),
    ]:
        if edited.count(old) != 1:
            pytest.fail(f"{old!r} stands {edited.count(old)} times in 0.4.0.1")
        edited = edited.replace(old, new)
    with Repository.throwaway() as repository:
        before = repository.add_base("before", found.package)
        after = repository.add_base("after", {**found.package, GENERATOR: edited.encode()})
        diff = repository.diff(before, after)
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "s").write_text("two-hunks\n")
    (tmp_path / "two-hunks.patch").write_text(HEADER + diff)
    return queue.load_series(tmp_path, "s")


def test_case_12_a_patch_for_0_4_0_1_is_refused_whole_on_0_3_0(two_hunks, tmp_path):
    assert wheel.build(release("0.4.0.1").path, two_hunks, tmp_path / "out").path.exists()
    with pytest.raises(ProblemsError) as caught:
        wheel.build(release("0.3.0").path, two_hunks, tmp_path / "other")
    assert f"hunk 2 of {GENERATOR}" in str(caught.value)
    assert not (tmp_path / "other").exists()


def test_case_1_releases_without_the_files_are_told_as_such(two_hunks, tmp_path):
    with pytest.raises(ProblemsError) as caught:
        wheel.build(release("0.9.0").path, two_hunks, tmp_path / "out")
    assert f"{GENERATOR} is not in speculators 0.9.0: target removed upstream" in str(caught.value)


@pytest.mark.parametrize("stack", ["spec0.4.0.1-vllm0.16.0-cpu", "spec0.4.0.1-vllm0.32.0-cpu"])
def test_0_4_0_shares_the_series_of_0_4_0_1(stack):
    series = queue.load_series(queue.queue_folder(), stack)
    older, newer = (
        apply.apply_series(release(version).package, version, series.patches(version)).changed
        for version in ("0.4.0", "0.4.0.1")
    )
    assert older == newer


@pytest.mark.parametrize("version", SHA256)
def test_an_empty_series_leaves_every_file_and_says_so(version, tmp_path):
    (tmp_path / "series").mkdir()
    (tmp_path / "series" / "none").write_text("# nothing\n")
    found = release(version)
    built = wheel.build(found.path, queue.load_series(tmp_path, "none"), tmp_path)
    assert built.tree == apply.tree_hash(found.package)


def test_building_a_wheel_takes_less_than_three_seconds(two_hunks, tmp_path):
    found = release("0.4.0.1")
    began = sum(os.times()[:4])
    wheel.build(found.path, two_hunks, tmp_path)
    # Processor time, git's included: other work on the machine does not count.
    assert sum(os.times()[:4]) - began < 3
