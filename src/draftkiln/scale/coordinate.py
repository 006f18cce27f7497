"""The driver's loop over replicas: hands out, takes in, checks who may work, and forgets nobody's samples.

It knows replicas by what they say only; Ray is behind `Replicas`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from draftkiln.errors import DraftkilnError, EngineError, ProblemsError, StackError, StorageError, SystemMissingError
from draftkiln.scale import identity
from draftkiln.scale.messages import Order, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftkiln.extract.manifest import Receipt
    from draftkiln.scale.ledger import Ledger

_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Said:
    """Something came of a replica.

    Attributes:
        replica: its name.
        slot: its place in the run; a replica that takes the place of a dead one has the same.
        reply: what it said; None when it is gone.
        why: it is gone, in words.
    """

    replica: str
    slot: int
    reply: Reply | None
    why: str = ""


class Replicas(Protocol):
    """The replicas there are and will be."""

    @property
    def expected(self) -> int:
        """Slots that are taken or may be."""

    def poll(self, seconds: float) -> list[Said]:
        """What came; waits for something, `seconds` at most. Who said something has to get an order."""

    def order(self, replica: str, order: Order) -> None:
        """Have a replica that said something go on."""

    def end(self, replica: str, *, again: bool) -> None:
        """End a replica, and start another in its slot or leave that empty."""


@dataclass(frozen=True)
class Delivery:
    """Samples that a replica delivered first.

    Attributes:
        replica: that did.
        host: that it runs on.
        receipts: of them.
        answers: what its engine said next after each token of a few of them.
    """

    replica: str
    host: str
    receipts: list[Receipt]
    answers: dict[int, list[int]]


@dataclass(frozen=True)
class Rules:
    """What the loop goes by.

    Attributes:
        wanted: hashes that every replica must have, by name.
        sample_bytes: of a sample, on average.
        reserve_bytes: of a disk that are left free.
        silent_seconds: after which a replica that says nothing is taken for dead; should it live, what it delivers
            first still counts.
        idle_seconds: without a replica, or without room on any disk, after which the run ends.
        grace_seconds: that engines have to finish what they have begun when the run is stopped.
        tries: failures of a slot in a row, without one sample in between, after which it is left empty.
    """

    wanted: dict[str, Any]
    sample_bytes: float
    reserve_bytes: int = 1 << 30
    silent_seconds: float = 5.0
    idle_seconds: float = 600.0
    grace_seconds: float = 120.0
    tries: int = 3


@dataclass
class _Standing:
    """What is known of a replica."""

    slot: int
    heard: float
    reply: Reply = field(default_factory=Reply)
    silent: bool = False
    short_of_room: bool = False


class Coordinator:
    """The driver's loop.

    Args:
        replicas: that compute.
        ledger: of the samples.
        rules: that it goes by.
        publish: takes what was delivered first and the number of samples that replicas have, makes it part of the run,
            and names the samples whose files are not what their receipts say.
        tell: takes a line for people.

    Attributes:
        hosts: that delivered samples.
    """

    def __init__(
        self,
        replicas: Replicas,
        ledger: Ledger,
        rules: Rules,
        publish: Callable[[Sequence[Delivery], int], set[int]],
        tell: Callable[[str], None],
    ) -> None:
        self._replicas, self._ledger, self._rules = replicas, ledger, rules
        self._publish, self._tell = publish, tell
        self.hosts: set[str] = set()
        self._standing: dict[str, _Standing] = {}
        self._failures: dict[int, list[DraftkilnError]] = {}
        self._moved = time.monotonic()
        """When there was last something that could go on."""

    def run(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Until all samples are durable or the end is asked for; then what the engines have begun is finished.

        Raises:
            ProblemsError: no slot is left; why each was left empty.
            SystemMissingError: no replica came.
            StorageError: no disk has room.
        """
        while self._ledger.unfinished and not stopping():
            self._round(Order())
            self._refuse_standstill()
        if self._ledger.unfinished:
            end = time.monotonic() + self._rules.grace_seconds
            while any(one.reply.state == "ready" for one in self._standing.values()) and time.monotonic() < end:
                self._round(Order(stop=True))

    def _round(self, order: Order) -> None:
        deliveries = [taken for said in self._replicas.poll(_POLL_SECONDS) if (taken := self._take(said, order))]
        # Before files are synced: a driver that its disk holds up must not take that for the silence of others.
        self._look_for_silence()
        if deliveries:
            self._moved = time.monotonic()
            self.hosts.update(delivery.host for delivery in deliveries)
            in_flight = sum(map(self._ledger.held, self._standing))
            for index in sorted(self._publish(deliveries, in_flight)):
                self._tell(f"extract: the file of sample {index} is not what its receipt says; it is made again")
                self._ledger.give_back(index)

    def _take(self, said: Said, order: Order) -> Delivery | None:
        """Take in what a replica said and tell it what to do."""
        if said.reply is None:
            self._lose(said.replica, said.slot, EngineError(f"replica {said.replica} is gone", why=said.why))
            return None
        standing = self._standing.setdefault(said.replica, _Standing(said.slot, 0.0))
        standing.heard, standing.silent = time.monotonic(), False
        before, standing.reply = standing.reply, said.reply
        reply = said.reply
        first = [receipt for receipt in reply.receipts if self._ledger.accept(receipt.index)]
        if first:
            self._failures.pop(said.slot, None)
        if reply.state == "over" and order.stop and reply.failure is None:
            self._forget(said.replica, again=False)
        elif reply.state == "over":
            self._lose(said.replica, said.slot, reply.failure or EngineError(f"replica {said.replica} ended"))
        elif reply.state == "identified" and reply.identity is not None:
            self._admit(said.replica, standing, reply.identity)
        else:
            if reply.state == "ready" != before.state:
                self._moved = time.monotonic()
                self._tell(f"extract: replica {said.replica} computes on host {reply.host}")
            self._replicas.order(said.replica, order if order.stop else self._next(said.replica, standing))
        answers = {index: reply.answers[index] for receipt in first if (index := receipt.index) in reply.answers}
        return Delivery(said.replica, reply.host, first, answers) if first else None

    def _admit(self, replica: str, standing: _Standing, there: dict[str, Any]) -> None:
        """Let a replica load its engine if it runs on what the run was begun with."""
        wrong = identity.differing(self._rules.wanted, there)
        if not wrong:
            self._replicas.order(replica, Order(go=True))
            return
        host = standing.reply.host
        refusal = StackError(
            f"host {host} is refused: it runs on another stack", why="; ".join(wrong), fix="give it the driver's stack"
        )
        self._tell(f"extract: {refusal.what}: {refusal.why}")
        self._failures.setdefault(standing.slot, []).append(refusal)
        self._forget(replica, again=False)

    def _lose(self, replica: str, slot: int, why: DraftkilnError) -> None:
        """Take back what a replica had and start another in its place, unless that failed too often."""
        failures = self._failures.setdefault(slot, [])
        failures.append(why)
        again = len(failures) < self._rules.tries
        held = self._forget(replica, again=again)
        text = " ".join(str(why).split())
        self._tell(
            f"extract: {text}: {held} of its samples are handed out again" + ("" if again else ", its place is not")
        )

    def _forget(self, replica: str, *, again: bool) -> int:
        self._standing.pop(replica, None)
        held = self._ledger.release(replica)
        self._replicas.end(replica, again=again)
        return held

    def _next(self, replica: str, standing: _Standing) -> Order:
        """What a replica that has nothing waiting is to compute next, as long as its disk has room for it."""
        if standing.reply.state != "ready" or standing.reply.waiting:
            return Order()
        ready = [name for name, one in self._standing.items() if one.reply.state == "ready" and not one.silent]
        short = not self._has_room(standing)
        if short and not standing.short_of_room:
            free = standing.reply.free_bytes / 1e9
            self._tell(
                f"extract: host {standing.reply.host} has {free:.1f} GB free; it gets no more until there is room"
            )
        standing.short_of_room = short
        if short:
            return Order()
        self._moved = time.monotonic()
        part = self._ledger.hand_out(replica, len(ready))
        return Order(ranges=(part,)) if part else Order()

    def _has_room(self, standing: _Standing) -> bool:
        """Whether all that is under way to its disk, and a range more, fit."""
        under_way = sum(
            self._ledger.held(name) for name, one in self._standing.items() if one.reply.disk == standing.reply.disk
        )
        following = min(self._ledger.most, len(self._ledger.unfinished))
        needed = (under_way + following) * self._rules.sample_bytes
        return standing.reply.free_bytes - self._rules.reserve_bytes >= needed

    def _look_for_silence(self) -> None:
        for name, one in self._standing.items():
            if not one.silent and time.monotonic() - one.heard > self._rules.silent_seconds:
                one.silent = True
                held = self._ledger.release(name)
                self._tell(
                    f"extract: replica {name} on host {one.reply.host} is silent; its {held} samples are handed out"
                )

    def _refuse_standstill(self) -> None:
        if not self._replicas.expected:
            problems = [failures[-1] for failures in self._failures.values()]
            raise ProblemsError(problems or [EngineError("no replica is left")])
        computing = any(self._ledger.held(name) for name in self._standing)
        if computing or time.monotonic() - self._moved < self._rules.idle_seconds:
            return
        seconds = f"for {self._rules.idle_seconds:.0f} s"
        if any(one.short_of_room for one in self._standing.values()):
            raise StorageError(
                f"no host had room for samples {seconds}",
                fix="make room, then run the same command again: it goes on where it stopped",
            )
        if not self._standing:
            raise SystemMissingError(
                f"no replica came {seconds}",
                why="the cluster has no host with the devices that one takes",
                fix="look at `ray status`; lower target.tensor_parallel_size or --replicas, or add hosts",
            )
