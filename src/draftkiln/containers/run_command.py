"""The subcommands of `draftkiln image` that run containers: run, stage, status, logs, stop."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.errors import ContainerError, ExitCode, PreflightError, UsageError

if TYPE_CHECKING:
    import argparse

    from draftkiln.containers.engine import Engine
    from draftkiln.containers.launch import Gpus, Launch
    from draftkiln.containers.running import Running
    from draftkiln.containers.stage import Wishes


def add_arguments(actions: Any) -> None:
    """Add the subcommands."""
    run = actions.add_parser("run", help="run a command of draftkiln in a stack's image: … run --stack S -- --help")
    run.add_argument("--stack", required=True, metavar="STACK")
    run.add_argument(
        "--mount", action="append", default=[], metavar="DIR", help="seen inside under its own path, read-only"
    )
    run.add_argument("--write", action="append", default=[], metavar="DIR", help="the same, writable")
    run.add_argument("arguments", nargs="*", metavar="ARGUMENT", help="of draftkiln, after --")
    stage = actions.add_parser("stage", help="run a stage of a recipe in its stack's image")
    stage.add_argument("stage", metavar="STAGE")
    stage.add_argument("--recipe", type=Path, required=True, metavar="FILE")
    stage.add_argument("--run", type=Path, required=True, metavar="DIR")
    stage.add_argument(
        "--stage-argument",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="one more argument of the stage itself: --stage-argument=--shard=1/4",
    )
    for parser in (run, stage):
        _add_wishes(parser)
    for name, text in (("status", "list"), ("logs", "print the output of"), ("stop", "end, with time to finish,")):
        parser = actions.add_parser(name, help=f"{text} the detached stages of a run directory")
        parser.add_argument("--run", type=Path, metavar="DIR", required=name != "status")
        if name == "logs":
            parser.add_argument("--follow", action="store_true")


def _add_wishes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", metavar="all|COUNT|IDS", help="default: as many as the recipe's tensor parallel size")
    parser.add_argument("--gpu-form", choices=("native", "cdi"), default="native", help="cdi: docker 25 or later")
    parser.add_argument(
        "--shm-size", metavar="SIZE|host", help="shared memory (default: 16g where several workers need it)"
    )
    parser.add_argument("--network", default="none", help="default: none")
    parser.add_argument("--env", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--detach", action="store_true", help="start it and return; see status, logs, stop")
    parser.add_argument("--no-relabel", action="store_true", help="leave SELinux labels of mounts alone")
    parser.add_argument("--infiniband", action="store_true", help="several machines: its devices and locked memory")
    parser.add_argument("--dry-run", action="store_true", help="print the command line, run nothing")


def run(arguments: argparse.Namespace) -> int:
    """Run any command of draftkiln in an image."""
    import dataclasses

    from draftkiln.containers import engine, inputs
    from draftkiln.containers.launch import Launch, Mount

    wishes = _wishes(arguments)
    mounts = [Mount(Path(path).absolute(), str(Path(path).absolute())) for path in arguments.mount]
    mounts += [Mount(Path(path).absolute(), str(Path(path).absolute()), True, False) for path in arguments.write]  # noqa: FBT003
    shared = dataclasses.asdict(wishes)
    launch = Launch(
        image=inputs.image_name(arguments.stack),
        command=tuple(arguments.arguments),
        mounts=tuple(mounts),
        gpus=wishes.gpus,
        environment=dict(wishes.environment),
        name=f"draftkiln-run-{arguments.stack}" if wishes.detach else None,
        label=arguments.stack,
        **{key: shared[key] for key in ("gpu_form", "shared_memory", "network", "detach", "relabel", "infiniband")},
    )
    return _go(engine.find(arguments.engine), launch, arguments.stack, dry_run=arguments.dry_run)


def stage(arguments: argparse.Namespace) -> int:
    """Run one stage in its image."""
    from draftkiln.containers import current, engine, launch, stage
    from draftkiln.recipe.load import load
    from draftkiln.recipe.model import STAGES

    if arguments.stage not in STAGES:
        raise UsageError(f"no stage named {arguments.stage!r}", fix=f"one of {', '.join(STAGES)}")
    chosen, name = engine.find(arguments.engine), load(arguments.recipe).stacks.of(arguments.stage)
    words = arguments.stage, arguments.recipe, arguments.run, _wishes(arguments)
    if arguments.dry_run:
        _tell_ahead(arguments)
        return _go(chosen, stage.launch(*words, made=False), name, dry_run=True)
    # Before anything is made: a target that is fetched may take longer than the stage.
    current.require(chosen, name)
    launch.run_line(chosen, stage.launch(*words, made=False))
    with stage.left_as_found(arguments.run, used_on=arguments.detach):
        return _go(chosen, stage.launch(*words), name, dry_run=False)


def _tell_ahead(arguments: argparse.Namespace) -> None:
    """Say what the stage would do in its run directory, beside the line that is printed."""
    from draftkiln import ahead
    from draftkiln.recipe.load import load

    left_out = ahead.BY_ARGUMENTS if arguments.stage_argument else ()
    for found in ahead.outlooks(load(arguments.recipe), arguments.run, [arguments.stage], left_out=left_out):
        print(f"{found.stage}: {found.words}", file=sys.stderr)


def status(arguments: argparse.Namespace) -> int:
    """Print the containers of a run directory, or all."""
    from draftkiln.containers import engine, running

    chosen = engine.find(arguments.engine)
    found = running.listed(chosen) if arguments.run is None else _named(chosen, arguments.run)
    for item in found:
        code = "" if item.exit_code is None else f" with exit code {item.exit_code}"
        print(f"{item.name}: {item.state}{code}, run directory {item.run}")
    if not found:
        print("no stage was detached here")
    return ExitCode.OK


def logs(arguments: argparse.Namespace) -> int:
    """Print what the newest container of a run directory wrote."""
    from draftkiln.containers import engine, running

    chosen = engine.find(arguments.engine)
    return running.show_log(chosen, _of(chosen, arguments.run)[0].name, follow=arguments.follow)


def stop(arguments: argparse.Namespace) -> int:
    """End and remove the containers of a run directory."""
    from draftkiln.containers import engine, running

    chosen = engine.find(arguments.engine)
    for item in _of(chosen, arguments.run):
        print(f"{item.name}: ended with exit code {running.stop(chosen, item)}")
    return ExitCode.OK


def _named(chosen: Engine, run: Path) -> list[Running]:
    """The containers of a run directory, or of the stack that `image run --detach` was given."""
    from draftkiln.containers import running

    return running.listed(chosen, run.absolute()) or running.listed(chosen, run)


def _of(chosen: Engine, run: Path) -> list[Running]:
    found = _named(chosen, run)
    if not found:
        raise ContainerError(f"no stage of {run} was detached", fix="start it: draftkiln image stage … --detach")
    return found


def _go(engine: Engine, launch: Launch, stack: str, *, dry_run: bool) -> int:
    from draftkiln.containers import running
    from draftkiln.containers.launch import memlock_warning, run_line

    if launch.infiniband and (warning := memlock_warning(engine)):
        print(f"warning: {warning}", file=sys.stderr)
    if dry_run:
        print(shlex.join(run_line(engine, launch)))
        return ExitCode.OK
    running.require_image(engine, launch.image, stack)
    if launch.gpus is not None:
        _check_driver(engine, launch.image)
    if launch.detach:
        name = running.detached(engine, launch)
        print(f"{name}: started; draftkiln image status, logs or stop --run {launch.label}")
        return ExitCode.OK
    return running.foreground(engine, launch)


def _check_driver(engine: Engine, image: str) -> None:
    from draftkiln.containers import driver

    cuda = engine.capture("image", "inspect", "--format", '{{index .Config.Labels "draftkiln.cuda"}}', image).strip()
    if not cuda:
        return
    verdict = driver.compare(cuda, driver.installed())
    if verdict.state == "fail":
        raise PreflightError(
            verdict.reason, why="the image's CUDA libraries do not start on it", fix="update the driver"
        )
    if verdict.state in {"warn", "skip"}:
        print(f"warning: {verdict.reason}", file=sys.stderr)


def _wishes(arguments: argparse.Namespace) -> Wishes:
    from draftkiln.containers.stage import Wishes

    pairs = [text.partition("=") for text in arguments.env]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise UsageError(f"--env {wrong[0]} has no value", fix="write it as KEY=VALUE")
    return Wishes(
        gpus=_gpus(arguments.gpus),
        gpu_form=arguments.gpu_form,
        shared_memory=arguments.shm_size,
        network=arguments.network,
        detach=arguments.detach,
        relabel=not arguments.no_relabel,
        infiniband=arguments.infiniband,
        environment=tuple((key, value) for key, _, value in pairs),
        arguments=tuple(getattr(arguments, "stage_argument", ())),
    )


def _gpus(text: str | None) -> Gpus | None:
    from draftkiln.containers.launch import Gpus

    if text is None:
        return None
    if text == "all":
        return Gpus()
    if text.isdigit() and int(text) > 0:
        return Gpus(count=int(text))
    ids = tuple(text.split(","))
    if not all(ids) or text == "0":
        raise UsageError(f"--gpus {text} means nothing", fix="all, a count, or ids such as 0,1 or GPU-…")
    return Gpus(ids=ids)
