"""Wheels made smaller for a bundle: packed anew, without what the host's GPU or the recipe never uses.

What is installed differs from the locked wheel then, so every change is kept in the bundle's manifest. The wheel itself
was verified against the lock before.
"""

from __future__ import annotations

import fnmatch
import lzma
import zipfile
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

from draftkiln.containers import fatbin

if TYPE_CHECKING:
    from pathlib import Path

PACKED = "xz"
_EPOCH = (1980, 1, 1, 0, 0, 0)
_LIBRARY = ".so"
_PRESET = 4
"""Of LZMA; 6 takes twice as long for 2 % less."""


@dataclass(frozen=True)
class Smaller:
    """How wheels are made smaller.

    Attributes:
        generation: of the host's GPUs, `90` for compute capability 9.0; None keeps machine code of all.
        drop: patterns of files that are left out.
    """

    generation: int | None = None
    drop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Repacked:
    """A wheel packed anew.

    Attributes:
        data: a zip archive of stored members, compressed as one.
        unpacked: bytes of its members.
        changes: what is not as in the wheel, for the manifest.
    """

    data: bytes
    unpacked: int
    changes: tuple[str, ...]


def repack(wheel: Path, how: Smaller) -> Repacked:
    """Pack a wheel anew: the same inputs give the same bytes."""
    buffer = BytesIO()
    unpacked = 0
    changes = []
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(buffer, "w") as target:
        for member in source.infolist():
            if any(fnmatch.fnmatchcase(member.filename, pattern) for pattern in how.drop):
                changes.append(f"left out {member.filename}")
                continue
            data = source.read(member)
            if how.generation is not None and _LIBRARY in member.filename:
                thinned = fatbin.thin(data, how.generation)
                if thinned != data:
                    changes.append(f"{member.filename}: machine code for generation {how.generation} alone")
                    data = thinned
            copied = zipfile.ZipInfo(member.filename, _EPOCH)
            copied.external_attr = member.external_attr
            target.writestr(copied, data)
            unpacked += len(data)
    return Repacked(compress(buffer.getvalue()), unpacked, tuple(changes))


def compress(data: bytes) -> bytes:
    """`data` as the bundle's installer takes it."""
    return lzma.compress(data, preset=_PRESET)
