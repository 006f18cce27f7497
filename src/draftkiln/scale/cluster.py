"""Replicas as Ray actors: where they are placed, what comes of them, and how they end.

Each has a placement group of one bundle, so that the devices of one engine lie on one host. A group that no host has
room for now waits in Ray's queue: a host that joins gets it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import SystemMissingError
from draftkiln.scale.coordinate import Said
from draftkiln.scale.messages import Order
from draftkiln.scale.replica import Replica

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from draftkiln.scale.places import Start

_LOCAL = "local"
_CONNECT_SECONDS = 5.0
_OBJECTS_BYTES = 80 << 20
"""Ray's store of objects on a cluster of this host alone; receipts are all that goes through it."""


def bundle(parallel: int, device: str, cpus: int | None, executor: str | None) -> dict[str, float]:
    """What a replica takes of its host.

    Args:
        parallel: devices that its engine spreads over.
        device: `cpu` or `cuda`.
        cpus: CPU cores; None: one a CPU device, one beside GPUs.
        executor: vLLM's; `ray` places the engine's devices itself, on whatever hosts.
    """
    if executor == "ray":
        return {"CPU": float(cpus or 1)}
    if device == "cuda":
        return {"CPU": float(cpus or 1), "GPU": float(parallel)}
    return {"CPU": float(cpus or parallel)}


@contextlib.contextmanager
def connected(address: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Join a Ray cluster, or make one of this host alone for `local`; left again at the end.

    Raises:
        SystemMissingError: Ray is not installed, or there is no cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray would hide all devices from an actor that asks for none, also from the engine beside it.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise SystemMissingError(
            "Ray is not installed here", why=str(error), fix="pip install 'draftkiln[ray]' on every host"
        ) from error
    _refuse_unreachable(address)
    common = {"log_to_driver": False, "logging_level": "warning", "configure_logging": False}
    try:
        if address == _LOCAL:
            ray.init(
                num_cpus=len(os.sched_getaffinity(0)),
                object_store_memory=_OBJECTS_BYTES,
                include_dashboard=False,
                **common,
            )
        else:
            ray.init(address=address, **common)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise _no_cluster(address, error) from error
    tell(f"extract: Ray {ray.__version__}, {_resources(ray.cluster_resources())}")
    try:
        yield
    finally:
        ray.shutdown()


def _refuse_unreachable(address: str) -> None:
    """Ray itself tries for minutes, and ends the process of whoever asked."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> SystemMissingError:
    return SystemMissingError(
        f"cannot join the Ray cluster at {address}",
        why=" ".join(str(error).split()),
        fix="start one (`ray start --head`, then `ray start --address=HEAD:6379` on each host), or --ray local",
    )


def _resources(found: Mapping[str, float]) -> str:
    return ", ".join(f"{found[name]:.0f} {name}s" for name in ("CPU", "GPU") if name in found)


@dataclass
class _Slot:
    """A place in the run and the replica that has it."""

    number: int
    attempt: int = 0
    name: str = ""
    group: Any = None
    actor: Any = None
    asked: Any = None
    """What is waited for: the placement, then each answer."""


class RayReplicas:
    """Replicas on the hosts of the cluster that this process has joined.

    Args:
        start: how each is started.
        takes: resources of its host that one takes.
        most: replicas; None: as many as the cluster has room for now, at least one.

    Attributes:
        nodes: hosts in the cluster at the beginning.
    """

    def __init__(self, start: Start, takes: Mapping[str, float], most: int | None) -> None:
        import ray

        self._ray = ray
        self._start, self._takes = start, dict(takes)
        self.nodes = sum(node["Alive"] for node in ray.nodes())
        # Two starts of one run must not share a folder: a replica of the earlier one may have a moment to live.
        self._mark = uuid.uuid4().hex[:8]
        self._slots = [_Slot(number) for number in range(most or self._fitting())]
        for slot in self._slots:
            self._place(slot)

    @property
    def expected(self) -> int:
        """Slots that are taken or may be."""
        return len(self._slots)

    def poll(self, seconds: float) -> list[Said]:
        """What came; waits for something, `seconds` at most."""
        waited = {slot.asked: slot for slot in self._slots if slot.asked is not None}
        if not waited:
            return []
        ready, _ = self._ray.wait(list(waited), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(list(waited), num_returns=len(waited), timeout=0)
        return [said for reference in ready if (said := self._answered(waited[reference])) is not None]

    def order(self, replica: str, order: Order) -> None:
        """Have a replica go on."""
        slot = self._of(replica)
        if slot is not None:
            slot.asked = slot.actor.exchange.remote(order)

    def end(self, replica: str, *, again: bool) -> None:
        """End a replica, and start another in its slot or leave that empty."""
        slot = self._of(replica)
        if slot is None:
            return
        self._clear(slot)
        if again:
            self._place(slot)
        else:
            self._slots.remove(slot)

    def close(self) -> None:
        """End all replicas."""
        for slot in self._slots:
            self._clear(slot)
        self._slots = []

    def _answered(self, slot: _Slot) -> Said | None:
        """What came of a slot: the answer of its replica, or its placement, upon which one is started."""
        try:
            answer = self._ray.get(slot.asked)
        except self._ray.exceptions.RayError as error:
            slot.asked = None
            return Said(slot.name, slot.number, None, " ".join(str(error).split()))
        if slot.actor is not None:
            slot.asked = None
            return Said(slot.name, slot.number, answer)
        strategy = self._ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(slot.group, 0)
        actor = self._ray.remote(Replica).options(
            num_cpus=self._takes["CPU"],
            num_gpus=self._takes.get("GPU", 0),
            scheduling_strategy=strategy,
            max_restarts=0,
        )
        slot.actor = actor.remote(self._start, slot.name)
        slot.asked = slot.actor.exchange.remote(Order())
        return None

    def _place(self, slot: _Slot) -> None:
        slot.attempt += 1
        slot.name = f"{self._mark}-{slot.number}.{slot.attempt}"
        slot.group = self._ray.util.placement_group([self._takes], strategy="STRICT_PACK")
        slot.asked = slot.group.ready()

    def _clear(self, slot: _Slot) -> None:
        """End a slot's actor and give back what it took of its host; the engine ends when the actor's pipe closes."""
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            if slot.actor is not None:
                self._ray.kill(slot.actor, no_restart=True)
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError):
            self._ray.util.remove_placement_group(slot.group)
        slot.actor = slot.asked = slot.group = None

    def _of(self, replica: str) -> _Slot | None:
        return next((slot for slot in self._slots if slot.name == replica), None)

    def _fitting(self) -> int:
        found = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        fitting = (min(int(there.get(name, 0) // count) for name, count in self._takes.items()) for there in found)
        return max(1, sum(fitting))
