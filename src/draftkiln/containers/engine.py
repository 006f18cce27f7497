"""Docker and podman: two values of one class, told apart by asking the program, not by its name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from draftkiln import checkout
from draftkiln.containers import failures
from draftkiln.errors import ContainerError, SystemMissingError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHOICE = "DRAFTKILN_ENGINE"
"""Environment variable with the name or path of the engine's program."""
PACKAGES = {
    "podman": "podman",
    "buildah": "buildah",
    "skopeo": "skopeo",
    "runc": "runc",
    "/usr/lib/podman/netavark": "netavark",
    "/usr/lib/podman/aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "newuidmap": "uidmap",
    "mmdebstrap": "mmdebstrap",
    "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
}
"""Programs that building and running images needs on a bare Debian machine, and the packages that bring them."""
_ASK_TIMEOUT_S = 600
"""podman answers nothing while it writes a layer, which takes minutes for an engine's gigabytes."""
_VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")


class Kind(StrEnum):
    """The two engines."""

    DOCKER = "docker"
    PODMAN = "podman"


OLDEST = {
    Kind.DOCKER: (Version("20.10"), "older ones build without secrets and bind mounts"),
    Kind.PODMAN: (Version("4.1"), "older ones know neither CDI, the only way to a GPU, nor cache mounts"),
}
DOCKER_WITH_CDI = Version("25.0")


@dataclass(frozen=True)
class Engine:
    """A container engine of this machine."""

    kind: Kind
    program: str
    version: Version
    rootless: bool = False
    selinux: bool = False
    """Whether containers are confined by SELinux, so that mounts need labels."""
    store: str = ""
    """Folder that images are kept in."""
    driver: str = ""
    """How it keeps them: `overlay`, `vfs` and others."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What its processes need besides the present environment."""

    def line(self, *words: str) -> list[str]:
        """A command line of this engine."""
        return [self.program, *words]

    def capture(self, *words: str, subject: str = "") -> str:
        """Run a short command and return its output.

        Args:
            words: after the program's name.
            subject: what the command is about, for the error's text.

        Raises:
            ContainerError: it failed; known causes come with one next step.
        """
        done = self.attempt(*words)
        if done.returncode:
            raise failures.explain(subject or " ".join(self.line(*words[:3])), done.returncode, done.stderr)
        return done.stdout

    def attempt(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a short command whose failure means something to the caller; stdin is closed."""
        return subprocess.run(
            self.line(*words),
            env=self.variables(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def variables(self) -> dict[str, str]:
        """Environment of the engine's processes."""
        return {**os.environ, **self.environment}


def missing_packages() -> list[str]:
    """Debian packages that images need and this machine lacks: `draftkiln image packages` prints them."""
    # A plain user's PATH lacks the administrator's programs, which podman finds all the same.
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return [name for file, name in PACKAGES.items() if not (shutil.which(file, path=path) or Path(file).exists())]


def find(wanted: str | None = None) -> Engine:
    """The engine to use: `wanted`, else `$DRAFTKILN_ENGINE`, else podman, else docker.

    Raises:
        SystemMissingError: none is installed, or the chosen one is not.
        ContainerError: too old, or it does not answer.
    """
    chosen = wanted or os.environ.get(CHOICE)
    if chosen:
        if shutil.which(chosen) is None:
            raise SystemMissingError(
                f"no program named {chosen!r}", why="it was chosen as the container engine", fix="install it"
            )
        return ask(chosen)
    refused: ContainerError | None = None
    for program in ("podman", "docker"):
        if shutil.which(program):
            try:
                return ask(program)
            except ContainerError as error:
                refused = refused or error
    if refused:
        raise refused
    raise SystemMissingError(
        "no container engine is installed",
        why="neither podman nor docker is on PATH",
        fix=f"sudo apt-get install -y {' '.join(missing_packages())}",
    )


def ask(program: str) -> Engine:
    """Ask a program what it is, how old, and how it runs containers.

    Raises:
        ContainerError: it is no engine that is known here, it is too old, or it does not answer.
    """
    extra = _podman_settings()
    said = _said([program, "--version"], extra)
    # Debian's podman-docker installs podman as `docker`; only the answer tells.
    kind = next((kind for kind in Kind if kind in said.lower()), None)
    number = _VERSION.search(said)
    if kind is None or number is None:
        raise ContainerError(
            f"{program} is not a container engine known here",
            why=f"it says {said.strip().partition(chr(10))[0]!r}",
            fix="use docker or podman",
        )
    version, (oldest, why) = Version(number[1]), OLDEST[kind]
    if version < oldest:
        raise ContainerError(f"{kind} {version} is too old", why=why, fix=f"install {kind} {oldest} or later")
    environment = extra if kind is Kind.PODMAN else {"DOCKER_BUILDKIT": "1"}
    text = _said([program, "info", "--format", "json" if kind is Kind.PODMAN else "{{json .}}"], environment)
    try:
        info = json.loads(text)
    except json.JSONDecodeError as error:
        raise ContainerError(
            f"{program} info says nothing readable", why=str(error), fix=f"run `{program} info`"
        ) from error
    return Engine(kind, program, version, **_facts(kind, info), environment=environment)


def _facts(kind: Kind, info: Mapping[str, Any]) -> dict[str, Any]:
    if kind is Kind.PODMAN:
        security = info.get("host", {}).get("security", {})
        return {
            "rootless": bool(security.get("rootless")),
            "selinux": bool(security.get("selinuxEnabled")),
            "store": info.get("store", {}).get("graphRoot", ""),
            "driver": info.get("store", {}).get("graphDriverName", ""),
        }
    options = info.get("SecurityOptions") or []
    return {
        "rootless": any("name=rootless" in option for option in options),
        "selinux": any("name=selinux" in option for option in options),
        "store": info.get("DockerRootDir", ""),
        "driver": info.get("Driver", ""),
    }


def _podman_settings() -> dict[str, str]:
    """The project's containers.conf, where podman's defaults cannot work: as root without systemd."""
    if os.environ.get("CONTAINERS_CONF") or os.geteuid() != 0 or Path("/run/systemd/system").exists():
        return {}
    return {"CONTAINERS_CONF": str(checkout.root() / "containers" / "containers.conf")}


def _said(command: Sequence[str], extra: Mapping[str, str]) -> str:
    what = f"{command[0]} does not answer"
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **extra},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASK_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise ContainerError(what, why=f"silent for {_ASK_TIMEOUT_S} s", fix="restart its service") from error
    except OSError as error:
        raise ContainerError(what, why=str(error), fix="install docker or podman") from error
    errors = done.stderr.strip()
    # Docker's client exits 0 from `info` although its daemon is away, and says so on stderr.
    if done.returncode or "cannot connect" in errors.lower():
        raise failures.explain(what, done.returncode, errors)
    return done.stdout
