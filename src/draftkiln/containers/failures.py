"""What engines say when they fail, turned into one cause and one next step; the engine's own words are kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from draftkiln.errors import ContainerError, DraftkilnError, NetworkError, PinError, StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_TAIL = 6
_CDI = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"


class Known(NamedTuple):
    """A failure that people meet: how it is told, its cause, the next step, the class of its exit code."""

    pattern: str
    why: str
    fix: str
    error: type[DraftkilnError] = ContainerError


KNOWN = (
    Known(
        r"could not select device driver .*gpu",
        "docker has no GPU hook: NVIDIA's container toolkit is not installed, or the daemon was not restarted after it",
        "install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker && "
        "sudo systemctl restart docker (docker from snap cannot use it: install the distribution's package)",
    ),
    Known(
        r"unresolvable CDI devices|CDI device injection failed.*unresolvable|unknown CDI device",
        "no CDI specification names this GPU",
        _CDI,
    ),
    Known(
        r"CDI .*(not enabled|feature is disabled)|CDI devices.*(unsupported|disabled)",
        "this docker daemon has its CDI feature off",
        'put {"features": {"cdi": true}} into its daemon.json and restart it, or leave out --gpu-form cdi',
    ),
    Known(
        r"(failed to stat CDI host device|error stat.*(nvidia|cdi)|failed to fulfil mount request"
        r"|(libcuda|libnvidia)[^\n]*no such file or directory|open [^\n]*libnvidia[^\n]*no such file)",
        "the CDI specification is stale: it names files of an NVIDIA driver that was replaced since",
        _CDI,
    ),
    Known(
        r"nvidia-container-cli: .*(driver not loaded|nvml error|driver rpc error)",
        "NVIDIA's driver does not answer on this host",
        "check it with nvidia-smi; after a driver update, reboot",
    ),
    Known(
        r"unsatisfied condition: (cuda|driver)|cuda driver version is insufficient|error 80[34]"
        r"|no kernel image is available"
        r"|provided PTX was compiled with an unsupported toolchain",
        "NVIDIA's driver on this host is older than the CUDA version of the image (or a compat library hides it)",
        "install the driver that the stack's CUDA needs; `draftkiln preflight` compares the two before anything loads",
    ),
    Known(
        r"(lsetxattr|relabel|label).*(operation not supported|not permitted|permission denied|read-only)",
        "this file system cannot be relabelled for SELinux (NFS and other network file systems cannot)",
        "run again with --no-relabel, and allow the file system: sudo setsebool -P virt_use_nfs 1",
    ),
    Known(
        r"(statfs|stat|lstat) [^\n]*: (no such file|permission denied)|bind source path does not exist|mounts? denied",
        "a folder to mount does not exist on the engine's machine or may not be read",
        "check the folder named above; with a virtual machine behind the engine, share the folder with it first",
    ),
    Known(
        r"toomanyrequests|too many requests|rate limit|status code 429|\b429\b",
        "the registry limits how often it may be asked",
        "wait, or log in to the registry; the pin may well be there",
        NetworkError,
    ),
    Known(
        r"no such host|temporary failure in name resolution|network is unreachable|connection refused|i/o timeout"
        r"|dial tcp|TLS handshake timeout|proxyconnect",
        "the registry cannot be reached from here",
        "check the network; nothing is known about the pin",
        NetworkError,
    ),
    Known(
        r"manifest[^\n]*unknown|manifest[^\n]*not found|name unknown|repository does not exist",
        "the pinned image is gone from its registry (old nightlies are removed after some weeks)",
        "lock a build that exists: nox -s refresh, or pull it from a mirror by the same digest: nox -s check_pins",
        PinError,
    ),
    Known(
        r"no space left on device|disk quota exceeded",
        "the disk of the engine's store is full",
        "make room (`podman system prune`, `docker system prune`) or move the store, then run it again",
        StorageError,
    ),
    Known(
        r"cannot connect to the docker daemon|connect: permission denied|permission denied while trying to connect",
        "docker's daemon is not running, or this user may not talk to it",
        "sudo systemctl start docker; add the user to the group docker; or use podman: --engine podman",
    ),
    Known(
        r"buildx component is missing",
        "this docker builds with its plugin buildx, which is not installed",
        "install docker-buildx-plugin (docker's own archive) or docker-buildx (distributions), or build with podman: "
        "--engine podman",
    ),
    Known(
        r"cannot determine user'?s home|unknown userid|unknown user id|user: lookup",
        "podman without root runs for users that passwd knows alone: it looks up their name, home and range of ids",
        "run it as a user of this machine, or give this one an entry: sudo useradd --create-home --uid $(id -u) NAME",
    ),
    Known(
        r"no subuid ranges|cannot find UID/GID|newuidmap|insufficient UIDs or GIDs"
        r"|user namespaces? .*(disabled|not enabled)"
        r"|cannot clone: Operation not permitted|no space left on device.*user namespace",
        "rootless podman has no range of user ids on this machine",
        "sudo apt-get install -y uidmap; sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER; "
        "podman system migrate",
    ),
    Known(
        r"setrlimit|RLIMIT|rlimit",
        "a limit asked for is above what this machine allows",
        "leave the limit out, or raise the hard limit of the engine's service",
    ),
    Known(
        r"executable file .* not found|unrecognized option|unknown flag",
        "this engine does not know an option, or the image lacks the program",
        "run `draftkiln image verify`; report the line printed by --dry-run",
    ),
)


def explain(what: str, code: int, text: str, table: Sequence[Known] = KNOWN) -> DraftkilnError:
    """The error for an engine (or another program, with a table of its own) that exited with `code` and said `text`."""
    said = "\n".join(text.strip().splitlines()[-_TAIL:])
    for known in table:
        if re.search(known.pattern, text, re.IGNORECASE):
            return known.error(f"{what} (exit code {code})", why=f"{known.why}\n  said: {said}", fix=known.fix)
    return ContainerError(f"{what} (exit code {code})", why=said or "it said nothing", fix="see the text above")
