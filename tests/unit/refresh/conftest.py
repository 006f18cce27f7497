import sys
from pathlib import Path

# The small speculators and the two small engines of the seams' tests serve here as well.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "seams"))

import fake_index
import pytest

from draftkiln.refresh import web


@pytest.fixture(scope="session")
def uv_cache(tmp_path_factory):
    """One for all tests: uv looks at this machine's Pythons when it has none."""
    return tmp_path_factory.mktemp("uv")


@pytest.fixture
def index(tmp_path, monkeypatch, uv_cache):
    """A fake index that uv is set to as well, an empty cache, and no patience."""
    with fake_index.serving() as served:
        monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("UV_DEFAULT_INDEX", f"{served.url}/simple")
        monkeypatch.setenv("UV_CACHE_DIR", str(uv_cache))
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        monkeypatch.setenv("UV_HTTP_TIMEOUT", "4")
        monkeypatch.setenv("UV_NO_CONFIG", "1")
        for name in ("UV_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS", "UV_EXTRA_INDEX_URL", "UV_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(web, "SILENCE_S", 2.0)
        yield served
