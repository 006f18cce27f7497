import sys

import pytest

from draftkiln.errors import StackError
from draftkiln.stack import environment

NAME = "spec0.4.0.1-vllm0.20.2-cu130"


def test_an_installed_bundle_is_its_own_environment(tmp_path, monkeypatch):
    (tmp_path / "speculators").mkdir()
    (tmp_path / "speculators" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(environment.ACTIVE, NAME)
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    found = environment.ensure(NAME)
    assert (str(found.python), found.overlay) == (sys.executable, tmp_path)
    assert found.variables()[environment.ACTIVE] == NAME
    assert not (tmp_path / "cache").exists()


def test_a_bundle_without_speculators_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv(environment.ACTIVE, NAME)
    with pytest.raises(StackError, match="speculators is not installed here"):
        environment.ensure(NAME)
