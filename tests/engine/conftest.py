"""Several engines at a time: each pytest process has ports of its own."""

import os

_FIRST_PORT, _PORTS, _PROCESSES = 20_000, 100, 120
"""Below the ports that the kernel hands out, so that nothing else takes one between vLLM's choice and its use."""


def pytest_configure() -> None:
    """Give vLLM, which otherwise asks the kernel for a port and binds it later, the ports of this process."""
    os.environ["VLLM_PORT"] = str(_FIRST_PORT + _PORTS * (os.getpid() % _PROCESSES))
