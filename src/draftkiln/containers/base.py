"""The root file system that images start from, made from Debian packages: the same bytes for the same mirror state."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import yaml

from draftkiln import cache, checkout, durable, signals
from draftkiln.containers import base_failures, failures
from draftkiln.errors import ContainerError, PinError, StackError, SystemMissingError

EPOCH = 1767225600
"""2026-01-01: time of every file that was made, not unpacked."""
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_UNWANTED = ("man", "info", "locale", "lintian", "bug")
_LEFTOVERS = [
    "etc/hostname",
    "etc/resolv.conf",
    "etc/machine-id",
    "etc/passwd-",
    "etc/group-",
    "etc/shadow-",
    "etc/gshadow-",
    "etc/.pwd.lock",
    "etc/apt/sources.list",
    "etc/apt/sources.list.d/*",
    "var/cache/ldconfig/aux-cache",
    "var/cache/debconf/*-old",
    "var/lib/dpkg/*-old",
    "var/lib/apt/lists/*",
    "var/cache/apt/*",
    "var/log/*",
    "var/lib/systemd/*",
    "run/*",
]
"""What names the build machine or its mirror, or differs from build to build. Not /tmp: apt's settings lie there until
mmdebstrap empties it, and without them apt would work on the host's own lists."""


class BaseFile(pydantic.BaseModel):
    """`containers/base/NAME.yaml`: what a root file system is made of."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    suite: str
    """Debian's code name."""
    python: str
    """Version of its Python; stacks whose lock lacks it cannot use this base."""
    packages: list[str]
    """What is installed beside the essential packages."""
    snapshot: str | None = None
    """Address of Debian's archive as it was at one moment, which pins the mirror's state too; needs that host."""


@dataclass(frozen=True)
class BaseTar:
    """A made base."""

    name: str
    tar: Path
    sha256: str
    packages: tuple[str, ...]
    """`package version architecture`, sorted."""


def names() -> list[str]:
    """Names of all bases."""
    return sorted(file.stem for file in (checkout.root() / "containers" / "base").glob("*.yaml"))


def read(name: str) -> BaseFile:
    """Read `containers/base/NAME.yaml`.

    Raises:
        StackError: there is none, or it is not valid.
    """
    file = checkout.root() / "containers" / "base" / f"{name}.yaml"
    if not file.is_file():
        raise StackError(f"no base named {name!r}", why=f"known bases: {', '.join(names())}", fix="correct the name")
    try:
        return BaseFile.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (yaml.YAMLError, pydantic.ValidationError) as error:
        raise StackError(f"{file} is not valid", why=str(error), fix="mend the file") from error


def kept(name: str, sha256: str | None = None) -> BaseTar | None:
    """The base made before, if its description is still the same.

    Args:
        name: of the base.
        sha256: what the tar must hash to, where it is pinned.

    Raises:
        PinError: the tar is not the recorded one, or not the pinned one.
    """
    record = _record(name)
    tar = record.with_name("base.tar")
    if not record.exists() or not tar.exists():
        return None
    values: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    got = durable.sha256_file(tar)
    for wanted, source in ((values["sha256"], "its record"), (sha256, "the pinned one")):
        if wanted is not None and got != wanted:
            raise PinError(
                f"base tar {tar} has the wrong hash",
                why=f"sha256 {got}, {source} says {wanted}",
                fix=f"make it anew: nox -s base -- {name} --force; where it is pinned, take that very tar: "
                f"nox -s base -- {name} --from FILE",
            )
    if values["description"] != read(name).model_dump():
        return None
    return BaseTar(name, tar, got, tuple(values["packages"]))


