"""Pushing images to a registry and mirroring them, always known by digest afterwards."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln.containers import failures
from draftkiln.containers.build import identity
from draftkiln.containers.engine import Engine, Kind
from draftkiln.errors import ContainerError, PinError, SystemMissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOOPBACK = re.compile(r"^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?/")


def push(engine: Engine, tag: str, to: str) -> str:
    """Push the local image `tag` to `to` (registry, name and tag) and return `name@digest`.

    Raises:
        UsageError: `to` has no registry.
        ContainerError: the registry refused it, or serves another image than the one pushed.
    """
    _check_target(to)
    image_id = identity(engine, tag)
    engine.capture("tag", tag, to)
    try:
        digest = _push_podman(engine, to) if engine.kind is Kind.PODMAN else _push_docker(engine, to)
    finally:
        engine.attempt(
            "untag" if engine.kind is Kind.PODMAN else "rmi", *([to, to] if engine.kind is Kind.PODMAN else [to])
        )
    reference = f"{_name(to)}@{digest}"
    served = configuration(reference)
    if served not in {None, image_id}:
        raise ContainerError(
            f"{reference} is not the image that was pushed",
            why=f"its configuration is {served}, the local image is {image_id}",
            fix="push it again; look at what stands between here and the registry",
        )
    return reference


def mirror(source: str, to: str) -> str:
    """Copy an image by digest to another registry and return its name there, which has the same digest.

    Raises:
        UsageError: `source` is no digest, or `to` has no registry.
        PinError: `source` is gone.
        SystemMissingError: skopeo is not installed.
    """
    if not _DIGEST.search(source):
        raise UsageError(
            f"{source} is not pinned", why="a tag may point elsewhere tomorrow", fix="name it as NAME@sha256:…"
        )
    _check_target(to)
    digest = source.partition("@")[2]
    if shutil.which("skopeo") is None:
        raise SystemMissingError("skopeo is not installed", fix="sudo apt-get install -y skopeo")
    words = ["copy", "--quiet", "--preserve-digests", "--all"]
    words += _insecure("--src-tls-verify=false", source) + _insecure("--dest-tls-verify=false", to)
    _skopeo([*words, f"docker://{source}", f"docker://{to}"], f"{source} cannot be copied")
    copied = _skopeo(
        ["inspect", "--format", "{{.Digest}}", *_insecure("--tls-verify=false", to), f"docker://{to}"],
        f"{to} is not there",
    )
    if copied.strip() != digest:
        raise PinError(f"{to} has another digest", why=f"{copied.strip()}, expected {digest}", fix="copy it again")
    return f"{_name(to)}@{digest}"


def configuration(reference: str) -> str | None:
    """The image id that a registry serves for `reference`; None where skopeo is not here to ask."""
    if shutil.which("skopeo") is None:
        return None
    words = ["inspect", "--raw", *_insecure("--tls-verify=false", reference), f"docker://{reference}"]
    text = _skopeo(words, f"{reference} cannot be read back")
    match = re.search(r'"config"\s*:\s*\{[^}]*"digest"\s*:\s*"sha256:([0-9a-f]{64})"', text)
    return match[1] if match else None


def _push_podman(engine: Engine, to: str) -> str:
    with tempfile.TemporaryDirectory(prefix="draftkiln-push-") as folder:
        file = Path(folder, "digest")
        words = ["push", "--quiet", "--digestfile", str(file), *_insecure("--tls-verify=false", to), to]
        engine.capture(*words, subject=f"{to} cannot be pushed")
        return file.read_text(encoding="ascii").strip()


def _push_docker(engine: Engine, to: str) -> str:
    said = engine.capture("push", to, subject=f"{to} cannot be pushed")
    match = re.search(r"digest: (sha256:[0-9a-f]{64})", said)
    if match is None:
        raise ContainerError(f"{to} was pushed without a digest", why=said[-200:], fix="look at the registry")
    return match[1]


def _check_target(to: str) -> None:
    if "@" in to or "/" not in to or not re.match(r"^(localhost|[^/]*[.:][^/]*)/", to):
        raise UsageError(f"{to!r} names no registry", fix="write it as registry.example.org/draftkiln/stack:tag")


def _name(reference: str) -> str:
    head, slash, tail = reference.rpartition("/")
    return head + slash + tail.partition(":")[0]


def _insecure(option: str, reference: str) -> list[str]:
    """A registry on this machine's loopback speaks plain HTTP; no other may."""
    return [option] if _LOOPBACK.match(reference) else []


def _skopeo(words: Sequence[str], what: str) -> str:
    done = subprocess.run(["skopeo", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise failures.explain(what, done.returncode, done.stderr)
    return done.stdout
