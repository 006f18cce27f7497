"""Install an offline bundle: `python3 install.py --target DIR`. Needs this Python alone, no network.

The folder of this file holds `bundle.json` and the numbered parts. Every part and every file in them is verified by
sha256 before it is used. What is installed already is not installed again: after a stop, run it again.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import lzma
import os
import platform
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
BLOCK = 1 << 20
_DATA_MEMBER = 3
"""Least parts of `name.data/scheme/file`."""
_SCHEMES = {"purelib": "", "platlib": "", "scripts": "bin/", "headers": "include/", "data": ""}


class RefusedError(Exception):
    """Something is missing or has other bytes."""


def main() -> None:
    """Verify, then install wheels into a folder, or load an image."""
    parser = argparse.ArgumentParser(description="Install an offline bundle; needs python3 alone, no network.")
    parser.add_argument("--target", type=Path, metavar="DIR", help="folder to install into, then put it on PYTHONPATH")
    parser.add_argument("--engine", metavar="PROGRAM", help="for images: podman or docker (default: what is here)")
    parser.add_argument("--verify", action="store_true", help="verify the parts, install nothing")
    arguments = parser.parse_args()
    try:
        _run(arguments)
    except (RefusedError, OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        sys.exit(f"install: {error}")


def _run(arguments: argparse.Namespace) -> None:
    bundle = json.loads((HERE / "bundle.json").read_text(encoding="utf-8"))
    verify_parts(bundle["parts"])
    if arguments.verify:
        print(f"all {len(bundle['parts'])} parts are right")
    elif bundle["kind"] == "image":
        load_image(bundle, arguments.engine)
    elif arguments.target is None:
        raise RefusedError("name a folder: --target DIR")
    else:
        install(bundle, arguments.target.resolve())


def verify_parts(parts: list[dict[str, Any]]) -> None:
    """Hold that every part is here with its bytes; all problems at once."""
    problems = []
    for part in parts:
        path = HERE / part["name"]
        if not path.exists():
            problems.append(f"{part['name']} is missing")
        elif sha256(path) != part["sha256"]:
            problems.append(f"{part['name']} has other bytes: copy it again")
    if problems:
        raise RefusedError("\n  ".join(["nothing was installed:", *problems]))


def sha256(path: Path) -> str:
    """Hex sha256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def install(bundle: dict[str, Any], target: Path) -> None:
    """Install every wheel that is not installed yet."""
    check_host(bundle)
    if ":" in str(target):
        raise RefusedError(f"{target} cannot go on PYTHONPATH, which is split at `:`; name another folder")
    target.mkdir(parents=True, exist_ok=True)
    journal = target / ".draftkiln-bundle"
    done = set(journal.read_text(encoding="ascii").split()) if journal.exists() else set()
    wanted = [item for item in bundle["files"] if item["sha256"] not in done]
    largest = max((item["size"] + (item["unpacked"] if item.get("packed") else 0) for item in wanted), default=0)
    needed = sum(item["unpacked"] for item in wanted) + largest
    free = shutil.disk_usage(target).free
    if free < needed:
        raise RefusedError(f"not enough room in {target}: {needed >> 20} MB needed, {free >> 20} MB free")
    for item in wanted:
        temporary = target / ".part.tmp"
        extract(bundle["parts"], item, temporary)
        if item.get("packed"):
            decompress(temporary)
        unpack(temporary, target / item["into"] if "into" in item else target)
        temporary.unlink()
        with journal.open("a", encoding="ascii") as file:
            file.write(item["sha256"] + "\n")
            file.flush()
            os.fsync(file.fileno())
        print(f"installed {item['name']}")
    own = {"PYTHONPATH": str(target), "DRAFTKILN_HOME": str(target)}
    # Of several stacks each process takes its own one's folder and variables.
    own |= {"DRAFTKILN_BUNDLE": str(target)} if "stacks" in bundle else {"DRAFTKILN_STACK": bundle["stack"]}
    lines = [
        f"export {key}={shlex.quote(value)}\n"
        for key, value in sorted({**bundle.get("environment", {}), **own}.items())
    ]
    (target / "env.sh").write_text("".join(lines), encoding="utf-8")
    print(f"{len(bundle['files']) - len(wanted)} of {len(bundle['files'])} files were installed before")
    print(f"go on with: . {shlex.quote(f'{target}/env.sh')} && python3 -m draftkiln --help")


