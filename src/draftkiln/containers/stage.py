"""A stage of a recipe in its stack's image: what it reads is mounted read-only, its run directory writable.

Everything keeps its path of the host, so that records are the same with and without a container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from draftkiln import cache
from draftkiln.containers import inputs
from draftkiln.containers.launch import COMPILE_CACHE, HOME, Gpus, Launch, Mount, caller
from draftkiln.errors import RunDirectoryError
from draftkiln.recipe.files import path_of
from draftkiln.recipe.load import load
from draftkiln.recipe.model import HubDraft, PathDraft
from draftkiln.stack.model import read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from draftkiln.recipe.model import Recipe, Stage

PASSED_ON = ("OMP_NUM_THREADS", "VLLM_CPU_KVCACHE_SPACE", "VLLM_CPU_OMP_THREADS_BIND", "NCCL_NVLS_ENABLE", "NCCL_DEBUG")
"""Settings of this machine that a stage needs to know inside."""


_OWN_PATHS = ("/opt/env", "/opt/draftkiln", "/usr/bin", "/home/draftkiln", "/etc", "/proc", "/dev", "/sys")
"""What a working directory or a home must not cover inside."""


@dataclass(frozen=True)
class Wishes:
    """What a person may choose about the container."""

    gpus: Gpus | None = None
    gpu_form: Literal["native", "cdi"] = "native"
    shared_memory: str | None = None
    network: str = "none"
    detach: bool = False
    relabel: bool = True
    infiniband: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    arguments: tuple[str, ...] = ()
    """Of the stage, besides `--recipe` and `--run`."""


def launch(stage: Stage, recipe_file: Path, run: Path, wishes: Wishes, *, made: bool = True) -> Launch:
    """The container of one stage.

    Args:
        stage: to run.
        recipe_file: that it is a stage of.
        run: its run directory.
        wishes: about the container.
        made: whether the folders it needs are made, the target among them; to print a command line they are not.

    Raises:
        RecipeError: the recipe is not valid.
        RunDirectoryError: the run directory cannot be written by this user.
    """
    recipe = load(recipe_file)
    name = recipe.stacks.of(stage)
    stack = read(name)
    run = run.absolute()
    if made:
        _writable(run)
    user = caller(run)
    compiled = cache.root() / "compiled" / name / str(user[0])
    if made:
        _own(compiled, user)
    mounts = [
        Mount(run, str(run), writable=True, shared=False),
        Mount(compiled, COMPILE_CACHE, writable=True),
        Mount(recipe_file.absolute(), str(recipe_file.absolute())),
        *_read(recipe, made=made),
    ]
    gpus = wishes.gpus
    if gpus is None and stack.file.device == "cuda":
        gpus = Gpus(count=recipe.target.tensor_parallel_size)
    environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    return Launch(
        image=inputs.image_name(name),
        command=(stage, "--recipe", str(recipe_file.absolute()), "--run", str(run), *wishes.arguments),
        mounts=tuple(mounts),
        gpus=gpus if stack.file.device == "cuda" else None,
        gpu_form=wishes.gpu_form,
        workers=recipe.target.tensor_parallel_size,
        shared_memory=wishes.shared_memory,
        network=wishes.network,
        environment={**environment, "DRAFTKILN_CACHE": str(cache.root()), **dict(wishes.environment)},
        user=user,
        name=_name(recipe.name, stage, run) if wishes.detach else None,
        label=str(run),
        detach=wishes.detach,
        home=_home(),
        workdir=_inside(Path.cwd()),
        relabel=wishes.relabel,
        infiniband=wishes.infiniband,
    )


@contextlib.contextmanager
def left_as_found(run: Path, *, used_on: bool) -> Iterator[None]:
    """Take a run directory away again that was made for a container whose stage wrote nothing: it was refused.

    Args:
        run: the run directory.
        used_on: whether the container goes on when the block ends well.
    """
    made = [folder for folder in (run, *run.parents) if not folder.exists()]
    try:
        yield
    except BaseException:
        _remove_empty(made)
        raise
    if not used_on:
        _remove_empty(made)


def _remove_empty(folders: Iterable[Path]) -> None:
    with contextlib.suppress(OSError):  # one that holds something, and so all above it
        for folder in folders:
            folder.rmdir()


def _own(compiled: Path, user: tuple[int, int]) -> None:
    """Make the compile caches of this stack and user; root starts containers that write as somebody else."""
    compiled.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        os.chown(compiled, *user)


def _inside(folder: Path) -> str | None:
    """A folder under its own path inside; None for one that would cover the image's own files."""
    return None if any(Path(own).is_relative_to(folder) for own in _OWN_PATHS) else str(folder)


def _home() -> str:
    """This user's home, so that `~` of a recipe means the same inside; the image's where it cannot be laid there."""
    home = cache.home()
    return HOME if home is None or ":" in str(home) else _inside(home) or HOME


def _name(recipe: str, stage: str, run: Path) -> str:
    return f"draftkiln-{recipe}-{stage}-{hashlib.sha256(str(run).encode()).hexdigest()[:8]}"


def _read(recipe: Recipe, *, made: bool) -> list[Mount]:
    from draftkiln.target import resolve

    target = (resolve.ensure if made else resolve.location)(recipe.target.source).absolute()
    found = [target]
    # What is not there is told by the stage, by its name in the recipe; docker would make an empty folder of it.
    parts = getattr(recipe.data.source, "several", (recipe.data.source,))
    named = [path for part in parts if (path := getattr(part, "path", None)) is not None]
    named += [one.path for one in recipe.evaluate.sets]
    named += [recipe.train.init_from.path] if isinstance(recipe.train.init_from, PathDraft) else []
    found += [path_of(name).absolute() for name in named]
    home = cache.home()
    hub = os.environ.get("HF_HOME") or (home and home / ".cache" / "huggingface")
    # Files of a hub snapshot are links into this cache.
    if hub and Path(hub).is_dir() and target.resolve().is_relative_to(Path(hub).resolve()):
        found.append(Path(hub).absolute())
    found += [folder for folder in _linked(target) if not any(folder.is_relative_to(place) for place in found)]
    mounts = [Mount(path, str(path)) for path in dict.fromkeys(found) if path.exists() or not made]
    drafts = cache.root() / "drafts"
    if isinstance(recipe.train.init_from, HubDraft) and drafts.is_dir():
        # Writable for the lock under which a fetched draft is read.
        mounts.append(Mount(drafts, str(drafts), writable=True))
    return mounts


def _linked(target: Path) -> list[Path]:
    """Folders that files of the target are links into, under the names that the links use."""
    links = sorted(path for path in target.iterdir() if path.is_symlink()) if target.is_dir() else []
    return list(dict.fromkeys(Path(os.path.normpath(path.parent / path.readlink())).parent for path in links))


def _writable(run: Path) -> None:
    try:
        run.mkdir(parents=True, exist_ok=True)
        allowed = os.access(run, os.W_OK | os.X_OK)
    except OSError:
        allowed = False
    if not allowed:
        raise RunDirectoryError(
            f"run directory {run} cannot be written",
            why="it belongs to another user, perhaps to root after a run by docker",
            fix=f"sudo chown -R {os.getuid()}:{os.getgid()} {run}",
        )
