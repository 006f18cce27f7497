"""`draftkiln bundle`: what an air-gapped host needs, in numbered parts with an install script."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import ExitCode, UsageError

if TYPE_CHECKING:
    import argparse


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
    parser.add_argument("--image", action="store_true", help="the built image in place of wheels")
    parser.add_argument("--engine", metavar="PROGRAM", help="with --image: podman or docker")


def main(arguments: argparse.Namespace) -> int:
    """Write one bundle a stack."""
    from draftkiln.containers import bundle, engine, inputs

    chunk = bundle.size_of(arguments.chunk)
    have = bundle.read_freeze(arguments.have) if arguments.have else {}
    stacks = _stacks(arguments)
    for name in stacks:
        out = (arguments.out if len(stacks) == 1 else arguments.out / name).absolute()
        collected = inputs.collect(name, make_base=False, need_base=False)
        if arguments.image:
            manifest = bundle.image(engine.find(arguments.engine), collected, out, chunk=chunk)
        else:
            manifest = bundle.wheels(collected, out, chunk=chunk, have=have, same_release=arguments.same_release)
        bundle.say(manifest, out)
    return ExitCode.OK


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
