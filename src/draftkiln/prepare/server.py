"""The stack's own OpenAI-compatible vLLM server: on a free port of this host, ready or explained, always stopped."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from draftkiln import signals
from draftkiln.cause import last_error
from draftkiln.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

HOST = "127.0.0.1"
MODEL = "target"
"""Name under which the server serves the target."""
_START_LIMIT_S = 3600.0
_STOP_LIMIT_S = 30.0
_POLL_S = 0.5
_LOG_TAIL_BYTES = 20_000


def command(
    target: Path, port: int, *, max_model_len: int, max_num_seqs: int, options: tuple[str, ...] = ()
) -> list[str]:
    """Argument list that starts the server."""
    return [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server",
        "--model", str(target),
        "--served-model-name", MODEL,
        "--host", HOST,
        "--port", str(port),
        "--max-model-len", str(max_model_len),
        "--max-num-seqs", str(max_num_seqs),
        *options,
    ]  # fmt: skip


@contextlib.contextmanager
def running(
    target: Path,
    log: Path,
    *,
    max_model_len: int,
    max_num_seqs: int,
    options: tuple[str, ...] = (),
    variables: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[int]:
    """Run the server while the context lasts, SIGTERM included; gives its port.

    Args:
        target: model directory.
        log: file that takes the server's output.
        max_model_len: longest sequence in tokens.
        max_num_seqs: requests that it works on at once.
        options: further arguments of vLLM's server.
        variables: environment variables of the server, ahead of this process' own.

    Raises:
        EngineError: it ended, or was not ready within an hour; the message holds its last error line.
    """

    def line(port: int) -> list[str]:
        return command(target, port, max_model_len=max_model_len, max_num_seqs=max_num_seqs, options=options)

    with started(line, log, variables) as port:
        yield port


@contextlib.contextmanager
def started(
    line: Callable[[int], list[str]], log: Path, variables: Mapping[str, str] = MappingProxyType({})
) -> Iterator[int]:
    """Run a server with a `/health` page while the context lasts; `line` gives its command line for a port.

    Raises:
        EngineError: it ended, or was not ready within an hour; the message holds its last error line.
    """
    port = _free_port()
    environment = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    environment = {**environment, **os.environ, **variables}
    with log.open("ab") as output:
        process = subprocess.Popen(
            line(port), stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
        )
    with signals.raised():
        try:
            _wait(process, port, log)
            yield port
        finally:
            _stop(process)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    began = time.monotonic()
    while not _healthy(port):
        if process.poll() is not None:
            raise EngineError(
                f"the server of the target ended with exit code {process.returncode}",
                why=_last_error(log),
                fix=f"its whole output is in {log}",
            )
        if time.monotonic() - began > _START_LIMIT_S:
            raise EngineError(
                f"the server of the target was not ready after {_START_LIMIT_S:.0f} s",
                why=_last_error(log),
                fix=f"see {log}",
            )
        time.sleep(_POLL_S)


def _healthy(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Stop the server and its engine process: both are in a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_LIMIT_S)
            break
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _last_error(log: Path) -> str:
    """The line of the server's output that says what went wrong."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return last_error(file.read().decode("utf-8", "replace"))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])
