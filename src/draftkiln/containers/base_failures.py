"""What mmdebstrap says when a base cannot be made, with one cause and one next step each."""

from __future__ import annotations

from draftkiln.containers.failures import Known
from draftkiln.errors import NetworkError, StorageError, SystemMissingError

KNOWN = (
    Known(
        r"subuid|subgid|newuidmap|newgidmap|unshare\b[^\n]*failed|failed to unshare",
        "without root, packages are unpacked with a range of user ids of one's own, and this user has none here",
        "sudo apt-get install -y uidmap; sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER; "
        "or take a base made elsewhere: nox -s base -- NAME --from FILE",
        SystemMissingError,
    ),
    Known(
        r"no space left on device|disk quota exceeded",
        "no room to unpack the packages (400 MB beside the cache; without root in TMPDIR, else /var/tmp)",
        "make room, or set TMPDIR to a folder that everybody may write on a larger disk",
        StorageError,
    ),
    Known(
        r"temporary failure resolving|could not resolve|could not connect|connection (refused|timed out)"
        r"|network is unreachable",
        "Debian's mirror cannot be reached from here",
        "check the network, or take a base made elsewhere: nox -s base -- NAME --from FILE",
        NetworkError,
    ),
    Known(
        r"permission denied",
        "the ids that unpack packages may not enter the folder for temporary files",
        "set TMPDIR to a folder that everybody may write and enter, such as /var/tmp",
        SystemMissingError,
    ),
)
