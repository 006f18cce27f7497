"""A replica without vLLM: the real channel, feed, loop and sink over a stub that schedules and computes.

    python stub_replica.py replica --recipe FILE --run DIR --replica NAME

The recipe's text is JSON: `pause` seconds a step, `slow` slots that take `slower` times as long, `identity` by slot,
`fail` and `die_at_start` slots, `sync` seconds of the sink, `keep_busy` folder for the engine's share of the time.
"""

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "extract"))

import stub_extraction as stub

from draftkiln.errors import StorageError
from draftkiln.extract import drive, samples, sink
from draftkiln.scale.channel import Channel
from draftkiln.scale.replica_command import REPLICAS, serve

IDENTITY = {"requirements": "r", "patched_tree": "t"}


class Engine(stub.LocalEngine):
    """Sleeps as long as an engine would compute."""

    def __init__(self, folder, pause):
        self.worker = stub.StubWorker(folder, pause=pause)
        self.busy = 0.0

    def step(self):
        began = time.monotonic()
        found = self.worker.step()
        self.busy += time.monotonic() - began
        return found

    def cancel(self, indices):
        self.worker.queue = [request for request in self.worker.queue if request[0] not in indices]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    for name in ("--recipe", "--run", "--replica"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    told = json.loads(Path(arguments.recipe).read_text())
    slot = arguments.replica.split("-")[1].split(".")[0]
    folder = Path(arguments.run, "extract", REPLICAS, arguments.replica)
    (folder / samples.FOLDER).mkdir(parents=True)
    sink._SYNC_SECONDS, drive._REPORT_SECONDS = told.get("sync", 0.05), 0.02

    def work(channel):
        if slot in told.get("die_at_start", ()):
            os.kill(os.getpid(), signal.SIGKILL)
        if not channel.identify(told.get("identity", {}).get(slot, IDENTITY)):
            return
        if slot in told.get("fail", ()):
            raise StorageError("cannot write x", why="No space left on device")
        pause = told["pause"] * (told.get("slower", 1) if slot in told.get("slow", ()) else 1)
        engine = Engine(folder / samples.FOLDER, pause)
        channel.ready()
        began = time.monotonic()

        def record(receipts):
            channel.deliver(receipts, {})
            if "keep_busy" in told:
                path = Path(told["keep_busy"], f"busy-{arguments.replica}.json")
                path.write_text(json.dumps([engine.busy, time.monotonic() - began]))

        limits = drive.Limits(4 * stub.STEP_TOKENS, 16, stub.STEP_TOKENS)
        drive.drive(engine, channel.feed.prompts(stub.token_ids), limits, record, lambda: channel.feed.stopped)

    return serve(Channel.of_process(), work)


if __name__ == "__main__":
    raise SystemExit(main())
