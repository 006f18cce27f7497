import lzma
import struct
import zipfile
from io import BytesIO

import pytest

from draftkiln.containers import fatbin, repack

PTX, CODE = 1, 2


def entry(kind, generation, body):
    body += bytes(-len(body) % 8)
    return struct.pack("<HHIQ12xI32x", kind, 0x101, 64, len(body), generation) + body


def container(*entries):
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(section, name=b".nv_fatbin"):
    """An ELF file of one section beside the table of names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    at = 64
    table = at + len(section) + len(names)
    head = b"\x7fELF\x02\x01" + bytes(34) + struct.pack("<Q", table) + bytes(10) + struct.pack("<HHH", 64, 3, 2)
    head = head[:0x28] + struct.pack("<Q", table) + bytes(10) + struct.pack("<HHH", 64, 3, 2)
    assert len(head) == 64
    rows = [
        bytes(64),
        struct.pack("<IIQQQQ24x", 1, 1, 0, 0, at, len(section)),
        struct.pack("<IIQQQQ24x", 1 + len(name) + 1, 3, 0, 0, at + len(section), len(names)),
    ]
    return head + section + names + b"".join(rows)


def kept(thinned, containers):
    """Kinds, generations and bodies that remain in each container."""
    at, found = 64, []
    for original in containers:
        _, _, head, size = struct.unpack_from("<IHHQ", thinned, at)
        inner, entries = at + head, []
        while inner < at + head + size:
            kind, _, own, length = struct.unpack_from("<HHIQ", thinned, inner)
            generation = struct.unpack_from("<I", thinned, inner + 28)[0]
            entries.append((kind, generation, thinned[inner + own : inner + own + length].rstrip(b"\0")))
            inner += own + length
        found.append(entries)
        at += len(original)
    return found


def test_code_of_one_generation_remains_and_ptx_only_where_there_is_none():
    containers = [
        container(entry(CODE, 80, b"x"), entry(CODE, 90, b"ninety"), entry(CODE, 90, b"ninety-a"), entry(PTX, 90, b"")),
        container(entry(PTX, 75, b"old"), entry(PTX, 80, b"text"), entry(CODE, 80, b"eighty"), entry(PTX, 100, b"new")),
        container(entry(CODE, 100, b"hundred")),
        container(entry(CODE, 80, b"eighty"), entry(CODE, 86, b"eighty-six")),
    ]  # fmt: skip
    whole = library(b"".join(containers))
    thinned = fatbin.thin(whole, 90)
    assert len(thinned) == len(whole)
    assert kept(thinned, containers) == [[(2, 90, b"ninety"), (2, 90, b"ninety-a")], [(1, 80, b"text")], [], []]
    # A GPU also runs code for an earlier one of its own major number.
    assert kept(fatbin.thin(whole, 89), containers)[3] == [(2, 86, b"eighty-six")]
    # What lies outside of the containers stays as it is.
    tail = 64 + sum(map(len, containers))
    assert thinned[:64] == whole[:64]
    assert thinned[tail:] == whole[tail:]


@pytest.mark.parametrize(
    "data",
    [
        b"no library",
        library(container(entry(CODE, 80, b"x")), name=b".rodata99"),
        library(b"\1\2\3\4" * 8),
    ],
)
def test_what_is_laid_out_otherwise_stays_as_it_is(data):
    assert fatbin.thin(data, 90) == data


def test_a_wheel_is_packed_anew_without_what_was_named(tmp_path):
    wheel = tmp_path / "x-1-py3-none-any.whl"
    code = library(container(entry(CODE, 80, b"eighty"), entry(CODE, 90, b"ninety")))
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in (("x/__init__.py", b"1"), ("x/_C.so", code), ("x/lib/y.a", b"static"), ("x/z.txt", b"2")):
            archive.writestr(name, data)
    how = repack.Smaller(90, ("x/lib/*.a",))
    again = repack.repack(wheel, how)
    with zipfile.ZipFile(BytesIO(lzma.decompress(again.data))) as archive:
        found = {name: archive.read(name) for name in archive.namelist()}
    assert found == {"x/__init__.py": b"1", "x/_C.so": fatbin.thin(code, 90), "x/z.txt": b"2"}
    assert again.unpacked == sum(map(len, found.values()))
    assert again.changes == ("x/_C.so: machine code for generation 90 alone", "left out x/lib/y.a")
    assert repack.repack(wheel, how) == again
    assert repack.repack(wheel, repack.Smaller()).changes == ()
