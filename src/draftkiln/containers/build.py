"""Building an image: from the assembled context, without a network, tagged only when complete."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from draftkiln import cache, durable, signals
from draftkiln.containers import context as contexts
from draftkiln.containers import failures
from draftkiln.containers.engine import Engine, Kind
from draftkiln.errors import ContainerError, StorageError
from draftkiln.lock import held

if TYPE_CHECKING:
    from draftkiln.containers.inputs import Inputs

_UNPACKED = 1.9
"""Measured: an environment with compiled Python files takes 1.8 times the size of its wheels."""


@dataclass(frozen=True)
class Store:
    """Where images are kept; without a folder the engine's own store."""

    folder: Path | None = None

    def words(self) -> list[str]:
        """Options of podman and buildah before the command."""
        if self.folder is None:
            return []
        storage, run = self.folders()
        return ["--root", storage, "--runroot", run]

    def folders(self) -> tuple[str, ...]:
        """Folders that the engine writes to."""
        if self.folder is None:
            return ()
        # podman refuses a run root of more than 50 characters.
        short = hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]
        return str(self.folder / "storage"), f"/tmp/draftkiln-{short}"  # noqa: S108


@dataclass(frozen=True)
class Built:
    """A built image."""

    tag: str
    image_id: str
    """sha256 of its configuration, which names every layer by hash."""
    seconds: float


def build_line(engine: Engine, inputs: Inputs, context: Path, *, store: Store | None = None) -> list[str]:
    """The command line that builds `context`."""
    words = (store.words() if store else []) + ["build", "--network", "none"]
    if engine.kind is Kind.PODMAN:
        # Times and the builder's name are all that would differ from build to build.
        words += ["--layers", "--format", "oci", "--timestamp", str(inputs.epoch), "--identity-label=false"]
        words += ["--pull=never"] if not isinstance(inputs.base, str) else []
    for key, value in sorted(contexts.arguments(inputs).items()):
        words += ["--build-arg", f"{key}={value}"]
    words += ["--tag", inputs.tag, "--file", str(context / "Containerfile"), str(context)]
    return engine.line(*words)


def build(engine: Engine, inputs: Inputs, *, context: Path | None = None, store: Store | None = None) -> Built:
    """Build the image of `inputs` and record it in the cache.

    Raises:
        StorageError: no room, told before anything is unpacked where it can be known.
        PinError: an input that is not the locked one.
        ContainerError: the engine's store copies images, or the build failed; no image is tagged then.
    """
    refuse_copies(engine)
    place = context or cache.root() / "contexts" / inputs.name
    # A second build of the same image waits, then finds every step in the engine's cache.
    with held(place.with_name(f".{place.name}.lock"), announce=lambda text: print(f"build: {text}", file=sys.stderr)):
        folder = contexts.assemble(inputs, place)
        if not has_environment(engine, inputs, store=store):
            check_room(folder, store.folder if store and store.folder else Path(engine.store or "/"))
        began = time.monotonic()
        stream(engine, build_line(engine, inputs, folder, store=store), f"image {inputs.name} cannot be built")
        built = Built(inputs.tag, identity(engine, inputs.tag, store=store), round(time.monotonic() - began, 1))
    if store is None:
        record = {**inputs.provenance(), "image_id": built.image_id, "built_by": f"{engine.kind} {engine.version}"}
        durable.write_json(cache.root() / "images" / f"{inputs.name}.json", record)
    return built


def identity(engine: Engine, tag: str, *, store: Store | None = None) -> str:
    """The image id (sha256 of its configuration) of a tag."""
    words = (store.words() if store else []) + ["image", "inspect", "--format", "{{.Id}}", tag]
    return engine.capture(*words, subject=f"image {tag} is not in the store").strip().removeprefix("sha256:")


def has_environment(engine: Engine, inputs: Inputs, *, store: Store | None = None) -> bool:
    """Whether the image that is there was made from the same base and lock, whose layers a build takes again."""
    words = (store.words() if store else []) + ["image", "inspect", "--format", "{{json .Config.Labels}}", inputs.tag]
    asked = engine.attempt(*words)
    labels = json.loads(asked.stdout or "null") if asked.returncode == 0 else None
    wanted = {"draftkiln.base": inputs.base_id, "draftkiln.requirements": inputs.requirements_sha256}
    return wanted.items() <= (labels or {}).items()


def refuse_copies(engine: Engine) -> None:
    """Refuse a store without layers, which rootless podman takes where nobody chose one and it cannot use FUSE.

    Raises:
        ContainerError: every step of a build would copy the whole image, and its digests would be others.
    """
    if engine.driver == "vfs":
        raise ContainerError(
            f"{engine.kind} keeps images with its vfs driver here",
            why="it copies the whole image at every step, gigabytes each, and gives other digests than overlay",
            fix='put the lines `[storage]` and `driver = "overlay"` into ~/.config/containers/storage.conf, then: '
            "podman system reset",
        )


def check_room(context: Path, place: Path) -> None:
    """Hold that the store has room for the image.

    Raises:
        StorageError: it has not.
    """
    layers = [sum(file.stat().st_size for file in context.glob(f"{part}/wheels/*.whl")) for part in contexts.PARTS]
    # While a layer is written it lies there four times: as files, twice as an archive, as the layer.
    needed = int(_UNPACKED * (sum(layers) + 3 * max(layers))) + 3 * (context / "base.tar").stat().st_size
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < needed:
        raise StorageError(
            f"not enough room in {place} for this image",
            why=f"building it takes about {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            fix="make room (`podman system prune`, `docker system prune`) or move the engine's store",
        )


def stream(engine: Engine, command: list[str], what: str) -> None:
    """Run a long command; its output is shown as it comes, its last lines are the cause if it fails."""
    process = subprocess.Popen(
        command,
        env=engine.variables(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    kept: list[str] = []
    with process, signals.passed_on(process) as told:
        for line in process.stdout or ():
            kept = [*kept[-40:], line]
            print(line, end="", file=sys.stderr, flush=True)
        process.wait()
    signals.end_as_told(told)
    if process.returncode:
        raise failures.explain(what, process.returncode, "".join(kept))
