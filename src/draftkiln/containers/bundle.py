"""Offline bundles: locked wheels or an image in numbered parts, for GPU hosts that no network reaches."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
import zipfile
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from packaging.utils import canonicalize_name

from draftkiln import checkout, durable
from draftkiln.containers import build, failures, install_bundle, repack, wheelhouse
from draftkiln.containers import inputs as image_inputs
from draftkiln.errors import StorageError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from draftkiln.containers.engine import Engine
    from draftkiln.containers.inputs import Inputs
    from draftkiln.containers.locked import Locked

SCHEMA_VERSION = 1
_BLOCK = 1 << 20
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Item:
    """One file that goes into a bundle."""

    name: str
    stream: IO[bytes]
    unpacked: int
    """Bytes it takes when installed."""
    packed: str = ""
    """How its bytes are compressed as a whole; empty for not at all."""
    changes: tuple[str, ...] = ()
    """What is not as in the locked wheel."""
    into: str = ""
    """Folder below the one that is installed into."""


@dataclass(frozen=True)
class Leaner:
    """What is left out of a bundle of wheels because the host has it or nobody needs it.

    Attributes:
        have: `pip freeze` of the host.
        same_release: whether another build of a locked version will do.
        host_version: packages of which the host's own version will do, whichever it is.
        without: packages that nothing on this host will import.
        smaller: how wheels are packed anew; None: they go in as they are.
    """

    have: dict[str, str] = field(default_factory=dict)
    same_release: bool = False
    host_version: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    smaller: repack.Smaller | None = None


def size_of(text: str) -> int:
    """Bytes of a size such as `60M`.

    Raises:
        UsageError: not a size.
    """
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None or int(match[1]) == 0:
        raise UsageError(f"{text!r} is not a size", fix="write it as 60M or 2G")
    return int(match[1]) * _UNITS[match[2]]


def read_freeze(file: Path) -> dict[str, str]:
    """Name to version of a `pip freeze` listing; what it does not pin by version is not trusted to be there."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"cannot read {file}", why=str(error), fix="make it on the host: pip freeze > FILE") from error
    found = (line.strip().partition("==") for line in lines if "==" in line and "@" not in line)
    return {canonicalize_name(name): version.split(";")[0].strip() for name, _, version in found}


def on_host(packages: Iterable[Locked], leaner: Leaner, known: Iterable[str] = ()) -> dict[str, str]:
    """What the host already has, with the version that it must have (`*`: any).

    Args:
        packages: of the lock.
        leaner: what is left out.
        known: names that may be left out besides, those of the other locks of the same bundle.

    Raises:
        UsageError: a package was named that the lock does not have.
    """
    kept = {}
    named = {canonicalize_name(name) for name in leaner.host_version}
    unknown = (named | {canonicalize_name(name) for name in leaner.without}) - {
        *known,
        *(package.name for package in packages),
    }
    if unknown:
        raise UsageError(f"the lock has no {', '.join(sorted(unknown))}", fix="correct the name")
    for package in packages:
        version = leaner.have.get(package.name)
        if package.name in named:
            kept[package.name] = version or "*"
        elif version is not None and package.version == (version.split("+")[0] if leaner.same_release else version):
            kept[package.name] = version
    return kept


def wheels(inputs: Inputs, out: Path, *, chunk: int, leaner: Leaner) -> dict[str, Any]:
    """Write a bundle of the stack's wheels, speculators and draftkiln into `out`; returns its manifest."""
    left_out, wanted = _parted(inputs.packages, leaner)
    paths = [*wheelhouse.fetch(wanted, inputs.platform), inputs.speculators]
    head = {
        "kind": "wheels",
        "stack": inputs.stack.name,
        "revision": inputs.revision,
        "python": inputs.platform.python,
        "machine": inputs.platform.machine,
        "on_host": left_out,
        "without": sorted(canonicalize_name(name) for name in leaner.without),
        "environment": inputs.stack.file.environment,
        "requirements_sha256": inputs.requirements_sha256,
    }
    items = _wheel_items([(path, "") for path in paths], leaner.smaller)
    return _write(out, head, items, chunk, sum(path.stat().st_size for path in paths))


def together(several: Sequence[Inputs], out: Path, *, chunk: int, leaner: Leaner) -> dict[str, Any]:
    """Write one bundle of several stacks into `out`; returns its manifest.

    A package goes in once where all stacks that have it have the same version, else into each stack's own folder,
    where its speculators lies.
    """
    versions: dict[str, set[str]] = {}
    for inputs in several:
        for package in inputs.packages:
            versions.setdefault(package.name, set()).add(package.version)
    left_out: dict[str, str] = {}
    found: dict[tuple[str, str], None] = {}
    for inputs in several:
        kept, wanted = _parted(inputs.packages, leaner, versions)
        left_out |= kept
        own = f"stacks/{inputs.stack.name}"
        for package, path in zip(wanted, wheelhouse.fetch(wanted, inputs.platform), strict=True):
            found[str(path), "" if len(versions[package.name]) == 1 else own] = None
        found[str(inputs.speculators), own] = None
    paths = [(Path(path), into) for path, into in found]
    first = several[0]
    head = {
        "kind": "wheels",
        "stacks": {inputs.stack.name: {"requirements_sha256": inputs.requirements_sha256} for inputs in several},
        "revision": first.revision,
        "python": first.platform.python,
        "machine": first.platform.machine,
        "on_host": left_out,
        "without": sorted(canonicalize_name(name) for name in leaner.without),
    }
    size = sum(path.stat().st_size for path, _ in paths)
    return _write(out, head, _wheel_items(paths, leaner.smaller), chunk, size)


