"""The pipe between a replica and the process of its engine: one JSON object a line, both ways.

Standard input and output carry it, since a container has no others; whatever the engine prints goes to standard error.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from typing import IO, TYPE_CHECKING, Any

from draftkiln.scale import messages
from draftkiln.scale.feed import Feed

if TYPE_CHECKING:
    from draftkiln.errors import DraftkilnError
    from draftkiln.extract.manifest import Receipt


class Channel:
    """The engine's end of the pipe.

    When the other end is gone this process ends at once: nobody would record what it makes.

    Args:
        orders: stream of orders.
        replies: stream for what is told.

    Attributes:
        feed: samples that were ordered.
    """

    def __init__(self, orders: IO[bytes], replies: IO[bytes]) -> None:
        self.feed = Feed(drained=lambda: self._send({}))
        self._orders, self._replies = orders, replies
        self._go = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    @classmethod
    def of_process(cls) -> Channel:
        """Take over standard input and output; prints go to standard error from now on."""
        sys.stdout.flush()
        replies = os.fdopen(os.dup(1), "wb", buffering=0)
        orders = os.fdopen(os.dup(0), "rb")
        os.dup2(2, 1)
        # What the engine starts must not read the orders.
        empty = os.open(os.devnull, os.O_RDONLY)
        os.dup2(empty, 0)
        os.close(empty)
        return cls(orders, replies)

    def identify(self, identity: dict[str, Any]) -> bool:
        """Say what this process runs on, and wait for the word to go on; False when it is not to."""
        self._send({"identity": identity})
        self._go.wait()
        return not self.feed.stopped

    def ready(self) -> None:
        """Say that the engine is loaded."""
        self._send({"ready": True})

    def deliver(self, receipts: list[Receipt], answers: dict[int, list[int]]) -> None:
        """Hand on receipts, and what the engine said next."""
        rows = [[found.index, found.rows, found.bytes, found.checksum, found.token_ids] for found in receipts]
        self._send({"receipts": rows, "answers": {str(index): ids for index, ids in answers.items()}})

    def over(self, failure: DraftkilnError | None = None) -> None:
        """Say that nothing more comes, and why."""
        self._send({"over": True, "failure": failure and messages.told(failure)})

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps({**message, "waiting": self.feed.waiting}).encode() + b"\n"
        with self._lock:
            while data:
                data = data[self._replies.write(data) :]

    def _listen(self) -> None:
        for line in self._orders:
            order = json.loads(line)
            if "range" in order:
                self.feed.put(range(*order["range"]))
            if "stop" in order:
                self.feed.stopped = True
            if "go" in order or "stop" in order:
                self._go.set()
        # An engine that is still loading has nothing of its own that ends it.
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(1)
