"""The licence terms of a target, out of what lies beside its weights; what is not known is said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln import durable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_FRONT = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_FILES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")
_LONGEST = 200
_LARGEST = 1 << 20
_KNOWN = {"smollm2": ("apache-2.0", "the package that carries its weights")}
"""Targets that this program fetches by name -> licence, and what states it."""
_MADE = "none of anybody else: draftkiln made this target up from a seed"


@dataclass(frozen=True)
class Terms:
    """Licence terms.

    Attributes:
        licence: identifier, as model cards write it; None where it is not known.
        name: of a licence that has no identifier, or why there is none.
        link: where it stands.
        stated_by: what says so.
        files: licence files beside the weights -> first line and sha256.
    """

    licence: str | None
    name: str | None = None
    link: str | None = None
    stated_by: str | None = None
    files: tuple[tuple[str, str, str], ...] = ()


def of(target: Path, source: Mapping[str, Any]) -> Terms:
    """Terms of the target in the folder `target`, which came from `source` (a recipe's `target.source`)."""
    files = tuple(_licence_files(target))
    card = _front_matter(target / "README.md")
    written = {key: value for key, value in card.items() if isinstance(value, str) and value.strip()}
    if "license" in written:
        name, link = written.get("license_name"), written.get("license_link")
        return Terms(written["license"], name, link, "the target's README.md", files)
    config = _config(target / "config.json")
    if isinstance(config.get("license"), str):
        return Terms(config["license"], stated_by="the target's config.json", files=files)
    if source.get("fetch") in _KNOWN:
        licence, stated_by = _KNOWN[source["fetch"]]
        return Terms(licence, stated_by=stated_by, files=files)
    if "make" in source:
        return Terms(None, _MADE, files=files)
    return Terms(None, files=files)


def _licence_files(target: Path) -> list[tuple[str, str, str]]:
    found = []
    for file in sorted(target.iterdir()) if target.is_dir() else []:
        if file.is_file() and file.name.upper().startswith(_FILES) and file.stat().st_size <= _LARGEST:
            lines = (line.strip() for line in file.read_text(encoding="utf-8", errors="replace").splitlines())
            found.append((file.name, next((line for line in lines if line), "")[:_LONGEST], durable.sha256_file(file)))
    return found


def _front_matter(file: Path) -> dict[str, Any]:
    import yaml

    if not file.is_file() or file.stat().st_size > _LARGEST:
        return {}
    found = _FRONT.match(file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n"))
    try:
        value = yaml.safe_load(found[1]) if found else None
    except yaml.YAMLError:
        return {}
    return value if isinstance(value, dict) else {}


def _config(file: Path) -> dict[str, Any]:
    from draftkiln.errors import RunDirectoryError
    from draftkiln.rundir import read_json

    try:
        return read_json(file)
    except RunDirectoryError:
        return {}