def _parted(
    packages: Sequence[Locked], leaner: Leaner, known: Iterable[str] = ()
) -> tuple[dict[str, str], list[Locked]]:
    """What the host has, with its version, and what goes in."""
    left_out = on_host(packages, leaner, known)
    out = left_out.keys() | {canonicalize_name(name) for name in leaner.without}
    return left_out, [package for package in packages if package.name not in out]


def image(engine: Engine, inputs: Inputs, out: Path, *, chunk: int) -> dict[str, Any]:
    """Write a bundle of the built image into `out`; returns its manifest."""
    image_id = build.identity(engine, inputs.tag)
    size = int(engine.capture("image", "inspect", "--format", "{{.Size}}", inputs.tag))
    head = {"kind": "image", "image": inputs.tag, "image_id": image_id, "revision": inputs.revision}
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            engine.line("save", inputs.tag),
            env=engine.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
        ) as process,
    ):
        # Its id is what makes an image the same; the archive's own bytes may differ with the engine's version.
        archive = Item("image.tar", cast("IO[bytes]", process.stdout), 0)
        manifest = _write(out, head, [archive], chunk, size)
        if process.wait():
            (out / "bundle.json").unlink(missing_ok=True)
            said.seek(0)
            text = said.read().decode(errors="replace")
            raise failures.explain(f"image {inputs.tag} cannot be saved", process.returncode, text)
    return manifest


def _wheel_items(paths: Iterable[tuple[Path, str]], smaller: repack.Smaller | None) -> Iterator[Item]:
    """Files of wheels, each with the folder that it goes into, and our own."""
    for path, into in paths:
        if smaller is not None:
            again = repack.repack(path, smaller)
            yield Item(path.name, BytesIO(again.data), again.unpacked, repack.PACKED, again.changes, into)
            continue
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        with path.open("rb") as file:
            yield Item(path.name, file, unpacked, into=into)
    tree = own_files()
    if smaller is None:
        yield Item("draftkiln.zip", BytesIO(tree), len(tree))
    else:
        yield Item("draftkiln.zip", BytesIO(repack.compress(tree)), len(tree), repack.PACKED)


def own_files() -> bytes:
    """Draftkiln and its data files as a zip archive, laid out for a folder of PYTHONPATH."""
    root = checkout.root()
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in image_inputs.carried(root):
            member = zipfile.ZipInfo(name.removeprefix("src/"), _EPOCH)
            member.external_attr = 0o644 << 16
            archive.writestr(member, (root / name).read_bytes())
    return buffer.getvalue()


def _write(out: Path, head: dict[str, Any], items: Iterable[Item], chunk: int, size: int) -> dict[str, Any]:
    if out.exists() and any(out.iterdir()) and not (out / "bundle.json").exists():
        strangers = [path.name for path in out.iterdir() if not path.name.startswith("part-")]
        if strangers:
            raise UsageError(f"{out} holds other files", why=", ".join(strangers[:3]), fix="name an empty folder")
    with durable.storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out).free
        if free < size:
            raise StorageError(
                f"not enough room in {out}", why=f"{size >> 20} MB needed, {free >> 20} MB free", fix="make room"
            )
        for old in [out / "bundle.json", *out.glob("part-*")]:
            old.unlink(missing_ok=True)
        parts = _Parts(out, chunk)
        files = []
        for item in items:
            start, digest = parts.total, hashlib.sha256()
            while block := item.stream.read(_BLOCK):
                digest.update(block)
                parts.write(block)
            files.append(
                {
                    "name": item.name,
                    "offset": start,
                    "size": parts.total - start,
                    "unpacked": item.unpacked,
                    "sha256": digest.hexdigest(),
                    **({"packed": item.packed} if item.packed else {}),
                    **({"changes": list(item.changes)} if item.changes else {}),
                    **({"into": item.into} if item.into else {}),
                }
            )
        parts.close()
        shutil.copyfile(install_bundle.__file__, out / "install.py")
        manifest = {"schema_version": SCHEMA_VERSION, **head, "files": files, "parts": parts.done}
        # Last, so that a bundle that was cut short is no bundle.
        durable.write_json(out / "bundle.json", manifest)
    return manifest


class _Parts:
    """A stream cut into numbered files of at most `chunk` bytes."""

    def __init__(self, folder: Path, chunk: int) -> None:
        self.folder, self.chunk = folder, chunk
        self.done: list[dict[str, Any]] = []
        self.total = 0
        self._file: IO[bytes] | None = None
        self._digest = hashlib.sha256()
        self._size = 0

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            if self._file is None:
                self._file = (self.folder / f"part-{len(self.done) + 1:04}").open("wb")
            taken = view[: self.chunk - self._size]
            self._file.write(taken)
            self._digest.update(taken)
            self._size += len(taken)
            self.total += len(taken)
            view = view[len(taken) :]
            if self._size == self.chunk:
                self.close()

    def close(self) -> None:
        if self._file is None:
            return
        name = Path(self._file.name).name
        self._file.close()
        self.done.append({"name": name, "size": self._size, "sha256": self._digest.hexdigest()})
        self._file, self._digest, self._size = None, hashlib.sha256(), 0


def say(manifest: dict[str, Any], out: Path) -> None:
    """Print what a bundle holds and how to use it."""
    size = sum(part["size"] for part in manifest["parts"]) / 1e6
    left_out = f", {len(manifest['on_host'])} packages are on the host" if manifest.get("on_host") else ""
    for file in manifest["files"]:
        for change in file.get("changes", ()):
            print(f"  {file['name']}: {change}")
    print(
        f"bundle: {len(manifest['files'])} files in {len(manifest['parts'])} parts, {size:.0f} MB, in {out}{left_out}"
    )
    how = "" if manifest["kind"] == "image" else " --target DIR"
    print(f"on the host: python3 install.py{how}")
