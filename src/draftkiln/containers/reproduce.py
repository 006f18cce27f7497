"""Bit-identical builds, shown: the same image twice, from clean stores, another checkout and another umask."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import cache, checkout, durable, signals
from draftkiln.containers import build, inputs
from draftkiln.containers.engine import Engine, Kind
from draftkiln.errors import ContainerError, DraftkilnError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SHOWN = 40
_UMASKS = (0o022, 0o077)


@dataclass(frozen=True)
class Fingerprint:
    """What one build made, small enough to keep when its store is gone."""

    image_id: str
    blobs: Mapping[str, int]
    """Digest to size of every blob of the exported image: manifest, configuration, layers."""
    config: Mapping[str, Any] = field(compare=False, default_factory=dict)
    files: Mapping[str, str] = field(compare=False, default_factory=dict)
    """Path to type, mode, owner, size and hash: read only to say what differs."""

    @property
    def size(self) -> int:
        """Bytes of all blobs."""
        return sum(self.blobs.values())


def reproduce(engine: Engine, name: str) -> tuple[Fingerprint, Fingerprint]:
    """Build the image `name` twice and compare.

    Raises:
        ContainerError: the two differ; the text says in what.
    """
    if engine.kind is not Kind.PODMAN:
        raise ContainerError(
            f"{engine.kind} does not build bit-identical images",
            why="its builder stamps layers with the time of the build",
            fix="use podman: --engine podman",
        )
    _refuse_changes(checkout.root())
    prints = [build_apart(engine, name, number) for number in range(len(_UMASKS))]
    found = list(differences(*prints))
    if found:
        shown = "\n".join(f"  {line}" for line in found[:_SHOWN])
        more = f"\n  and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ContainerError(
            f"two builds of {name} differ", why=f"\n{shown}{more}", fix="see docs/containers.md, `Bit-identical`"
        )
    return prints[0], prints[1]


def differences(first: Fingerprint, second: Fingerprint) -> Iterator[str]:
    """Lines that say what differs: identity, configuration, files."""
    if first.image_id != second.image_id:
        yield f"image id: {first.image_id} and {second.image_id}"
    for digest in sorted(set(first.blobs) ^ set(second.blobs)):
        place, size = ("first", first.blobs.get(digest)) if digest in first.blobs else ("second", second.blobs[digest])
        yield f"blob only in the {place}: {digest} ({size} bytes)"
    for key in sorted(set(first.config) | set(second.config)):
        if first.config.get(key) != second.config.get(key):
            yield f"configuration {key}: {_unequal(first.config.get(key), second.config.get(key))}"
    for path in sorted(set(first.files) | set(second.files)):
        one, other = first.files.get(path, "absent"), second.files.get(path, "absent")
        if one != other:
            yield f"/{path}: {one} and {other}"


def _unequal(one: Any, other: Any) -> str:
    """The first unequal entry of two lists, or both values."""
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        number = next(index for index, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])
        return f"entry {number}: {_unequal(one[number], other[number])}"
    return f"{one!r} and {other!r}"


def fingerprint(engine: Engine, tag: str, store: build.Store) -> Fingerprint:
    """Read what the image `tag` of `store` is made of."""
    config = json.loads(engine.capture(*store.words(), "image", "inspect", tag))[0]
    root = Path(engine.capture(*store.words(), "image", "mount", tag).strip())
    files = dict(inventory(root))
    engine.capture(*store.words(), "image", "unmount", tag)
    with tempfile.TemporaryDirectory(dir=store.folder, prefix="export-") as folder:
        exported = Path(folder, "oci")
        engine.capture(*store.words(), "save", "--quiet", "--format", "oci-dir", "--output", str(exported), tag)
        blobs = dict(_blobs(exported))
    described = {
        key: config[key] for key in ("Config", "RootFS", "Created", "History", "Architecture") if key in config
    }
    return Fingerprint(config["Id"].removeprefix("sha256:"), blobs, described, files)


def inventory(root: Path) -> Iterator[tuple[str, str]]:
    """Every path below `root` with what a layer stores of it."""
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        facts = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid} @{int(status.st_mtime)}"
        if path.is_symlink():
            facts += f" -> {path.readlink()}"
        elif path.is_file():
            facts += f" {status.st_size} {durable.sha256_file(path)[:16]}"
        yield str(path.relative_to(root)), facts


def _blobs(folder: Path) -> Iterator[tuple[str, int]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            # podman exports layers as they are kept; their names are checked, not believed.
            with path.open("rb") as file:
                yield hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size


def build_apart(engine: Engine, name: str, number: int) -> Fingerprint:
    """Build in a clean store; number 1 from another checkout of the same files too, under another umask."""
    place = cache.root() / "reproduce"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=f"build{number}-") as folder:
        home = checkout.root() if number == 0 else _other_checkout(Path(folder, "another", "checkout"))
        store = build.Store(Path(folder, "store"))
        environment = {**os.environ, "DRAFTKILN_HOME": str(home), "PYTHONPATH": str(home / "src")}
        words = ["image", "--engine", engine.program, "build", "--stack", name, "--store", str(store.folder)]
        try:
            done = signals.run([sys.executable, "-m", "draftkiln", *words], env=environment, umask=_UMASKS[number])
            if done.returncode:
                raise BuildFailedError(f"build {number + 1} of {name} failed", done.returncode)
            made = fingerprint(engine, inputs.image_name(name), store)
        finally:
            _remove(engine, store)
    print(f"build {number + 1}: id {made.image_id}, {len(made.blobs)} blobs, {made.size / 1e6:.0f} MB", flush=True)
    return made


def _remove(engine: Engine, store: build.Store) -> None:
    engine.attempt(*store.words(), "image", "unmount", "--all")
    if engine.rootless:
        # Files of other uids belong to ids that only the user namespace may remove.
        engine.attempt("unshare", "rm", "-rf", *store.folders())
    for folder in store.folders():
        shutil.rmtree(folder, ignore_errors=True)


class BuildFailedError(DraftkilnError):
    """One of the builds failed; its own error is above, and its exit code is kept."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what, why="see above")
        self.code = code  # type: ignore[assignment]


def _refuse_changes(root: Path) -> None:
    if inputs.revision(root).endswith("-dirty"):
        raise ContainerError(
            "this checkout differs from its last commit",
            why="the second build is made from a fresh clone of that commit",
            fix="commit the changes first",
        )


def _other_checkout(target: Path) -> Path:
    root = checkout.root()
    target.parent.mkdir(parents=True)
    if inputs.tracked(root) is None:
        for name in inputs.carried(root):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / name, target / name)
        return target
    _refuse_changes(root)
    clone = ["git", "clone", "--quiet", str(root), str(target)]
    detach = ["git", "-C", str(target), "checkout", "--quiet", "--detach", inputs.revision(root)]
    for command in (clone, detach):
        subprocess.run(command, umask=_UMASKS[1], check=True, stdin=subprocess.DEVNULL)
    return target
