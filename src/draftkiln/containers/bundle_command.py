"""`draftkiln bundle`: what an air-gapped host needs, in numbered parts with an install script."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import signals
from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse

    from draftkiln.containers import repack


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("--stack", action="append", default=[], metavar="STACK", help="repeat for several")
    parser.add_argument("--recipe", type=Path, metavar="FILE", help="the stacks that this recipe's stages run on")
    parser.add_argument(
        "--stage", action="append", default=[], metavar="STAGE", help="with --recipe: of these stages only"
    )
    parser.add_argument("--out", type=Path, default=Path("dist", "bundle"), metavar="DIR", help="default: dist/bundle")
    parser.add_argument("--chunk", default="60M", metavar="SIZE", help="largest part (default: 60M)")
    parser.add_argument("--have", type=Path, metavar="FILE", help="`pip freeze` of the host: what it has is left out")
    parser.add_argument(
        "--same-release", action="store_true", help="with --have: another build of the same release (+cu128) will do"
    )
    parser.add_argument(
        "--host-version", action="append", default=[], metavar="NAME", help="the host's own version of it will do"
    )
    parser.add_argument("--without", action="append", default=[], metavar="NAME", help="leave this package out")
    parser.add_argument(
        "--small", action="store_true", help="pack the wheels anew: smaller, and slower to make and to install"
    )
    parser.add_argument(
        "--gpu", metavar="X.Y", help="with --small: machine code for this compute capability alone (9.0: H100, H200)"
    )
    parser.add_argument(
        "--drop", action="append", default=[], metavar="GLOB", help="with --small: leave these files of wheels out"
    )
    parser.add_argument("--python", metavar="X.Y", help="of the host (default: that of the stack's image)")
    parser.add_argument("--together", action="store_true", help="one bundle for all stacks, what they share once")
    parser.add_argument("--image", action="store_true", help="the built image in place of wheels")
    parser.add_argument("--engine", metavar="PROGRAM", help="with --image: podman or docker")


def main(arguments: argparse.Namespace) -> int:
    """Write the bundles; SIGTERM leaves no temporary file."""
    with signals.raised():
        return _write(arguments)


def _write(arguments: argparse.Namespace) -> int:
    """Write one bundle a stack, or one of all."""
    from draftkiln.containers import bundle, engine, inputs

    chunk = bundle.size_of(arguments.chunk)
    leaner = bundle.Leaner(
        bundle.read_freeze(arguments.have) if arguments.have else {},
        arguments.same_release,
        frozenset(arguments.host_version),
        frozenset(arguments.without),
        _smaller(arguments),
    )
    stacks = _stacks(arguments)
    if arguments.together:
        if arguments.image:
            raise UsageError("--together is for wheels", fix="ship images one by one")
        several = [inputs.collect(name, make_base=False, need_base=False, python=arguments.python) for name in stacks]
        bundle.say(bundle.together(several, arguments.out.absolute(), chunk=chunk, leaner=leaner), arguments.out)
        return ExitCode.OK
    for name in stacks:
        out = (arguments.out if len(stacks) == 1 else arguments.out / name).absolute()
        collected = inputs.collect(name, make_base=False, need_base=False, python=arguments.python)
        if arguments.image:
            manifest = bundle.image(engine.find(arguments.engine), collected, out, chunk=chunk)
        else:
            manifest = bundle.wheels(collected, out, chunk=chunk, leaner=leaner)
        bundle.say(manifest, out)
    return ExitCode.OK


def _smaller(arguments: argparse.Namespace) -> repack.Smaller | None:
    from draftkiln.containers import repack

    if not arguments.small:
        if arguments.gpu or arguments.drop:
            raise UsageError("--gpu and --drop pack wheels anew", fix="say --small as well")
        return None
    if arguments.gpu is None:
        return repack.Smaller(drop=tuple(arguments.drop))
    if not re.fullmatch(r"\d+\.\d", arguments.gpu):
        raise UsageError(f"{arguments.gpu!r} is no compute capability", fix="write it as 9.0")
    return repack.Smaller(int(arguments.gpu.replace(".", "")), tuple(arguments.drop))


def _stacks(arguments: argparse.Namespace) -> list[str]:
    found = list(arguments.stack)
    if arguments.recipe:
        from draftkiln.recipe.load import load
        from draftkiln.recipe.model import STAGES

        recipe = load(arguments.recipe)
        unknown = set(arguments.stage) - set(STAGES)
        if unknown:
            raise UsageError(f"no stage named {', '.join(sorted(unknown))}", fix=f"one of {', '.join(STAGES)}")
        found += [recipe.stacks.of(stage) for stage in STAGES if not arguments.stage or stage in arguments.stage]
    if not found:
        raise UsageError("nothing to bundle", fix="name a stack or a recipe")
    return list(dict.fromkeys(found))
