import shutil

import pytest

from draftkiln.containers import build, engine, inputs
from draftkiln.errors import DraftkilnError


@pytest.fixture(scope="session")
def podman():
    try:
        found = engine.find("podman")
    except DraftkilnError as error:
        pytest.skip(str(error))
    return found


@pytest.fixture(scope="session")
def light(podman):
    """The small image of the real Containerfile, built once."""
    if shutil.which("mmdebstrap") is None:
        pytest.skip("mmdebstrap is not installed")
    return build.build(podman, inputs.collect("light"))