def make(name: str, *, force: bool = False) -> BaseTar:
    """Make the base `name` with mmdebstrap, unless it is there; its hash and package list are recorded beside it.

    Raises:
        SystemMissingError: mmdebstrap is not installed, or this user has no range of user ids to unpack packages with.
        NetworkError: Debian's mirror cannot be reached.
        StorageError: no room.
        ContainerError: mmdebstrap failed in another way.
    """
    file = read(name)
    if not force and (found := kept(name)):
        return found
    if shutil.which("mmdebstrap") is None:
        raise SystemMissingError("mmdebstrap is not installed", fix="sudo apt-get install -y mmdebstrap")
    record = _record(name)
    with durable.storage_errors(record):
        record.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=record.parent, prefix=".making-") as folder:
        tar = Path(folder, "base.tar")
        print(f"base {name}: installing Debian {file.suite}", file=sys.stderr, flush=True)
        done = signals.run(
            command(file, tar),
            env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "TMPDIR": _unpacking_place(folder)},
            umask=0o022,
            # A group of its own, which is told to end as a whole: mmdebstrap itself waits for its children.
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if done.returncode:
            raise failures.explain(f"base {name} cannot be made", done.returncode, done.stderr, base_failures.KNOWN)
        made = BaseTar(name, record.with_name("base.tar"), durable.sha256_file(tar), _packages(tar))
        record.unlink(missing_ok=True)
        tar.replace(made.tar)
    _remember(record, made)
    return made


def _unpacking_place(folder: str) -> str:
    """Where packages are unpacked: beside the tar by root; else by ids of a range, which may enter no home."""
    return folder if os.geteuid() == 0 else os.environ.get("TMPDIR", "/var/tmp")  # noqa: S108 - mmdebstrap's own rules


def take(name: str, source: Path) -> BaseTar:
    """Take a tar that was made elsewhere as the base `name`; a stack that pins another sha256 refuses it.

    Raises:
        ContainerError: it is no root file system of Debian packages.
        StorageError: no room.
    """
    try:
        packages = _packages(source)
    except (OSError, tarfile.TarError, KeyError) as error:
        raise ContainerError(
            f"{source} is no base tar", why=f"{type(error).__name__}: {error}", fix="name a base.tar of `nox -s base`"
        ) from error
    record = _record(name)
    with durable.storage_errors(record):
        record.parent.mkdir(parents=True, exist_ok=True)
        record.unlink(missing_ok=True)
        tar = record.with_name("base.tar")
        shutil.copyfile(source, tar.with_suffix(".new"))
        tar.with_suffix(".new").replace(tar)
    taken = BaseTar(name, tar, durable.sha256_file(tar), packages)
    _remember(record, taken)
    return taken


def _packages(tar: Path) -> tuple[str, ...]:
    with tarfile.open(tar) as archive:
        status = archive.extractfile("./var/lib/dpkg/status")
        return tuple(_installed((status.read() if status else b"").decode(errors="replace")))


def _installed(status: str) -> list[str]:
    """`package version architecture` of every installed package in dpkg's status file, sorted."""
    found = []
    for entry in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Architecture|Status): (.*)$", entry, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found.append(f"{fields['Package']} {fields['Version']} {fields['Architecture']}")
    return sorted(found)


def _remember(record: Path, made: BaseTar) -> None:
    content = {"schema_version": 1, "sha256": made.sha256, "description": read(made.name).model_dump(), "epoch": EPOCH}
    durable.write_json(record, {**content, "packages": list(made.packages)})


def command(file: BaseFile, tar: Path) -> list[str]:
    """The command line of mmdebstrap."""
    words = [
        "mmdebstrap",
        "--mode=root" if os.geteuid() == 0 else "--mode=unshare",
        "--variant=minbase",
        "--format=tar",
    ]
    words += [f"--architectures={ARCHITECTURES[platform.machine()]}", f"--include={','.join(file.packages)}"]
    words += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
    words += [f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in _UNWANTED]
    words += ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright"]
    # The hook does this; apt is not asked for it.
    words += ["--skip=cleanup/apt"]
    words += [f'--customize-hook=cd "$1" && rm -rf {" ".join(_LEFTOVERS)}']
    # Compiled files hold the time of their source, which every builder changes: the image compiles anew, by hash.
    words += ['--customize-hook=find "$1/usr" -name __pycache__ -type d -prune -exec rm -rf {} +']
    words += [file.suite, str(tar)]
    if file.snapshot:
        words += [f"deb [check-valid-until=no] {file.snapshot} {file.suite} main"]
    return words


def _record(name: str) -> Path:
    return cache.root() / "bases" / f"{name}-{ARCHITECTURES.get(platform.machine(), platform.machine())}" / "base.json"
