"""vLLM's speculative decoding counters as its servers publish them at `/metrics`.

Names: vLLM, `vllm/v1/spec_decode/metrics.py` (`SpecDecodingProm`) and `vllm/v1/metrics/loggers.py`, the same in 0.16.0
and 0.32.0. Prometheus' client library adds `_total` to the name of a counter.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from typing import Any

from draftkiln.errors import EvaluationError

_DRAFTS = "vllm:spec_decode_num_drafts_total"
_DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
_GENERATED = "vllm:generation_tokens_total"
_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)(?:\s+-?\d+)?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Snapshot:
    """Counters at one moment, summed over the engines of a server."""

    drafts: int | None
    """None where the server drafts nothing: it publishes no such counter then."""
    draft_tokens: int
    accepted: int
    per_position: tuple[int, ...]
    generated: int
    """Tokens of all answers since the server started."""

    def drafted(self) -> int:
        """Drafts since the server started.

        Raises:
            EvaluationError: it drafts nothing.
        """
        if self.drafts is None:
            raise EvaluationError(
                "the server drafts nothing",
                why=f"it publishes no {_DRAFTS}",
                fix="start it with --speculative-config, or name the server that has the draft",
            )
        return self.drafts

    def since(self, before: Snapshot) -> dict[str, Any]:
        """What was counted between `before` and this moment, under the names that `measure.acceptance` reads.

        Raises:
            EvaluationError: the server does not draft, or was started anew in between.
        """
        pairs = [
            (self.drafted(), before.drafted()),
            (self.generated, before.generated),
            *zip(self.per_position, before.per_position, strict=False),
        ]
        if any(after < earlier for after, earlier in pairs):
            raise EvaluationError(
                "the server was started anew while it was measured",
                why="its counters are lower than before",
                fix="run the same command again",
            )
        return {
            "drafts": self.drafted() - before.drafted(),
            "draft_tokens": self.draft_tokens - before.draft_tokens,
            "accepted": self.accepted - before.accepted,
            "accepted_per_position": [
                after - earlier for after, earlier in zip(self.per_position, before.per_position, strict=False)
            ],
        }


def parse(text: str, model: str | None = None) -> Snapshot:
    """Read a `/metrics` page in Prometheus' text format.

    Args:
        text: the page.
        model: count only samples of this model, where they name one.

    Raises:
        EvaluationError: the page has none of vLLM's counters.
    """
    values: dict[str, float] = {}
    positions: dict[int, float] = {}
    for name, labels, value in _samples(text):
        if model is not None and labels.get("model_name", model) != model:
            continue
        if name == _PER_POSITION:
            place = int(labels.get("position", 0))
            positions[place] = positions.get(place, 0) + value
        else:
            values[name] = values.get(name, 0) + value
    if _GENERATED not in values:
        raise EvaluationError(
            "the server publishes no counters of vLLM's" + (f" for model {model}" if model else ""),
            why=f"{_GENERATED} is not on its /metrics page",
            fix="name a vLLM server (0.16 to 0.32 are known), started without --disable-log-stats",
        )
    drafts = values.get(_DRAFTS)
    return Snapshot(
        None if drafts is None else int(drafts),
        int(values.get(_DRAFT_TOKENS, 0)),
        int(values.get(_ACCEPTED, 0)),
        tuple(int(positions[place]) for place in sorted(positions)),
        int(values[_GENERATED]),
    )


def _samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    found = []
    for line in text.split("\n"):
        match = None if line.startswith("#") else _SAMPLE.match(line.strip())
        if match is None or not match["name"].startswith("vllm:"):
            continue
        with contextlib.suppress(ValueError):
            value = float(match["value"])
            if math.isfinite(value):
                found.append((match["name"], dict(_LABEL.findall(match["labels"] or "")), value))
    return found
