"""Acceptance that authors of published drafts state, each with the page that states it; nothing without a source.

Prompts, sampling and engines differ, so these are neighbours to look at and no ranking.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A figure of a published draft.

    Attributes:
        target: repository of its target.
        draft: repository of the draft.
        url: page that states the figure.
        prompts: what it was measured on.
        draft_tokens: proposed a step.
        length: mean tokens that a step of the target yields.
        per_position: share of drafts whose tokens 1..k were all accepted, where it is stated.
        note: how it was measured.
    """

    target: str
    draft: str
    url: str
    prompts: str
    draft_tokens: int
    length: float
    per_position: tuple[float, ...] = ()
    note: str = ""


_K25, _K26 = "moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6"
_MHA, _MLA = "lightseekorg/kimi-k2.5-eagle3", "lightseekorg/kimi-k2.5-eagle3-mla"
_OFFICIAL_K26, _TUNED_K26 = "lightseekorg/kimi-k2.6-eagle3-mla", "k-l-lambda/kimi-k2.6-eagle3-mla"
_HUB = "https://huggingface.co/"
_FROZEN = "912 held-out conversations"
_GREEDY = "greedy, vLLM 0.20.0; the card calls the shares conditional, but one and their sum is the length"


def _lengths(draft: str, lengths: dict[str, float]) -> tuple[Published, ...]:
    note = "top-k 1; MLA draft" if draft == _MLA else "top-k 1, after 40k steps"
    return tuple(Published(_K25, draft, _HUB + draft, name, 3, value, note=note) for name, value in lengths.items())


PUBLISHED: tuple[Published, ...] = (
    *_lengths(_MHA, {"MT-Bench": 2.687, "GSM8K": 3.201, "HumanEval": 3.285, "MATH500": 3.342}),
    *_lengths(_MLA, {"MT-Bench": 2.940, "GSM8K": 3.017, "HumanEval": 2.969, "MATH500": 3.051}),
    Published(_K26, _OFFICIAL_K26, _HUB + _TUNED_K26, _FROZEN, 3, 2.30, (0.633, 0.404, 0.264), _GREEDY),
    Published(_K26, _TUNED_K26, _HUB + _TUNED_K26, _FROZEN, 3, 2.345, (0.648, 0.419, 0.278), _GREEDY),
)


def beside(target: str | None, draft_tokens: int | None) -> list[Published]:
    """Figures of drafts for the same target at the same number of draft tokens.

    Args:
        target: repository of the run's target; None where it comes from no repository.
        draft_tokens: of the run's evaluation.
    """
    wanted = (target or "").casefold()
    return [one for one in PUBLISHED if one.target.casefold() == wanted and one.draft_tokens == draft_tokens]
