"""`draftkiln image`: make, verify, compare, run and ship the images of stacks."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import signals
from draftkiln.containers import run_command
from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands."""
    parser.add_argument(
        "--engine", metavar="PROGRAM", help="podman or docker (default: $DRAFTKILN_ENGINE, or what is here)"
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    base = actions.add_parser("base", help="make the root file system that images start from")
    base.add_argument("names", nargs="*", metavar="BASE", help="default: cpu")
    base.add_argument("--force", action="store_true", help="make it anew")
    base.add_argument(
        "--from", dest="source", type=Path, metavar="FILE", help="take a base.tar that was made elsewhere"
    )
    build = actions.add_parser("build", help="build a stack's image")
    build.add_argument(
        "--stack", required=True, metavar="STACK", help="a stack, or `light`: a small image of the same file"
    )
    build.add_argument("--dry-run", action="store_true", help="print the command line, build nothing")
    build.add_argument("--store", type=Path, metavar="DIR", help="keep images here, not in the engine's store (podman)")
    fetch = actions.add_parser("fetch", help="fetch all that a build takes from a network, build nothing")
    fetch.add_argument("--stack", required=True, metavar="STACK")
    reproduce = actions.add_parser("reproduce", help="build twice from clean stores and compare byte by byte")
    reproduce.add_argument("--stack", default="light", metavar="STACK", help="default: a small image of the same file")
    context = actions.add_parser(
        "context", help="write the build context for another builder and print its command line"
    )
    context.add_argument("--stack", required=True, metavar="STACK")
    context.add_argument("--out", required=True, type=Path, metavar="DIR")
    verify = actions.add_parser("verify", help="check that an image holds what its lock says")
    verify.add_argument("--stack", required=True, metavar="STACK")
    sbom = actions.add_parser("sbom", help="write the CycloneDX bill of materials of an image")
    sbom.add_argument("--stack", required=True, metavar="STACK")
    sbom.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
    pins = actions.add_parser("pins", help="look every pin up: present, gone, moved, or nobody could be asked")
    pins.add_argument("--stack", action="append", default=[], metavar="STACK", help="default: all")
    publish = actions.add_parser("publish", help="push a stack's image, or mirror an image by digest")
    what = publish.add_mutually_exclusive_group(required=True)
    what.add_argument("--stack", metavar="STACK")
    what.add_argument("--mirror", metavar="NAME@sha256:DIGEST")
    publish.add_argument("--to", required=True, metavar="REGISTRY/NAME:TAG")
    run_command.add_arguments(actions)
    actions.add_parser("packages", help="print the Debian packages that images need and this machine lacks")


def main(arguments: argparse.Namespace) -> int:
    """Run one subcommand."""
    actions = {
        "base": _base,
        "build": _build,
        "context": _context,
        "fetch": _fetch,
        "logs": run_command.logs,
        "packages": _packages,
        "pins": _pins,
        "publish": _publish,
        "reproduce": _reproduce,
        "run": run_command.run,
        "sbom": _sbom,
        "stage": run_command.stage,
        "status": run_command.status,
        "stop": run_command.stop,
        "verify": _verify,
    }
    with signals.raised():
        return actions[arguments.action](arguments)


def _base(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import base

    names = arguments.names or ["cpu"]
    if arguments.source and len(names) > 1:
        raise UsageError("--from FILE is one base", why=f"named are {', '.join(names)}", fix="name one of them")
    for name in names:
        made = base.take(name, arguments.source) if arguments.source else base.make(name, force=arguments.force)
        size = made.tar.stat().st_size / 1e6
        print(f"base {name}: sha256 {made.sha256}, {len(made.packages)} packages, {size:.0f} MB, {made.tar}")
    return ExitCode.OK


def _build(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import build, engine, inputs

    chosen = engine.find(arguments.engine)
    collected = inputs.collect(arguments.stack, make_base=not arguments.dry_run)
    if arguments.dry_run:
        print(shlex.join(build.build_line(chosen, collected, Path("CONTEXT"))))
        return ExitCode.OK
    store = build.Store(arguments.store.absolute()) if arguments.store else None
    # Each store has a context of its own: two builds may run at once.
    folder = arguments.store.absolute() / "context" if arguments.store else None
    built = build.build(chosen, collected, context=folder, store=store)
    print(f"image {built.tag}: id {built.image_id}, {built.seconds:.0f} s")
    # The session `build` installs the library for it; an image is no worse without.
    if store is None and importlib.util.find_spec("cyclonedx") is not None:
        from draftkiln import cache, durable
        from draftkiln.containers import sbom

        file = cache.root() / "images" / f"{arguments.stack}.cdx.json"
        durable.write_text(file, sbom.bill(collected, built.image_id))
        print(f"bill of materials: {file}")
    return ExitCode.OK


def _fetch(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import inputs, wheelhouse

    collected = inputs.collect(arguments.stack)
    wheels = wheelhouse.fetch(collected.packages, collected.platform)
    size = sum(wheel.stat().st_size for wheel in wheels) / 1e6
    print(f"image {collected.tag}: base and {len(wheels)} wheels ({size:.0f} MB) are here, a build needs no network")
    return ExitCode.OK


def _reproduce(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import engine, reproduce

    first, _ = reproduce.reproduce(engine.find(arguments.engine), arguments.stack)
    print(
        f"reproduce: two builds of {arguments.stack} are bit-identical: id {first.image_id}, {len(first.blobs)} blobs"
    )
    return ExitCode.OK


def _context(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import build, context, engine, inputs

    collected = inputs.collect(arguments.stack)
    folder = context.assemble(collected, arguments.out.absolute())
    print(shlex.join(build.build_line(engine.find(arguments.engine), collected, folder)))
    return ExitCode.OK


def _packages(_arguments: argparse.Namespace) -> int:
    from draftkiln.containers import engine

    print(" ".join(engine.missing_packages()))
    return ExitCode.OK


def _verify(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import engine, inputs, verify

    collected = inputs.collect(arguments.stack, make_base=False)
    modules = ("speculators", "draftkiln", *([collected.warm] if collected.warm else []))
    modules = ("draftkiln", "numpy", "pydantic") if arguments.stack == inputs.LIGHT else modules
    checks = verify.verify(engine.find(arguments.engine), collected, imports=modules)
    for check in checks:
        print(check)
    verify.demand(checks, collected.tag)
    return ExitCode.OK


def _sbom(arguments: argparse.Namespace) -> int:
    from draftkiln import durable
    from draftkiln.containers import build, engine, inputs, sbom

    collected = inputs.collect(arguments.stack, make_base=False)
    chosen = engine.find(arguments.engine)
    here = chosen.attempt("image", "inspect", collected.tag).returncode == 0
    text = sbom.bill(collected, build.identity(chosen, collected.tag) if here else None)
    if arguments.out:
        durable.write_text(arguments.out, text)
        print(f"bill of materials: {arguments.out}")
    else:
        print(text, end="")
    return ExitCode.OK


def _pins(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import engine, pins
    from draftkiln.errors import ContainerError, SystemMissingError
    from draftkiln.stack.model import names

    try:
        chosen = engine.find(arguments.engine)
    except (SystemMissingError, ContainerError):
        chosen = None
    found = pins.check(arguments.stack or names(), chosen)
    for pin in found:
        print(pin)
    counts = {state: sum(pin.state is state for pin in found) for state in pins.State}
    print(", ".join(f"{count} {state}" for state, count in counts.items() if count))
    return pins.verdict(found)


def _publish(arguments: argparse.Namespace) -> int:
    from draftkiln.containers import engine, inputs, publish

    if arguments.mirror:
        reference = publish.mirror(arguments.mirror, arguments.to)
    else:
        reference = publish.push(engine.find(arguments.engine), inputs.image_name(arguments.stack), arguments.to)
    print(f"published: {reference}")
    return ExitCode.OK
