"""Elements of a page. They are built as a tree, so that what comes out of files is escaped wherever it stands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeAlias
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Iterable

Element: TypeAlias = ET.Element
Content: TypeAlias = "Element | str | Iterable[Content] | None"

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
"""Characters that a page cannot hold, or that would turn the text around them."""


def element(tag: str, *content: Content, **attributes: str | float | None) -> Element:
    """An element; `class_` stands for `class`, `data_x` for `data-x`, an attribute that is None is left out."""
    made = ET.Element(tag)
    for name, value in attributes.items():
        if value is not None:
            made.set(name.rstrip("_").replace("_", "-"), clean(_plain(value)))
    _append(made, content)
    return made


def clean(text: str) -> str:
    """Text without characters that a page cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def serialize(root: Element) -> str:
    """HTML of an element and all it holds."""
    return ET.tostring(root, encoding="unicode", method="html")


def _append(parent: Element, content: Content) -> None:
    if content is None:
        return
    if isinstance(content, ET.Element):
        parent.append(content)
    elif isinstance(content, str):
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + clean(content)
        else:
            parent.text = (parent.text or "") + clean(content)
    else:
        for one in content:
            _append(parent, one)


def _plain(value: str | float) -> str:
    """A number without the digits that a picture does not need."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
