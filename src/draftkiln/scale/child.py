"""A replica's end of the pipe: it starts the process of the engine and keeps what it says until the driver asks."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
from typing import IO, TYPE_CHECKING, Any

from draftkiln.errors import EngineError
from draftkiln.extract.manifest import Receipt
from draftkiln.scale.messages import Order, Reply, failure_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Child:
    """The process of an engine.

    Args:
        command: that starts it.
        variables: its environment.
        folder: its working directory.
        log: that its standard error goes to.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: Path, log: Path) -> None:
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                command, env=variables, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._log = log
        self._said = Reply()
        self._news = threading.Condition()
        self._fresh = False
        threading.Thread(target=self._listen, args=(self.process.stdout,), daemon=True).start()

    def order(self, order: Order) -> None:
        """Hand on an order; one to a process that has ended is dropped."""
        stream = self.process.stdin
        if stream is None:
            return
        try:
            for line in order.lines():
                stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
        except BrokenPipeError:
            return
        with self._news:
            self._said.waiting += sum(map(len, order.ranges))

    def news(self, seconds: float) -> Reply:
        """What it said since the last call; waits for something, `seconds` at most."""
        with self._news:
            self._news.wait_for(lambda: self._fresh, seconds)
            said, self._fresh = self._said, False
            self._said = Reply(state=said.state, waiting=said.waiting, failure=said.failure)
        return said

    def end(self) -> None:
        """End it, however it is: it ends by itself when its input is closed."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _listen(self, stream: IO[bytes] | None) -> None:
        with contextlib.ExitStack() as stack:
            for line in stack.enter_context(stream) if stream else ():
                with self._news:
                    self._take(json.loads(line))
                    self._fresh = True
                    self._news.notify_all()
        code = self.process.wait()
        with self._news:
            if self._said.state != "over":
                self._said.state = "over"
                how = f"by signal {-code}" if code < 0 else f"with code {code}"
                last = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
                why = f"{self._log} ends with: {last[0]}" if last else "it said nothing: was it killed (out of memory?)"
                self._said.failure = EngineError(f"the engine's process ended {how}", why=why)
            self._fresh = True
            self._news.notify_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        said = self._said
        said.waiting = message["waiting"]
        if "identity" in message:
            said.state, said.identity = "identified", message["identity"]
        elif "ready" in message:
            said.state = "ready"
        elif "over" in message:
            said.state = "over"
            said.failure = message["failure"] and failure_of(message["failure"])
        elif "receipts" in message:
            said.receipts += [Receipt(*values) for values in message["receipts"]]
            said.answers |= {int(index): ids for index, ids in message["answers"].items()}
