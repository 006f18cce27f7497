"""CUDA machine code inside shared libraries, thinned to what one generation of GPU runs.

A library carries its kernels in the ELF section `.nv_fatbin`: containers laid end to end, each with entries of machine
code (a kind of ELF) and of PTX for several generations. The driver takes the machine code of its own generation, else
compiles the newest PTX that is not newer than itself. Entries that it would never take are left out here; what remains
moves up in its container, whose place does not change, and zeros follow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC = 0xBA55ED50
_PTX, _CODE = 1, 2
_HEAD = struct.Struct("<IHHQ")
"""Of a container: magic, version, size of this head, size of all entries."""
_ENTRY = struct.Struct("<HHIQ")
"""Of an entry: kind, version, size of its head, size of what follows it."""
_ARCHITECTURE = 28
"""Offset of the generation in the head of an entry, as `90` for compute capability 9.0."""


@dataclass(frozen=True)
class _Entry:
    kind: int
    generation: int
    data: bytes


def thin(library: bytes, generation: int) -> bytes:
    """The library with machine code for `generation` alone (`90` for compute capability 9.0); its size stays the same.

    What is no ELF file, or has no section of machine code, or one laid out in a way not known here, stays as it is.
    """
    section = _section(library)
    if section is None:
        return library
    thinned = bytearray(library)
    at, end = section
    while at < end:
        magic, _, head, size = _HEAD.unpack_from(library, at)
        if magic != _MAGIC:
            return library
        kept = b"".join(entry.data for entry in _kept(list(_entries(library, at + head, size)), generation))
        struct.pack_into("<Q", thinned, at + _HEAD.size - 8, len(kept))
        thinned[at + head : at + head + size] = kept + bytes(size - len(kept))
        at += head + size
    return bytes(thinned)


def _entries(library: bytes, start: int, size: int) -> Iterator[_Entry]:
    at = start
    while at < start + size:
        kind, _, head, body = _ENTRY.unpack_from(library, at)
        (generation,) = struct.unpack_from("<I", library, at + _ARCHITECTURE)
        yield _Entry(kind, generation, library[at : at + head + body])
        at += head + body


def _kept(entries: list[_Entry], generation: int) -> list[_Entry]:
    """What a GPU of `generation` takes: code for it or an earlier one of the same major number, else the newest PTX."""
    major = generation // 10
    code = [one for one in entries if one.kind == _CODE and major * 10 <= one.generation <= generation]
    if code:
        newest = max(one.generation for one in code)
        return [one for one in code if one.generation == newest]
    texts = [one for one in entries if one.kind == _PTX and one.generation <= generation]
    newest = max((one.generation for one in texts), default=0)
    return [one for one in texts if one.generation == newest]


def _section(library: bytes) -> tuple[int, int] | None:
    """Begin and end of `.nv_fatbin` in a 64-bit little-endian ELF file."""
    if library[:6] != b"\x7fELF\x02\x01":
        return None
    (table,) = struct.unpack_from("<Q", library, 0x28)
    size, count, names = struct.unpack_from("<HHH", library, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", library, table + number * size) for number in range(count)]
    text = heads[names][4]
    for name, _, _, _, offset, length in heads:
        if library[text + name : text + name + 11] == b".nv_fatbin\0":
            return offset, offset + length
    return None
