"""What a use takes for granted beyond a name and a signature.

That a function runs when it is called, that an attribute holds a value and can be set, that a class can be made.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Literal

from draftkiln.seams import classes
from draftkiln.seams.modules import FunctionNode
from draftkiln.seams.values import UNKNOWN, Absent, Function, InstanceOf, Items, Scalar

if TYPE_CHECKING:
    from draftkiln.seams.inference import Engine
    from draftkiln.seams.modules import Definition
    from draftkiln.seams.values import Value

Form = Literal["plain", "async", "generator", "context manager", "method", "value"]
_WORDS = {"async": "a coroutine", "generator": "a generator", "context manager": "a context manager"}


def of_call(value: object) -> Form:
    """What a call of `value` sets going; all that is no function counts as plain."""
    node = value.definition.node if isinstance(value, Function) else None
    if not isinstance(node, FunctionNode):
        return "plain"
    if classes.decorated(node, "contextmanager", "asynccontextmanager"):
        return "context manager"
    if isinstance(node, ast.AsyncFunctionDef):
        return "async"
    yields = any(isinstance(item, ast.Yield | ast.YieldFrom) for item in classes.own_nodes(node))
    return "generator" if yields else "plain"


def words(form: str) -> str:
    """What a call of that form gives at once, in words."""
    return _WORDS.get(form, "its result")


def of_attribute(value: Value) -> Form | None:
    """Whether an attribute is a method or holds a value, None where nothing is known of it."""
    if value == UNKNOWN or isinstance(value, Absent):
        return None
    return "method" if isinstance(value, Function) else "value"


def is_callable(engine: Engine, value: object) -> bool | None:
    """False for what surely cannot be called, such as the value of a property; None where that cannot be told."""
    if isinstance(value, Scalar | Items):
        return False
    if isinstance(value, InstanceOf) and engine.lacks(value, ("__call__", "forward")):
        return False
    return None


def read_only(engine: Engine, value: Value, name: str) -> str:
    """Why `value.name = …` fails; empty where it does not, or where nothing is known."""
    if not isinstance(value, InstanceOf):
        return ""
    for item in engine.ancestors(value.definition)[0]:
        node = item.class_node
        if _is_frozen(node):
            return f"{item.name} is frozen"
        own = [each for each in node.body if isinstance(each, FunctionNode) and each.name == name]
        if own:
            is_property = any(classes.decorated(each, "property") for each in own)
            settable = any(classes.decorated(each, "setter") for each in own)
            return f"{item.name}.{name} is a property without a setter" if is_property and not settable else ""
        if classes.member(node, name) is not None:
            return ""
    return ""


def _is_frozen(node: ast.ClassDef) -> bool:
    calls = [item for item in node.decorator_list if isinstance(item, ast.Call)]
    keywords = [*node.keywords, *(keyword for call in calls for keyword in call.keywords)]
    frozen = any(
        item.arg == "frozen" and isinstance(item.value, ast.Constant) and item.value.value is True for item in keywords
    )
    return frozen or any(ast.unparse(base).split(".")[-1] == "NamedTuple" for base in node.bases)


def left_abstract(engine: Engine, definition: Definition) -> list[str]:
    """Abstract methods that no class of the family fills: an instance cannot be made."""
    family, outside = engine.ancestors(definition)
    if not all(map(classes.is_plain, outside)) or not any(name.split(".")[-1] == "ABC" for name in outside):
        return []
    filled: set[str] = set()
    left: list[str] = []
    for item in family:
        for name, node in _own_names(item.class_node):
            if name in filled:
                continue
            filled.add(name)
            if isinstance(node, FunctionNode) and classes.decorated(node, "abstractmethod", "abstractproperty"):
                left.append(name)
    return left


def _own_names(node: ast.ClassDef) -> list[tuple[str, ast.stmt]]:
    found: list[tuple[str, ast.stmt]] = []
    for statement in node.body:
        if isinstance(statement, ast.ClassDef | FunctionNode):
            found.append((statement.name, statement))
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found += [(target.id, statement) for target in targets if isinstance(target, ast.Name)]
        elif isinstance(statement, ast.If | ast.Try):
            inner = [line for line in ast.walk(statement) if isinstance(line, FunctionNode)]
            found += [(line.name, statement) for line in inner]
    return found
