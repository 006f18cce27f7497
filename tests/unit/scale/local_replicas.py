"""Replicas in this process instead of Ray's: the real class and its child process, asked by threads."""

import itertools
import json
import sys
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import stub_replica

from draftkiln.extract import manifest, plan, samples
from draftkiln.scale.coordinate import Coordinator, Rules, Said
from draftkiln.scale.ledger import Ledger
from draftkiln.scale.messages import Order
from draftkiln.scale.places import Start
from draftkiln.scale.publish import Shared
from draftkiln.scale.ranges import Ranges
from draftkiln.scale.replica import Replica

MARKS = itertools.count()


def start(run, **told):
    (run / "prepare").mkdir(parents=True, exist_ok=True)
    (run / "prepare" / "stage.json").touch()
    (run / "extract" / samples.FOLDER).mkdir(parents=True, exist_ok=True)
    program = (sys.executable, str(Path(stub_replica.__file__)))
    return Start("stub", "stack", json.dumps({"pause": 0.002, **told}), str(run), "/", program=program)


class LocalReplicas:
    def __init__(self, begin, count):
        self.begin, self.mark = begin, f"m{next(MARKS)}"
        self.pool = ThreadPoolExecutor(16)
        self.slots, self.attempts, self.asked = {}, {}, {}
        self.gone = []
        for number in range(count):
            self.add(number)

    @property
    def expected(self):
        return len(self.slots)

    def add(self, number):
        self.attempts[number] = self.attempts.get(number, 0) + 1
        name = f"{self.mark}-{number}.{self.attempts[number]}"
        self.slots[name] = number, Replica(self.begin, name)
        self.order(name, Order())
        return name

    def child(self, number):
        """Process of the replica in a slot, once there is one."""
        for slot, replica in self.slots.values():
            if slot == number and replica._child is not None:
                return replica._child.process.pid
        return None

    def poll(self, seconds):
        done, _ = wait(self.asked.values(), timeout=seconds, return_when=FIRST_COMPLETED)
        found = [Said(name, self.slots[name][0], None, "killed") for name in self.gone if name in self.slots]
        self.gone = []
        for name, future in list(self.asked.items()):
            if future in done:
                del self.asked[name]
                found.append(Said(name, self.slots[name][0], future.result()))
        return found

    def order(self, replica, order):
        if replica in self.slots:
            self.asked[replica] = self.pool.submit(self.slots[replica][1].exchange, order)

    def end(self, replica, *, again):
        number, actor = self.slots.pop(replica)
        self.asked.pop(replica, None)
        self.pool.submit(actor.end)
        if again:
            self.add(number)

    def close(self):
        for _, actor in self.slots.values():
            actor.end()
        self.pool.shutdown(cancel_futures=True)


class Run:
    """A run directory, its manifest and a driver over it."""

    def __init__(self, run, count, stub):
        self.run, self.count, self.stub = run, count, stub
        self.told, self.wrong = [], set()
        self.folder = run / "extract" / samples.FOLDER
        self.path = run / "extract" / manifest.FILE

    def extract(self, replicas, most=16, stopping=lambda: False, **rules):
        if not self.path.exists():
            manifest.create(self.path, self.stub.head(self.count))
        todo = plan.compare(self.folder, manifest.read(self.path))
        plan.clear(self.folder, self.path, todo, self.told.append)
        self.ledger = Ledger(Ranges(todo.remaining), most)
        shared = Shared(self.run / "extract" / "replicas", self.folder)

        def publish(deliveries, _in_flight):
            wrong = shared.publish(deliveries)
            self.wrong |= wrong
            receipts = [one for delivery in deliveries for one in delivery.receipts if one.index not in wrong]
            manifest.append(self.path, receipts)
            self.after(len(receipts))
            return wrong

        wanted = Rules(**{"wanted": stub_replica.IDENTITY, "sample_bytes": 5000.0, "reserve_bytes": 0} | rules)
        Coordinator(replicas, self.ledger, wanted, publish, self.told.append).run(stopping)

    def after(self, count):
        """Called after receipts were recorded."""

    def check(self):
        """Every sample once, every file what it must be, the manifest that of one host."""
        found = manifest.read(self.path)
        lines = self.path.read_text().splitlines()[1:]
        assert len(lines) == self.count
        assert found.head == self.stub.head(self.count)
        assert {file.name for file in self.folder.iterdir()} == {samples.name(index) for index in range(self.count)}
        for index in range(self.count):
            data = self.stub.file_bytes(index)
            path = self.folder / samples.name(index)
            assert path.read_bytes() == data
            receipt = found.receipts[index]
            assert (receipt.rows, receipt.bytes) == (self.stub.length(index), len(data))
            assert receipt.checksum == samples.checksum(path)
