"""What a name and a signature do not show: coroutines, properties, moved arguments, frozen and abstract classes."""

import pytest

from draftkiln.seams.check import check, with_baseline
from draftkiln.seams.extract import extract
from draftkiln.seams.model import from_json, to_json

ENGINE = """\
import enum
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass

@dataclass
class Output:
    tokens: int = 0
    rows: dict[str, int] = None

@dataclass
class Config:
    blocks: int = 0
    limit: int = 1

class Interface(ABC):
    @abstractmethod
    def add(self, request) -> None: ...

class Scheduler(Interface):
    def __init__(self, config): self.config = config
    def add(self, request) -> None: ...
    def finish(self, ids, status) -> list[str]: return []
    def schedule(self) -> Output: return Output()

def groups(specs, size=1) -> list[int]: return []
def settle(spec): ...
"""
USER = """\
from vllm.engine import Config, Scheduler, groups, settle

config = Config(limit=2)
config.blocks = 3
scheduler = Scheduler(config=config)
settle(groups({}, 2))
scheduler.add("a")
scheduler.finish(["a"], 1)
output = scheduler.schedule()
print(output.tokens, output.rows["a"])
"""
BREAKS = [
    ("    def schedule", "    async def schedule", "return changed", "gives a coroutine now"),
    (
        "    def add(self, request) -> None: ...\n    def f",
        "    async def add(self, request): ...\n    def f",
        "return changed",
        "add gives",
    ),
    ("return []\n    def s", "yield\n    def s", "return changed", "finish gives a generator now"),
    ("list[int]: return []", "list[int]: yield 1", "return changed", "groups gives a generator now"),
    ("def settle", "@contextmanager\ndef settle", "return changed", "settle gives a context manager now"),
    ("    def schedule", "    @property\n    def schedule", "not callable", "schedule is no function any more"),
    ("def settle(spec): ...", "def settle(spec): ...\nsettle = None", "not callable", "settle is no function any more"),
    ("def settle(spec): ...", "def settle(spec): ...\ndel settle", "gone", "settle is gone"),
    ("ids, status", "status, ids", "argument moved", "argument 1 was ids, is status"),
    ("specs, size=1", "device=None, specs=None, size=1", "argument moved", "argument 1 was specs, is device"),
    ("    tokens: int = 0", "    def tokens(self) -> int: ...", "return changed", "Output.tokens is a method now"),
    (
        "    blocks: int = 0",
        "    @property\n    def blocks(self) -> int: ...",
        "read-only",
        "Config.blocks cannot be set",
    ),
    ("@dataclass\nclass Config", "@dataclass(frozen=True)\nclass Config", "read-only", "Config.blocks cannot be set"),
    ("def schedule", "@abstractmethod\n    def reset(self): ...\n    def schedule", "abstract", "abstract reset"),
    ("-> Output: return Output()", "-> tuple[Output, int]: ...", "gone", "tokens is gone"),
]
HARMLESS = [
    ("specs, size=1", "spec, size=1"),
    ("    tokens: int = 0", "    @property\n    def tokens(self) -> int: ..."),
    (
        "    blocks: int = 0",
        "    @property\n    def blocks(self) -> int: ...\n    @blocks.setter\n    def blocks(self, value): ...",
    ),
    ("class Scheduler(Interface):", "class Mixin:\n    def reset(self): ...\nclass Scheduler(Mixin, Interface):"),
    ("def settle", "try:\n    from other import fast\nexcept ImportError:\n    fast = None\ndef settle"),
    ("    def schedule(self)", "    def schedule(self, throttle=False)"),
]


@pytest.fixture
def seams(tree, speculators):
    old = tree({"vllm/__init__.py": "", "vllm/engine.py": ENGINE}, "old")
    return with_baseline(extract(speculators(generator=USER, worker=""), series="x"), old, "vllm 1")


def later(tree, before, after):
    assert ENGINE.count(before) == 1
    changed = ENGINE.replace(before, after)
    compile(changed, "engine.py", "exec")
    return tree({"vllm/__init__.py": "", "vllm/engine.py": changed}, "later")


@pytest.mark.parametrize(("before", "after", "severity", "what"), BREAKS)
def test_a_break_that_neither_name_nor_signature_shows_is_found(seams, tree, before, after, severity, what):
    found = [item for item in check(seams, later(tree, before, after)).breaks if item.breaks]
    assert [item for item in found if item.severity == severity and what in item.what], found


@pytest.mark.parametrize(("before", "after"), HARMLESS)
def test_what_changes_nothing_for_the_user_is_no_break(seams, tree, before, after):
    assert [item for item in check(seams, later(tree, before, after)).breaks if item.breaks] == []


def test_a_renamed_parameter_that_is_given_by_position_deserves_a_look(seams, tree):
    (found,) = check(seams, later(tree, "specs, size=1", "spec, size=1")).breaks
    assert (found.severity, found.breaks) == ("argument renamed", False)


def test_a_list_without_a_baseline_still_tells_what_needs_none(tree, speculators):
    bare = extract(speculators(generator=USER, worker=""), series="x")
    frozen = later(tree, "@dataclass\nclass Config", "@dataclass(frozen=True)\nclass Config")
    assert {item.severity for item in check(bare, frozen).breaks} == {"read-only"}


def test_what_a_list_says_of_forms_survives_its_file(seams, tmp_path):
    file = tmp_path / "seams.json"
    file.write_text(to_json(seams))
    assert from_json(file) == seams
