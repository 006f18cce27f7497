"""What a replica runs on, by hash of what is really there, so that states of two different stacks never mix.

The driver says what it must be from the lock; a replica says what it is from its own files, before it loads an engine.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.utils import canonicalize_name

from draftkiln import arithmetic, durable
from draftkiln.containers.locked import Platform, read_lock
from draftkiln.errors import StackError
from draftkiln.rundir import differences
from draftkiln.stack.model import read

if TYPE_CHECKING:
    from draftkiln.stack.model import Stack
    from draftkiln.stage import Context

_AS_LOCKED = "as locked"
_OF_THE_RUN = {"storage", "samples_on"}
"""What is recorded only where it is not as it always was."""
_SHOWN = 3


def expected(context: Context) -> dict[str, Any]:
    """What every replica of a stage must be."""
    lock = read(context.stack).locked()
    return {
        **_common(context),
        "requirements_lock": lock.requirements_sha256,
        "packages": _AS_LOCKED,
        "patched_tree": lock.patched_tree,
    }


def found(context: Context) -> dict[str, Any]:
    """What this process is; it runs in the stack's environment."""
    stack = read(context.stack)
    patched = stack.locked().patched_tree is not None
    return {
        **_common(context),
        "requirements_lock": durable.sha256_file(stack.requirements),
        "packages": packages(stack),
        "patched_tree": package_tree(_folder_of("speculators")) if patched else None,
    }


def differing(wanted: dict[str, Any], there: dict[str, Any]) -> list[str]:
    """Each value that is not as it must be, by name."""
    return [text.replace(" before, ", " wanted, ").replace(" now", " there") for text in differences(wanted, there)]


def packages(stack: Stack) -> str:
    """Whether this environment holds the locked versions, or which ones differ."""
    here = Platform(f"{sys.version_info.major}.{sys.version_info.minor}", platform.machine())
    locked = {package.name: package.version for package in read_lock(stack.requirements, here)}
    installed: dict[str, str] = {
        canonicalize_name(item.metadata["Name"]): item.version for item in importlib.metadata.distributions()
    }
    wrong = [
        f"{name} {installed.get(name, 'absent')}, locked {version}"
        for name, version in sorted(locked.items())
        if installed.get(name) != version
    ]
    return f"{len(wrong)} differ: {'; '.join(wrong[:_SHOWN])}" if wrong else _AS_LOCKED


def package_tree(package: Path) -> str:
    """Git's hash of a tree that holds the folder `package` alone, from the files that are imported.

    Source: git-hash-object and the tree format, https://git-scm.com/book/en/v2/Git-Internals-Git-Objects; without git,
    which images do not have. A lock's `patched_tree` is of the same form.
    """
    return _object("tree", _entry("40000", package.name, _tree(package))).hex()


def _folder_of(package: str) -> Path:
    """Folder that `package` is imported from.

    Raises:
        StackError: it is not installed.
    """
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise StackError(f"{package} is not installed on host {platform.node()}", fix="give it the driver's stack")
    return Path(found.submodule_search_locations[0])


def own_files() -> str:
    """Hash of draftkiln's own program files: another version may extract otherwise."""
    root = Path(__file__).resolve().parents[1]
    files = {str(file.relative_to(root)): durable.sha256_file(file) for file in sorted(root.rglob("*.py"))}
    return durable.sha256_json(files)


def _common(context: Context) -> dict[str, Any]:
    return {
        **{key: value for key, value in context.inputs.items() if key not in _OF_THE_RUN},
        "storage": context.recipe.extract.storage,
        "computed_in": arithmetic.engine_dtype(context.recipe.target.dtype, context.device),
        "draftkiln": own_files(),
    }


def _tree(folder: Path) -> bytes:
    entries = []
    for path in folder.iterdir():
        if path.name == "__pycache__":
            continue
        # Git orders a folder as if its name ended in a slash.
        if path.is_dir():
            entries.append((f"{path.name}/".encode(), _entry("40000", path.name, _tree(path))))
        else:
            entries.append((path.name.encode(), _entry("100644", path.name, _object("blob", path.read_bytes()))))
    return _object("tree", b"".join(entry for _, entry in sorted(entries)))


def _entry(mode: str, name: str, digest: bytes) -> bytes:
    return f"{mode} {name}".encode() + b"\0" + digest


def _object(kind: str, data: bytes) -> bytes:
    return hashlib.sha1(f"{kind} {len(data)}".encode() + b"\0" + data, usedforsecurity=False).digest()