def check_host(bundle: dict[str, Any]) -> None:
    """Hold that this Python is the right one and has what the bundle leaves out."""
    problems = []
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here != bundle["python"] or platform.machine() != bundle["machine"]:
        wanted = f"Python {bundle['python']} on {bundle['machine']}"
        problems.append(f"the bundle is for {wanted}, this is Python {here} on {platform.machine()}")
    for name, version in sorted(bundle["on_host"].items()):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = "not installed"
        if version == "*" and found != "not installed":
            print(f"{name}: this host's own version is taken, {found}")
        elif found != version:
            problems.append(f"{name} {version} must be on this host, it is {found}")
    if problems:
        raise RefusedError("\n  ".join(["nothing was installed:", *problems]))


def blocks(parts: list[dict[str, Any]], start: int, size: int) -> Iterator[bytes]:
    """The bytes `start` to `start + size` of all parts laid end to end."""
    for part in parts:
        if not size or start >= part["size"]:
            start -= part["size"]
            continue
        with (HERE / part["name"]).open("rb") as file:
            file.seek(start)
            while size and (block := file.read(min(BLOCK, size))):
                yield block
                size -= len(block)
        start = 0


def extract(parts: list[dict[str, Any]], item: dict[str, Any], path: Path) -> None:
    """Write one file of the bundle and verify it."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for block in blocks(parts, item["offset"], item["size"]):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != item["sha256"]:
        raise RefusedError(f"{item['name']} has other bytes than recorded")


def decompress(path: Path) -> None:
    """Put what a compressed file holds in its place."""
    plain = path.with_suffix(".plain")
    with lzma.open(path) as source, plain.open("wb") as file:
        shutil.copyfileobj(source, file, BLOCK)
    plain.replace(path)


def unpack(wheel: Path, target: Path) -> None:
    """Lay a wheel out below `target` as `pip install --target` does."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = place(member.filename)
            path = Path(os.path.normpath(target / name))
            if target not in path.parents:
                raise RefusedError(f"{member.filename} leads out of the folder")
            if member.is_dir():
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(member) as source, path.open("wb") as file:
                shutil.copyfileobj(source, file, BLOCK)
            if (member.external_attr >> 16) & 0o111 or name.startswith("bin/"):
                path.chmod(0o755)


def place(name: str) -> str:
    """Where a member of a wheel goes: `x.data/purelib/y` is `y`, `x.data/scripts/z` is `bin/z`."""
    parts = name.split("/")
    if not parts[0].endswith(".data") or len(parts) < _DATA_MEMBER:
        return name
    if parts[1] not in _SCHEMES:
        raise RefusedError(f"{name} is laid out in a way that is not known here")
    return _SCHEMES[parts[1]] + "/".join(parts[2:])


def load_image(bundle: dict[str, Any], chosen: str | None) -> None:
    """Hand the image to the engine."""
    engine = chosen or next((name for name in ("podman", "docker") if shutil.which(name)), None)
    if engine is None:
        raise RefusedError("neither podman nor docker is installed")
    item = bundle["files"][0]
    process = subprocess.Popen([engine, "load"], stdin=subprocess.PIPE)
    if process.stdin is None:
        raise RefusedError("no pipe to the engine")
    for block in blocks(bundle["parts"], item["offset"], item["size"]):
        process.stdin.write(block)
    process.stdin.close()
    if process.wait():
        raise RefusedError(f"{engine} load failed")
    print(f"loaded {bundle['image']}: id {bundle['image_id']}")


if __name__ == "__main__":
    main()
