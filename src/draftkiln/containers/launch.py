"""The command line of a container: one place that knows how docker and podman differ."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from draftkiln.containers.engine import DOCKER_WITH_CDI, Engine, Kind
from draftkiln.errors import ContainerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SHARED_MEMORY = "16g"
"""Size of /dev/shm where several workers share tensors; the engines' default of 64 MB ends in NCCL errors or hangs."""
HOME = "/home/draftkiln"
SCRATCH = ("/tmp", HOME)  # noqa: S108 - paths inside the container
COMPILE_CACHE = f"{HOME}/.cache"
LABEL = "draftkiln.run"
"""Label of every container started here, with the run directory as its value."""
_SELINUX_SHARED, _SELINUX_PRIVATE = "z", "Z"


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host that the container sees."""

    source: Path
    target: str
    writable: bool = False
    shared: bool = True
    """Whether other containers use it too: decides the SELinux label (a private label locks the others out)."""


@dataclass(frozen=True)
class Gpus:
    """GPUs that a container gets: the first `count`, or those with these `ids`; neither means all."""

    count: int | None = None
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.count is not None and self.ids:
            raise ValueError("either a count or ids")
        if self.count is not None and self.count < 1:
            raise ValueError("at least one GPU")


@dataclass(frozen=True)
class Launch:
    """One container to start."""

    image: str
    command: tuple[str, ...]
    program: str = "draftkiln"
    """What is started, whatever entrypoint an image declares."""
    mounts: tuple[Mount, ...] = ()
    gpus: Gpus | None = None
    gpu_form: Literal["native", "cdi"] = "native"
    """`cdi` asks docker (25 or later) in podman's form; podman always uses it."""
    workers: int = 1
    """Tensor parallel size: more than one process shares /dev/shm."""
    shared_memory: str | None = None
    """Size such as `32g`, or `host` for the host's own; default: `SHARED_MEMORY` where `workers` > 1."""
    network: str = "none"
    environment: Mapping[str, str] = field(default_factory=dict)
    user: tuple[int, int] | None = None
    """uid and gid; default: those of the calling process. Neither need be known inside the image."""
    name: str | None = None
    label: str = ""
    detach: bool = False
    interactive: bool = False
    """Whether standard input reaches the program."""
    home: str = HOME
    """An empty folder; the caller's own path makes `~` of a recipe mean the same inside."""
    workdir: str | None = None
    relabel: bool = True
    """Whether mounts get SELinux labels where SELinux is on."""
    infiniband: bool = False
    """Several machines: InfiniBand devices and memory that may be locked."""


def run_line(engine: Engine, launch: Launch) -> list[str]:
    """The whole command line that starts `launch` on `engine`.

    Raises:
        ContainerError: the engine cannot do what is asked.
        UsageError: the wishes contradict each other.
    """
    words = ["run", "--pull", "never"] if launch.image.startswith("localhost/") else ["run"]
    # A detached container stays until `draftkiln image logs` and `stop` were able to ask it.
    words += ["--detach"] if launch.detach else ["--rm"]
    words += ["--interactive"] if launch.interactive else []
    words += ["--name", launch.name] if launch.name else []
    words += ["--label", f"{LABEL}={launch.label}"] if launch.label else []
    words += ["--entrypoint", launch.program]
    words += ["--network", launch.network, "--read-only", "--cap-drop", "all"]
    words += ["--security-opt", "no-new-privileges"]
    words += _user(engine, launch)
    _refuse_colon(launch.workdir or "")
    for folder in _scratch(launch):
        words += ["--tmpfs", f"{folder}:rw,exec,nosuid,nodev,mode=1777"]
    words += shared_memory(launch)
    words += gpu_request(engine, launch)
    words += infiniband(engine) if launch.infiniband else []
    for mount in launch.mounts:
        words += ["--volume", _volume(engine, mount, relabel=launch.relabel)]
    for key, value in sorted({**_process_environment(launch), **launch.environment}.items()):
        words += ["--env", f"{key}={value}"]
    words += _workdir(launch)
    return engine.line(*words, launch.image, *launch.command)


