"""`draftkiln replica`: one engine of `draftkiln extract --ray`, in the stack's environment, spoken to over a pipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import DraftkilnError, EngineError, ExitCode
from draftkiln.extract import samples
from draftkiln.scale.channel import Channel

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from draftkiln.extract.manifest import Receipt

REPLICAS = "replicas"
"""Folder of a run's `extract` that holds a folder a replica."""
LOG = "replica.log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what a replica is told when it is started."""
    parser.add_argument("--recipe", type=Path, required=True, metavar="FILE", help="the recipe")
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="run directory as this host sees it")
    parser.add_argument("--replica", required=True, metavar="NAME", help="name of this replica, and of its folder")
    parser.add_argument("--executor", metavar="NAME", help="vLLM's executor, such as ray; default: vLLM's choice")


def main(arguments: argparse.Namespace) -> int:
    """Say what is here, load the engine when told so, compute what is ordered until told to stop."""
    return serve(Channel.of_process(), lambda channel: _extract(channel, arguments))


def serve(channel: Channel, work: Callable[[Channel], None]) -> int:
    """Do `work` and say how it ended; the process ends by itself."""
    try:
        work(channel)
    except DraftkilnError as failure:
        channel.over(failure)
        return failure.code
    except Exception as failure:  # noqa: BLE001 - the driver tells it; nobody reads this process's own words
        channel.over(
            EngineError(f"{type(failure).__name__}: {failure}", why=f"its log is {LOG} in the replica's folder")
        )
        return ExitCode.ENGINE
    channel.over()
    return ExitCode.OK


def _extract(channel: Channel, arguments: argparse.Namespace) -> None:
    from draftkiln import stage, stagelog
    from draftkiln.scale import identity

    context = stage.context("extract", arguments)
    folder = context.run.folder("extract") / REPLICAS / arguments.replica
    (folder / samples.FOLDER).mkdir(parents=True)
    with stagelog.stage_log(folder / LOG, EngineError) as terminal:
        if not channel.identify(identity.found(context)):
            return
        import datasets

        from draftkiln.extract import compute, plan

        rows = datasets.load_from_disk(str(context.run.path / "prepare" / "dataset")).with_format(None)
        lengths = [int(length) for length in rows["seq_len"]]
        plan.refuse_long(lengths, context.recipe.data.max_tokens)
        started = compute.start(context, terminal, lengths, range(len(lengths)), arguments.executor)
        channel.ready()

        def record(receipts: list[Receipt]) -> None:
            channel.deliver(receipts, started.engine.take_answers())

        def token_ids(index: int) -> Any:
            return rows[index]["input_ids"]

        feed = channel.feed
        prompts = feed.prompts(token_ids)
        compute.drive_engine(started, folder / samples.FOLDER, prompts, record, terminal, stopping=lambda: feed.stopped)
