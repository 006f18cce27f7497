"""Two engines at a time: each worker of pytest-xdist has ports of its own, and tests that share an engine stay together."""

import os

import pytest

_FIRST_PORT, _PORTS = 21000, 200
"""Below the ports that the kernel hands out, so that nothing else takes one between vLLM's choice and its use."""


def pytest_configure(config: pytest.Config) -> None:
    """Give vLLM, which otherwise asks the kernel for a port and binds it later, the ports of this worker."""
    config.addinivalue_line("markers", "xdist_group(name): tests that one worker of pytest-xdist runs, where it is there")
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    os.environ.setdefault("VLLM_PORT", str(_FIRST_PORT + _PORTS * int(worker)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests on one worker, and those of the series, which share their engines, on another."""
    for item in items:
        room = "series" if item.path.parent.name == "series" else item.path.name
        item.add_marker(pytest.mark.xdist_group(room))
