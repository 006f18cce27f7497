import pytest

from draftkiln.seams.inference import Engine
from draftkiln.seams.modules import Definition, External, Missing, ModuleIndex, ModuleRef, Opaque
from draftkiln.seams.values import Absent, ClassOf

FILES = {
    "vllm/__init__.py": "MODULE_ATTRS = {'LLM': '.entry.llm:LLM', 'gone': '.entry.llm:NoSuch'}\n"
    "import typing\nif typing.TYPE_CHECKING:\n    from vllm.entry.llm import Typed\n"
    "def __getattr__(name): ...\n",
    "vllm/entry/__init__.py": "from .llm import LLM as Renamed\nfrom .stars import *\nfrom vllm.entry import llm\n",
    "vllm/entry/llm.py": "class LLM: ...\nclass Typed: ...\nAlias = LLM\n"
    "import vllm.entry.stars as s\nThrough = s.public\n",
    "vllm/entry/stars.py": "__all__ = ['public', '_private']\ndef public(): ...\n"
    "def _private(): ...\ndef unlisted(): ...\n",
    "vllm/either.py": "try:\n    from fast import f\nexcept ImportError:\n    def f(): ...\n"
    "if FLAG:\n    g = 1\nelse:\n    def g(): ...\n",
    "vllm/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.entry.llm import LLM\n",
    "vllm/circle.py": "from vllm.circle2 import x\n",
    "vllm/circle2.py": "from vllm.circle import x\n",
    "vllm/over.py": "from typing import overload\n"
    "@overload\ndef f(a: int): ...\n@overload\ndef f(a: str): ...\ndef f(a, b): ...\n",
}


@pytest.fixture
def index(tree):
    return ModuleIndex(tree(FILES, "vllm-tree"), {"vllm"})


@pytest.mark.parametrize(
    ("module", "name", "where"),
    [
        ("vllm", "LLM", "vllm.entry.llm"),
        ("vllm.entry", "Renamed", "vllm.entry.llm"),
        ("vllm.entry", "public", "vllm.entry.stars"),
        ("vllm.entry", "_private", "vllm.entry.stars"),
        ("vllm.entry.llm", "Alias", "vllm.entry.llm"),
        ("vllm.entry.llm", "Through", "vllm.entry.stars"),
        ("vllm.either", "f", "vllm.either"),
    ],
)
def test_names_are_followed_to_their_definition(index, module, name, where):
    found = index.resolve(module, name)
    assert isinstance(found, Definition)
    assert found.module == where


def test_what_is_not_there_is_missing(index):
    assert isinstance(index.resolve("vllm", "gone"), Missing)
    assert isinstance(index.resolve("vllm", "never_named"), Missing)
    assert isinstance(index.resolve("vllm.entry", "unlisted"), Missing)
    assert isinstance(index.resolve("vllm.no_such_module", "x"), Missing)


def test_what_is_imported_for_types_only_is_not_there_at_run_time(index):
    assert isinstance(index.resolve("vllm.typed", "LLM"), Missing)
    assert isinstance(index.resolve("vllm.typed", "LLM", typing=True), Definition)
    assert isinstance(index.resolve("vllm", "Typed"), Definition)


def test_submodules_circles_and_other_packages(index):
    assert index.resolve("vllm", "entry") == ModuleRef("vllm.entry")
    assert index.resolve("vllm.entry", "llm") == ModuleRef("vllm.entry.llm")
    assert index.resolve("vllm.circle", "x") == Opaque()
    assert index.resolve("torch.nn", "Module") == External("torch.nn.Module")


def test_a_package_that_lies_beside_the_engine_stays_outside(tree):
    beside = {"torch/__init__.py": "", "torch/nn.py": "class Module:\n    def __getattr__(self, name): ...\n"}
    text = "from torch import nn\nclass Model(nn.Module): ...\n"
    sources = tree({"vllm/__init__.py": "", "vllm/a.py": text, **beside}, "site-packages")
    engine = Engine(ModuleIndex(sources, {"vllm"}))
    model = engine.result(engine.name("vllm.a", "Model"))
    assert isinstance(engine.attribute(model, "gone"), Absent)
    assert not isinstance(engine.attribute(model, "forward"), Absent)


def test_a_method_that_only_a_base_asks_for_is_not_there(tree):
    text = """
from abc import ABC, abstractmethod
class Interface(ABC):
    @abstractmethod
    def asked(self): ...
    def stub(self):
        \"\"\"Of subclasses.\"\"\"
        raise NotImplementedError
    def given(self): return 1
class Real(Interface):
    def other(self): ...
"""
    engine = Engine(ModuleIndex(tree({"vllm/__init__.py": "", "vllm/a.py": text}, "vllm-tree"), {"vllm"}))
    real, interface = (engine.result(engine.name("vllm.a", name)) for name in ("Real", "Interface"))
    assert isinstance(engine.attribute(real, "asked"), Absent)
    assert isinstance(engine.attribute(real, "stub"), Absent)
    assert not isinstance(engine.attribute(real, "given"), Absent)
    assert not isinstance(engine.attribute(interface, "asked"), Absent)


def test_of_overloads_the_last_definition_counts(index):
    engine = Engine(index)
    assert str(engine.signature(engine.name("vllm.over", "f"))) == "(a, b)"


def test_attributes_are_found_in_bases_properties_and_methods(tree):
    text = """
from torch import nn
from enum import Enum
class Base:
    flag: bool = True
    def helper(self): self.late = 1
class Child(Base, nn.Module):
    @property
    def total(self) -> int: ...
    def __init__(self):
        self.first, self.second = 1, Base()
class Colour(Enum):
    RED = 1
class Loose(Unseen): ...
"""
    engine = Engine(ModuleIndex(tree({"vllm/__init__.py": "", "vllm/a.py": text}, "vllm-tree"), {"vllm"}))
    child = engine.result(engine.name("vllm.a", "Child"))
    for name in ("flag", "helper", "late", "total", "first", "second", "forward", "register_forward_hook"):
        assert not isinstance(engine.attribute(child, name), Absent), name
    assert isinstance(engine.attribute(child, "nothing"), Absent)
    colour = engine.name("vllm.a", "Colour")
    assert isinstance(colour, ClassOf)
    assert not isinstance(engine.attribute(colour, "RED"), Absent)
    assert isinstance(engine.attribute(colour, "GREEN"), Absent)
    assert not isinstance(engine.attribute(engine.result(engine.name("vllm.a", "Loose")), "anything"), Absent)
