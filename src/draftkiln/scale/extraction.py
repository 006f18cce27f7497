"""`draftkiln extract --ray`: the stage of one host with its engines on others; the driver keeps the one manifest."""

from __future__ import annotations

import contextlib
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.extract import begin, manifest, progress, samples, signals, top_tokens
from draftkiln.scale import cluster, identity, places
from draftkiln.scale.coordinate import Coordinator, Rules
from draftkiln.scale.ledger import Ledger
from draftkiln.scale.publish import PLACES, PerHost, Publisher, Shared
from draftkiln.scale.ranges import Ranges
from draftkiln.scale.replica_command import REPLICAS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from draftkiln.extract.manifest import Receipt
    from draftkiln.scale.coordinate import Delivery
    from draftkiln.scale.hosts import Hosts
    from draftkiln.stage import Context
    from draftkiln.stagelog import Terminal

_RANGE_TOKENS = 1 << 17
"""Of a range: seconds of work for a fast engine, a minute for a slow one."""
_RANGE_SAMPLES = 1024


def extract(context: Context, terminal: Terminal, hosts: Hosts) -> dict[str, Any]:
    """Compute what remains on the hosts of a cluster; what the stage says at its end.

    Raises:
        StoppedError: a signal ended it; what was in flight is finished and recorded.
        ProblemsError: no host is left that may work.
    """
    prepared = context.run.require("prepare")["results"]
    count, tokens = int(prepared["samples"]), int(prepared["tokens"])
    begun = begin.take_up(context, terminal.line, count, full=hosts.full, files=hosts.run is None)
    folder = context.run.folder("extract").absolute()
    remaining_tokens = max(tokens - begun.done_rows, 1)
    shape = len(begun.head.layer_ids), begun.head.hidden_size, begun.head.dtype
    heads = len(begun.remaining) * len(samples.head_bytes(remaining_tokens, *shape))
    needed = remaining_tokens * begin.token_bytes(begun.head) + heads
    # Disks of other hosts are looked at while they fill.
    force = hosts.force or hosts.run is not None
    begin.announce(terminal.line, begun.head, folder, len(begun.remaining), needed, force=force)
    shown = progress.Progress(
        folder / samples.FOLDER, len(begun.remaining), remaining_tokens, terminal.progress, folder / progress.FILE,
        metrics=hosts.metrics,
    )  # fmt: skip
    tally = Tally(begun.longest)
    measured = {}
    if begun.remaining:
        mean = remaining_tokens / len(begun.remaining)
        ledger = Ledger(Ranges(_parts(begun.remaining)), max(1, min(_RANGE_SAMPLES, int(_RANGE_TOKENS / mean))))
        rules = Rules(identity.expected(context), needed / len(begun.remaining))
        measured = _compute(context, terminal, hosts, ledger, rules, shown, tally)
    return {**begin.results(begun.head, count, tokens, tally.longest), **measured}


def _parts(indices: Sequence[int]) -> Sequence[int | range]:
    """A range as one, so that a million indices never become a list."""
    return [indices] if isinstance(indices, range) else indices


class Tally:
    """The longest sample there is.

    Attributes:
        longest: its tokens.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest

    def count(self, receipts: Sequence[Receipt]) -> None:
        """Look at more receipts."""
        self.longest = max(self.longest, *(receipt.rows for receipt in receipts), 0)


def _compute(
    context: Context,
    terminal: Terminal,
    hosts: Hosts,
    ledger: Ledger,
    rules: Rules,
    shown: progress.Progress,
    tally: Tally,
) -> dict[str, Any]:
    folder = context.run.folder("extract").absolute()
    shutil.rmtree(folder / REPLICAS, ignore_errors=True)
    run = hosts.run or context.run.path.absolute()
    start = places.Start(
        stack=context.stack,
        place=hosts.engine_in,
        recipe=hosts.recipe.read_text(encoding="utf-8"),
        run=str(run),
        folder=str(Path.cwd()),
        executor=hosts.executor,
    )
    publisher: Publisher = Shared(folder / REPLICAS, folder / samples.FOLDER)
    if hosts.run is not None:
        publisher = PerHost(str(run), folder / PLACES)
    began = time.monotonic()
    bundle = cluster.bundle(context.recipe.target.tensor_parallel_size, context.device, hosts.cpus, hosts.executor)
    ending = signals.Ending()
    with cluster.connected(hosts.address, terminal.line), ending.while_running():
        group = cluster.RayReplicas(start, bundle, hosts.replicas)
        with contextlib.closing(group):
            terminal.line(f"extract: {group.expected} replicas of {bundle} wanted, {group.nodes} hosts in the cluster")
            coordinator = Coordinator(group, ledger, rules, _publish(folder, publisher, shown, tally), terminal.line)
            coordinator.run(ending.asked)
    shutil.rmtree(folder / REPLICAS, ignore_errors=True)
    if ending.number is not None and ledger.unfinished:
        done = f"{shown.samples} of {shown.of_samples} samples were made, all of them recorded"
        raise signals.StoppedError(ending.number, done)
    seconds = time.monotonic() - began
    return {
        "tokens_per_second": round(shown.tokens / seconds, 1),
        "seconds": round(seconds, 1),
        "hosts": sorted(coordinator.hosts),
    }


def _publish(
    folder: Path, publisher: Publisher, shown: progress.Progress, tally: Tally
) -> Callable[[Sequence[Delivery], int], set[int]]:
    """What makes delivered samples part of the run: files first, then answers, then receipts."""

    def publish(deliveries: Sequence[Delivery], in_flight: int) -> set[int]:
        wrong = publisher.publish(deliveries)
        receipts = [receipt for delivery in deliveries for receipt in delivery.receipts if receipt.index not in wrong]
        answers = {index: ids for delivery in deliveries for index, ids in delivery.answers.items()}
        if answers:
            top_tokens.append(folder / top_tokens.FILE, answers)
        if receipts:
            manifest.append(folder / manifest.FILE, receipts)
            tally.count(receipts)
            shown.count(receipts, in_flight)
        return wrong

    return publish
