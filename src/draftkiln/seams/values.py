"""What an expression of vLLM can be, as far as its sources tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.seams.modules import Definition


@dataclass(frozen=True)
class Unknown:
    """Nothing is known; everything is allowed. `exists` says that it is there, whatever it is."""

    exists: bool = False


@dataclass(frozen=True)
class Absent:
    """There is no such name or attribute."""

    owner: str


@dataclass(frozen=True)
class Scalar:
    """None, a number or a truth value: not to be indexed, unpacked or iterated."""

    name: str


@dataclass(frozen=True)
class ClassOf:
    """A class itself."""

    definition: Definition


@dataclass(frozen=True)
class InstanceOf:
    """An instance of a class."""

    definition: Definition


@dataclass(frozen=True)
class Function:
    """A function, or a method that is bound to its instance."""

    definition: Definition
    bound: bool
    owner: Definition | None = None


@dataclass(frozen=True)
class Module:
    """A module of the engine."""

    name: str


@dataclass(frozen=True)
class Items:
    """A container of `element`; `length` where it is a tuple of known length."""

    element: Value
    parts: tuple[Value, ...] | None = None


@dataclass(frozen=True)
class AnyOf:
    """One of several."""

    options: tuple[Value, ...]


Value: TypeAlias = Unknown | Absent | Scalar | ClassOf | InstanceOf | Function | Module | Items | AnyOf
UNKNOWN = Unknown()
EXISTING = Unknown(exists=True)


def any_of(values: Sequence[Value]) -> Value:
    """One value for several; absent only if all are."""
    flat: list[Value] = []
    for value in values:
        for option in value.options if isinstance(value, AnyOf) else (value,):
            if option not in flat:
                flat.append(option)
    if EXISTING in flat and UNKNOWN in flat:
        flat.remove(UNKNOWN)
    present = [item for item in flat if not isinstance(item, Absent)]
    if not present:
        return flat[0] if flat else UNKNOWN
    return present[0] if len(present) == 1 else AnyOf(tuple(present))
