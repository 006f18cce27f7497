import ast

from hypothesis import given
from hypothesis import strategies as st

from draftkiln.seams.signatures import CallShape, call_problems, of_fields, of_function

NAMES = ["a", "b", "c", "d", "e"]


@st.composite
def signatures(draw):
    """Source of a parameter list that Python accepts."""
    names = draw(st.permutations(NAMES))
    positional, either, keyword = (draw(st.integers(0, 2)) for _ in range(3))
    parts, used, defaulted = [], iter(names), False
    for place in range(positional + either):
        defaulted = defaulted or draw(st.booleans())
        name = next(used)
        parts.append(f"{name}=0" if defaulted else name)
        if place == positional - 1:
            parts.append("/")
    rest = draw(st.sampled_from(["", "*rest"]))
    words = [name + draw(st.sampled_from(["", "=0"])) for name in list(used)[:keyword]]
    if words or rest:
        parts += [rest or "*", *words]
    return ", ".join([*parts, *draw(st.sampled_from([[], ["**more"]]))])


@given(signatures(), st.integers(0, 5), st.sets(st.sampled_from([*NAMES, "z"])))
def test_a_call_is_refused_exactly_when_python_refuses_it(source, positional, keywords):
    node = ast.parse(f"def f({source}): ...").body[0]
    function = eval(f"lambda {source}: None")  # noqa: S307 - the source is made above
    problems = call_problems(of_function(node, bound=False), CallShape(positional, tuple(sorted(keywords))))
    try:
        function(*range(positional), **dict.fromkeys(keywords))
        accepted = True
    except TypeError:
        accepted = False
    assert accepted == (not problems)


def test_optional_and_open_arguments_are_not_blamed():
    signature = of_function(ast.parse("def f(a, b): ...").body[0], bound=False)
    assert call_problems(signature, CallShape(0, ("a",), ("b", "z"))) == []
    assert call_problems(signature, CallShape(0, (), (), open=True)) == []
    assert [item.parameter for item in call_problems(signature, CallShape(0, ("z",), (), open=True))] == ["z"]


def test_fields_with_a_field_call_and_those_outside_the_constructor():
    text = """
class Base:
    x: int
    hidden: int = Field(init=False)
    shared: ClassVar[int] = 3
class Config(Base):
    y: int = Field(default=1, ge=0)
    z: list = field(default_factory=list)
    needed: int = Field(...)
    x: int = 5
"""
    signature = of_fields([item for item in ast.parse(text).body if isinstance(item, ast.ClassDef)], keyword_only=False)
    assert str(signature) == "(x=5, y=1, z=list, needed)"


def test_keyword_only_fields():
    text = "@dataclass(kw_only=True)\nclass A:\n    x: int\nclass B(A):\n    y: int\n    _: KW_ONLY\n    z: int = 0\n"
    signature = of_fields(ast.parse(text).body, keyword_only=False)
    assert [(item.name, item.kind) for item in signature.parameters] == [
        ("x", "keyword"),
        ("y", "either"),
        ("z", "keyword"),
    ]
