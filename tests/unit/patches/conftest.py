import pytest
from fake_releases import RELEASES, Project


@pytest.fixture
def project(tmp_path, monkeypatch):
    found = Project(tmp_path / "project", tmp_path / "cache")
    (found.queue / "series").mkdir(parents=True)
    (found.root / "containers" / "stacks").mkdir(parents=True)
    (found.root / "tests").mkdir()
    (found.root / "tests" / "test_it.py").write_text("def test_it():\n    pass\n")
    monkeypatch.setenv("DRAFTKILN_HOME", str(found.root))
    monkeypatch.setenv("DRAFTKILN_CACHE", str(found.cache))
    for version, files in RELEASES.items():
        found.release(version, files)
    return found
