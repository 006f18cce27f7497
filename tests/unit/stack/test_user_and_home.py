import os
import pwd
from pathlib import Path

import pytest

from draftkiln import cache
from draftkiln.errors import SystemMissingError
from draftkiln.stack import identity


@pytest.fixture
def stranger(monkeypatch, tmp_path):
    """A uid that passwd does not know, with neither name nor home in its environment."""

    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for key in ("USER", "LOGNAME", "HOME"):
        monkeypatch.setenv(key, "x")
        monkeypatch.delenv(key)
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))


@pytest.mark.usefixtures("stranger")
def test_case_62_a_stranger_gets_a_name_and_a_home_beside_its_cache(tmp_path):
    assert identity.settings() == {"USER": "draftkiln", "LOGNAME": "draftkiln", "HOME": str(tmp_path)}


@pytest.mark.usefixtures("stranger")
def test_what_a_stranger_has_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "own"))
    monkeypatch.setenv("USER", "anna")
    assert identity.settings() == {"LOGNAME": "draftkiln"}


def test_a_known_user_gets_nothing(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    assert identity.settings() == {}


@pytest.mark.usefixtures("stranger")
@pytest.mark.parametrize("home", [None, "relative"])
@pytest.mark.parametrize("chosen", [None, "~/cache"])
def test_no_place_for_a_cache_is_told_with_what_to_set(monkeypatch, home, chosen):
    monkeypatch.delenv("DRAFTKILN_CACHE")
    if chosen:
        monkeypatch.setenv("DRAFTKILN_CACHE", chosen)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    with pytest.raises(SystemMissingError, match="no home directory") as caught:
        cache.root()
    assert "DRAFTKILN_CACHE" in caught.value.fix


def test_the_cache_is_in_the_home_or_where_it_was_chosen(monkeypatch, tmp_path):
    monkeypatch.delenv("DRAFTKILN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.root() == tmp_path / ".cache" / "draftkiln"
    monkeypatch.setenv("DRAFTKILN_CACHE", "~/mine")
    assert cache.root() == tmp_path / "mine"
    monkeypatch.setenv("DRAFTKILN_CACHE", "mine")
    assert cache.root() == Path(os.curdir, "mine").absolute()
