"""Names and their values while the patched files are followed: frames, parameters, branches."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from draftkiln.seams.model import Condition
from draftkiln.seams.origins import UNKNOWN, Items, Keywords, Origin, Truth, Value, merge

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

Environment: TypeAlias = MutableMapping[str, Value]


@dataclass
class Frame:
    """The function being followed."""

    module: str
    names: Environment
    returned: list[Value] = field(default_factory=list)


def bind_arguments(arguments: ast.arguments, given: Sequence[Value], keywords: Keywords, names: Environment) -> None:
    """Give the parameters of a function of the tree what a call gives them."""
    positional = [*arguments.posonlyargs, *arguments.args]
    for position, item in enumerate(positional):
        names[item.arg] = given[position] if position < len(given) else keywords.sure.get(item.arg, UNKNOWN)
    for item in arguments.kwonlyargs:
        names[item.arg] = keywords.sure.get(item.arg, UNKNOWN)
    taken = {item.arg for item in [*positional, *arguments.kwonlyargs]}
    if arguments.vararg:
        names[arguments.vararg.arg] = Items(tuple(given[len(positional) :]))
    if arguments.kwarg:
        rest = {name: value for name, value in keywords.sure.items() if name not in taken}
        names[arguments.kwarg.arg] = Keywords(rest, keywords.optional - taken, keywords.open)


def part(value: Value, position: int | None) -> Value:
    """One part of a value that is unpacked or indexed."""
    if isinstance(value, Origin):
        return value.step(f"[{'' if position is None else position}]")
    if isinstance(value, Items) and position is not None and -len(value.parts) <= position < len(value.parts):
        return value.parts[position]
    return UNKNOWN


def is_reply(value: Origin) -> bool:
    """Whether a value is the replies of workers, whose inside is the tree's own or the worker's, not the executor's."""
    return value.paths[0].endswith(".collective_rpc()")


def presence(value: Origin, *, absent: bool) -> Value:
    """What `getattr(x, name, None) is None` asks."""
    base, mark, name = value.paths[0].rpartition("?.")
    if not mark or len(value.paths) > 1 or not name.isidentifier():
        return UNKNOWN
    condition = Condition("has", (base,), name)
    yes, no = (condition,), (condition.negated(),)
    return Truth(no, yes) if absent else Truth(yes, no)


def copied(first: Value, keywords: Keywords) -> Value:
    """What `dict(first, **keywords)` gives."""
    if not isinstance(first, Keywords):
        return replace(keywords, open=True)
    return Keywords({**first.sure, **keywords.sure}, first.optional | keywords.optional, first.open or keywords.open)


def restore(names: Environment, before: dict[str, Value]) -> None:
    """Make names what they were before a branch."""
    own = names.maps[0] if isinstance(names, ChainMap) else names
    for name in [name for name in own if name not in before]:
        del own[name]
    names.update({name: value for name, value in before.items() if names.get(name) != value})


def merge_into(names: Environment, other: dict[str, Value], *, replace_all: bool = False) -> None:
    """Join the names that another branch left."""
    for name, value in other.items():
        names[name] = value if replace_all or name not in names else merge(names[name], value)
