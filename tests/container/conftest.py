"""A real engine; where it is missing or does not run, these tests fail: who asks for them wants to know."""

import pytest

from draftkiln.containers import build, engine, inputs
from draftkiln.errors import DraftkilnError


@pytest.fixture(scope="session")
def podman():
    try:
        return engine.find("podman")
    except DraftkilnError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session")
def light(podman):
    """The small image of the real Containerfile, built once."""
    return build.build(podman, inputs.collect("light"))