def gpu_request(engine: Engine, launch: Launch) -> list[str]:
    """The GPU request in the engine's own form.

    podman takes `--gpus` without a word and starts a container without a GPU, so it never gets that.
    """
    gpus = launch.gpus
    if gpus is None:
        return []
    if engine.kind is Kind.PODMAN or launch.gpu_form == "cdi":
        if engine.kind is Kind.DOCKER and engine.version < DOCKER_WITH_CDI:
            raise ContainerError(
                f"docker {engine.version} cannot ask for GPUs through CDI",
                why=f"it came with docker {DOCKER_WITH_CDI}",
                fix="leave out --gpu-form cdi",
            )
        chosen = gpus.ids or (tuple(map(str, range(gpus.count))) if gpus.count else ("all",))
        return [word for item in chosen for word in ("--device", f"nvidia.com/gpu={item}")]
    if gpus.ids:
        # Docker reads this value as CSV: the quotes keep the list together.
        return ["--gpus", f'"device={",".join(gpus.ids)}"']
    return ["--gpus", str(gpus.count or "all")]


def shared_memory(launch: Launch) -> list[str]:
    """How /dev/shm is made: the host's or a size, never both, which engines refuse."""
    wanted = launch.shared_memory or (SHARED_MEMORY if launch.workers > 1 else None)
    if wanted is None:
        return []
    return ["--ipc", "host"] if wanted == "host" else ["--shm-size", wanted]


def infiniband(engine: Engine) -> list[str]:
    """What RDMA between machines needs: its devices, locked memory and the capability to lock it."""
    words = ["--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"]
    return words if memlock_warning(engine) else [*words, "--ulimit", "memlock=-1:-1"]


def memlock_warning(engine: Engine) -> str | None:
    """Why locked memory cannot be unlimited: rootless engines cannot go above this process's hard limit."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if not engine.rootless or hard == resource.RLIM_INFINITY:
        return None
    return (
        f"rootless {engine.kind} cannot raise the limit of locked memory above {hard >> 20} MB: NCCL may fall back to "
        "TCP without saying so. Raise `memlock` in /etc/security/limits.conf, or run as root."
    )


def caller(run_directory: Path | None) -> tuple[int, int]:
    """Uid and gid that files are written with: the caller's, or for root those of the run directory's owner."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0 and run_directory is not None and run_directory.exists():
        status = run_directory.stat()
        return status.st_uid, status.st_gid
    return uid, gid


def _user(engine: Engine, launch: Launch) -> list[str]:
    uid, gid = launch.user or caller(None)
    words = ["--user", f"{uid}:{gid}"]
    if engine.rootless and engine.kind is Kind.PODMAN:
        # Without it the caller's uid means another user inside, who may not write the run directory.
        return ["--userns", "keep-id", *words]
    return words


def _scratch(launch: Launch) -> list[str]:
    """Folders in memory, those left out that are mounted themselves: engines refuse two mounts at one place."""
    mounted = {mount.target for mount in launch.mounts}
    return [folder for folder in dict.fromkeys((*SCRATCH, launch.home)) if folder not in mounted]


def _workdir(launch: Launch) -> list[str]:
    """The working directory; engines refuse one that the image lacks, so an empty one is laid there."""
    if launch.workdir is None:
        return []
    there = {*_scratch(launch), *(mount.target for mount in launch.mounts)}
    empty = [] if launch.workdir in there else ["--tmpfs", f"{launch.workdir}:rw,mode=0755"]
    return [*empty, "--workdir", launch.workdir]


def _process_environment(launch: Launch) -> dict[str, str]:
    """What makes any uid work: names that programs look up, and a home and caches that can be written."""
    values = {
        "HOME": launch.home,
        "USER": "draftkiln",
        "LOGNAME": "draftkiln",
        "XDG_CACHE_HOME": COMPILE_CACHE,
        "TORCHINDUCTOR_CACHE_DIR": f"{COMPILE_CACHE}/torchinductor",
        "TRITON_CACHE_DIR": f"{COMPILE_CACHE}/triton",
        "VLLM_CACHE_ROOT": f"{COMPILE_CACHE}/vllm",
    }
    if launch.network == "none":
        # The only interface is the loopback; workers would else look for one that is not there.
        values |= {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1"}
    return values


def _refuse_colon(*paths: str) -> None:
    wrong = [path for path in paths if ":" in path]
    if wrong:
        raise UsageError(f"{wrong[0]} cannot be mounted", why="engines split mounts at `:`", fix="rename the folder")


def _volume(engine: Engine, mount: Mount, *, relabel: bool) -> str:
    _refuse_colon(str(mount.source), mount.target)
    options = ["rw" if mount.writable else "ro"]
    if engine.selinux and relabel:
        options.append(_SELINUX_SHARED if mount.shared else _SELINUX_PRIVATE)
    return f"{mount.source}:{mount.target}:{','.join(options)}"
