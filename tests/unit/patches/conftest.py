import shutil

import pytest
from fake_releases import RELEASES, Project, make_project

from draftkiln.errors import NetworkError
from draftkiln.patches import base


@pytest.fixture(scope="session")
def released(tmp_path_factory):
    """An empty queue and three releases, made once and copied for each test."""
    return make_project(tmp_path_factory.mktemp("released"), RELEASES)


@pytest.fixture
def project(released, tmp_path, monkeypatch):
    shutil.copytree(released.root.parent, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("DRAFTKILN_HOME", str(tmp_path / "project"))
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(base, "_download", _no_network)
    return Project(tmp_path / "project", tmp_path / "cache")


def _no_network(pin, _folder):
    raise NetworkError(f"cannot download {pin}", why="a unit test")
