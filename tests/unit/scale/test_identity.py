"""What a replica runs on, by hash of its own files."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftkiln.errors import StackError, UsageError
from draftkiln.scale import identity, places
from draftkiln.scale.places import Start
from draftkiln.stack import model


def test_the_tree_of_a_package_is_the_one_that_git_makes(tmp_path):
    package = tmp_path / "package"
    for name, text in {"a.py": "1", "a-b.py": "", "a/x.py": "2", "a/y/z.txt": "3", "a0.py": "4", "Z.py": "5"}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)

    def git(*words):
        return subprocess.run(["git", *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "-q")
    git("add", "package")
    wanted = git("write-tree")
    assert identity.package_tree(package) == wanted
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "a.pyc").write_text("no part of it")
    assert identity.package_tree(package) == wanted
    (package / "a" / "x.py").write_text("22")
    assert identity.package_tree(package) != wanted


def test_versions_that_are_not_the_locked_ones_are_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    stack = SimpleNamespace(requirements=lock)
    version = sys.modules["pytest"].__version__
    lock.write_text(f"pytest=={version} \\\n    --hash=sha256:{'0' * 64}\n")
    assert identity.packages(stack) == "as locked"
    lock.write_text(f"pytest==0.1 --hash=sha256:{'0' * 64}\nno-such-thing==2 --hash=sha256:{'0' * 64}\n")
    assert identity.packages(stack) == f"2 differ: no-such-thing absent, locked 2; pytest {version}, locked 0.1"


def context(name):
    lock = model.read(name).locked()
    recipe = SimpleNamespace(target=SimpleNamespace(dtype="bfloat16"), extract=SimpleNamespace(storage="bfloat16"))
    inputs = {"stack": name, "requirements": lock.requirements_sha256, "speculators": lock.patched_wheel_sha256}
    return SimpleNamespace(stack=name, device="cuda", recipe=recipe, inputs=inputs)


def test_each_difference_of_a_host_is_told_by_name(monkeypatch, tmp_path):
    here = context("spec0.3.0-vllm0.16.0-cu128")
    wanted = identity.expected(here)
    assert identity.differing(wanted, dict(wanted)) == []
    there = {**wanted, "patched_tree": "f00", "packages": "1 differ: torch 2.9.0, locked 2.9.1", "draftkiln": "d"}
    told = identity.differing(wanted, there)
    assert [text.split(":")[0] for text in told] == ["draftkiln", "packages", "patched_tree"]
    assert "'as locked' wanted, '1 differ: torch 2.9.0, locked 2.9.1' there" in told[1]

    package = tmp_path / "speculators"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = identity.found(here)
    differing = [text.split(":")[0] for text in identity.differing(wanted, found)]
    assert differing == ["packages", "patched_tree"]
    assert found["patched_tree"] == identity.package_tree(package)


def test_a_host_without_speculators_says_so(monkeypatch):
    monkeypatch.setattr(identity.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(StackError, match="speculators is not installed on host"):
        identity.found(context("spec0.3.0-vllm0.16.0-cu128"))


def test_a_replica_is_started_from_an_installed_bundle(tmp_path):
    (tmp_path / "env.sh").write_text("export DRAFTKILN_STACK='s'\nexport PYTHONPATH='/a b'\n")
    start = Start("s", f"bundle:{tmp_path}", "", "/run", "/", executor="ray", variables={"X": "1"})
    found = places.program(start, Path("/r.yaml"), "n")
    assert found.command == [
        sys.executable, "-m", "draftkiln", "replica", "--recipe", "/r.yaml", "--run", "/run", "--replica", "n",
        "--executor", "ray",
    ]  # fmt: skip
    assert (found.variables["PYTHONPATH"], found.variables["DRAFTKILN_STACK"], found.variables["X"]) == (
        "/a b",
        "s",
        "1",
    )
    with pytest.raises(StackError, match="no installed bundle"):
        places.program(Start("s", "bundle:/nowhere", "", "/run", "/"), Path("/r.yaml"), "n")


@pytest.mark.parametrize("place", ["stack", "image", "bundle:/opt/kiln"])
def test_places_that_there_are(place):
    places.check(place)


@pytest.mark.parametrize("place", ["", "bundle:", "venv", "Image"])
def test_places_that_there_are_not(place):
    with pytest.raises(UsageError):
        places.check(place)
