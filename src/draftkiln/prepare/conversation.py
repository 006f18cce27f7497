"""What a row of data says: a conversation with its tools, or a raw text, and where it stands."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]

REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
"""Names under which data and templates carry the reasoning before an answer."""
ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "tool": "tool",
}
"""Role names that are known, and what the template calls them; any other refuses the row by its name."""


@dataclass(frozen=True)
class Conversation:
    """A conversation and where it stands in the data (`file:line`)."""

    source: str
    messages: tuple[Message, ...]
    dropped_turns: int = 0
    """Trailing turns left out, after which no answer stands."""
    row_id: str | None = None
    """The row's own `id`, if it has one."""
    tools: tuple[dict[str, Any], ...] = ()
    """Tools that the template is given."""

    @property
    def answered(self) -> bool:
        """Whether it ends with an answer."""
        return bool(self.messages[-1]["role"] == "assistant")

    def prompt(self) -> tuple[Message, ...]:
        """The messages before the last answer."""
        return self.messages[:-1] if self.answered else self.messages

    def content(self) -> bytes:
        """Digest of what is rendered: the same for the same turns and tools, wherever they stand."""
        return digest([self.messages, self.tools])


@dataclass(frozen=True)
class TextRow:
    """A row of raw text, which no template renders."""

    source: str
    text: str
    row_id: str | None = None

    def content(self) -> bytes:
        """Digest of the text."""
        return digest(self.text)


Row = Conversation | TextRow


def digest(value: Any) -> bytes:
    """16 bytes that tell contents apart."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
