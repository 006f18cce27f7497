"""Several engines at a time: each pytest process has ports of its own, and tests that share an engine stay together."""

import os

import pytest

_FIRST_PORT, _PORTS, _PROCESSES = 20_000, 100, 120
"""Below the ports that the kernel hands out, so that nothing else takes one between vLLM's choice and its use."""


def pytest_configure(config: pytest.Config) -> None:
    """Give vLLM, which otherwise asks the kernel for a port and binds it later, the ports of this process."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker of pytest-xdist runs, if it is there")
    os.environ["VLLM_PORT"] = str(_FIRST_PORT + _PORTS * (os.getpid() % _PROCESSES))


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, and those of the series, which share their engines, on another."""
    for item in items:
        room = "series" if item.path.parent.name == "series" else item.path.name
        item.add_marker(pytest.mark.xdist_group(room))
