"""What an engine is asked and what it answers, as both sides of its process write it down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn."""

    temperature: float = 0.0
    """0 = greedy."""
    top_p: float = 1.0
    seed: int = 0
    """Seed of the first prompt of a set; each further one adds its place. Without effect at temperature 0."""

    def __str__(self) -> str:
        if not self.temperature:
            return "greedy"
        return f"temperature {self.temperature:g}, top_p {self.top_p:g}, seed {self.seed}"


GREEDY = Sampling()


@dataclass(frozen=True)
class Job:
    """What an engine is asked: all prompts of all sets once for each way of sampling."""

    target: str
    draft: str | None
    """Folder of the draft in a layout that vLLM loads; None: the target alone."""
    num_draft_tokens: int
    sets: list[tuple[str, list[list[int]]]]
    """Names of the prompt sets and the token ids of their prompts, in the order in which they are answered. No mapping:
    files of this project are written with sorted keys, and the first set is the one that stands for the whole."""
    samplings: list[Sampling]
    max_tokens: int
    ignore_eos: bool
    dtype: str
    device: str
    """`cpu` or `cuda`."""
    tensor_parallel_size: int
    trust_remote_code: bool
    load_format: str

    @property
    def max_model_len(self) -> int:
        """Room for the longest prompt, its answer, and the drafts beyond it."""
        longest = max(len(prompt) for _, prompts in self.sets for prompt in prompts)
        return longest + self.max_tokens + self.num_draft_tokens + 1

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Job:
        """The job that `dataclasses.asdict` made `value` of."""
        samplings = [Sampling(**one) for one in value["samplings"]]
        return cls(**{**value, "sets": [(name, rows) for name, rows in value["sets"]], "samplings": samplings})


@dataclass(frozen=True)
class Round:
    """Answers to one set, drawn in one way."""

    set: str
    sampling: Sampling
    outputs: list[list[int]]
    seconds: float
    """Time for all prompts together, warm."""
    counters: dict[str, Any]
    """`drafts`, `draft_tokens`, `accepted`, `accepted_per_position`; empty without a draft."""

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(map(len, self.outputs))


@dataclass(frozen=True)
class Answers:
    """What an engine answered."""

    rounds: list[Round]
    start_seconds: float
    """Time until the engine was loaded, imports that engines share left out."""
    vllm: str

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Answers:
        """The answers that `dataclasses.asdict` made `value` of."""
        rounds = [Round(**{**one, "sampling": Sampling(**one["sampling"])}) for one in value["rounds"]]
        return cls(**{**value, "rounds": rounds})
