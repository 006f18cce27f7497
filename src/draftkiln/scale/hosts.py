"""What the command line of `draftkiln extract` says of several hosts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import UsageError
from draftkiln.scale import places

if TYPE_CHECKING:
    import argparse

PER_HOST = {"samples_on": "the hosts that computed them"}
"""What is recorded of a run whose samples are not in its directory."""


@dataclass(frozen=True)
class Hosts:
    """Hosts that extract together.

    Attributes:
        address: of their Ray cluster, or `local`.
        replicas: most engines; None: as many as fit into the cluster now.
        cpus: that a replica takes of its host; None: one a device of the engine.
        run: run directory on each host's own disk; None: the run directory is shared.
        engine_in: where hosts find the stack.
        executor: vLLM's executor; None: its choice.
        recipe: file of the recipe.
        metrics: file for Prometheus, or None.
        full: whether samples that are there are compared by checksum as well.
        force: whether a lack of room is ignored.
    """

    address: str
    replicas: int | None
    cpus: int | None
    run: Path | None
    engine_in: str
    executor: str | None
    recipe: Path
    metrics: Path | None
    full: bool
    force: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what `--ray` takes."""
    group = parser.add_argument_group("several hosts", "engines as Ray actors (docs/scale-out.md)")
    group.add_argument(
        "--ray", metavar="ADDRESS", help="address of a Ray cluster, or `local` for one of this host alone"
    )
    group.add_argument("--replicas", type=int, metavar="N", help="most engines; those without room join when hosts do")
    group.add_argument("--replica-cpus", type=int, metavar="N", help="CPU cores that an engine takes of its host")
    group.add_argument(
        "--host-run", type=Path, metavar="DIR", help="keep samples on each host's own disk, in this run directory there"
    )
    group.add_argument(
        "--engine-in", default="stack", metavar="PLACE", help="stack (default), image, or bundle:FOLDER of each host"
    )
    group.add_argument("--executor", choices=("ray", "mp"), help="vLLM's executor; ray spreads one engine over hosts")


def of(arguments: argparse.Namespace) -> Hosts | None:
    """The hosts that the command line speaks of; None when it speaks of none.

    Raises:
        UsageError: it contradicts itself.
    """
    if arguments.ray is None:
        for name in ("replicas", "replica_cpus", "host_run", "executor"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name.replace('_', '-')} means nothing without --ray", fix="add --ray ADDRESS")
        return None
    full = arguments.check_existing == "full"
    if arguments.shard is not None:
        raise UsageError("--shard and --ray exclude each other", why="a queue deals samples out", fix="leave one out")
    if arguments.check_ranks:
        raise UsageError("--check-ranks is for one host", fix="check a few samples on one host first")
    if full and arguments.host_run is not None:
        raise UsageError("--check-existing full does not reach other hosts", fix="run `draftkiln copy-samples` on each")
    if any(count is not None and count < 1 for count in (arguments.replicas, arguments.replica_cpus)):
        raise UsageError("--replicas and --replica-cpus must be 1 or more")
    places.check(arguments.engine_in)
    return Hosts(
        address=arguments.ray,
        replicas=arguments.replicas,
        cpus=arguments.replica_cpus,
        run=arguments.host_run and arguments.host_run.absolute(),
        engine_in=arguments.engine_in,
        executor=arguments.executor,
        recipe=arguments.recipe,
        metrics=arguments.metrics,
        full=full,
        force=arguments.force,
    )
