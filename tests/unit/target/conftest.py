import pytest

from draftkiln.target.make import make


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    return make("small", 17, tmp_path_factory.mktemp("targets") / "small")
