"""What an engine is asked and what it answers, as both sides of its process write it down."""

from __future__ import annotations

from dataclasses import dataclass, field
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
class Question:
    """A prompt, and what the user says after each answer."""

    ids: list[int]
    """Token ids of the first turn."""
    messages: list[dict[str, str]] = field(default_factory=list)
    """What the ids were written out of, where further turns go on from it."""
    then: list[str] = field(default_factory=list)
    """The user's further turns; between them stand the model's own answers."""
    least: int = 0
    """Tokens of the last turn's prompt without any answer; 0 where there is one turn."""

    def longest(self, answer: int) -> int:
        """Tokens that the last turn's prompt may have when answers have `answer` tokens.

        A chat template writes an answer out as text, which may take more tokens than the model wrote it in: twice as
        many are allowed for.
        """
        return max(len(self.ids), self.least + 2 * answer * len(self.then) if self.then else 0)


@dataclass(frozen=True)
class Job:
    """What an engine is asked: all prompts of all sets once for each way of sampling."""

    target: str
    draft: str | None
    """Folder of the draft in a layout that vLLM loads; None: the target alone."""
    num_draft_tokens: int
    sets: list[tuple[str, list[Question]]]
    """Names of the prompt sets and their prompts, in the order in which they are answered. No mapping: files of this
    project are written with sorted keys, and the first set is the one that stands for the whole."""
    samplings: list[Sampling]
    max_tokens: int
    ignore_eos: bool
    dtype: str
    device: str
    """`cpu` or `cuda`."""
    tensor_parallel_size: int
    trust_remote_code: bool
    load_format: str
    template_arguments: dict[str, Any] = field(default_factory=dict)
    """Of the chat template, for further turns."""
    positions: int | None = None
    """Of the target; None where they are not known."""
    gpu_memory_utilization: float = 0.9
    """Share of a GPU's memory that the engine takes."""

    @property
    def beyond(self) -> int:
        """Tokens that a prompt leaves room for: its answer, and the drafts beyond it."""
        return self.max_tokens + self.num_draft_tokens + 1

    @property
    def max_model_len(self) -> int:
        """Room for the longest prompt and what comes after it."""
        wanted = max(one.longest(self.max_tokens) for _, asked in self.sets for one in asked) + self.beyond
        return min(wanted, self.positions or wanted)

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Job:
        """The job that `dataclasses.asdict` made `value` of."""
        samplings = [Sampling(**one) for one in value["samplings"]]
        sets = [(name, [Question(**one) for one in asked]) for name, asked in value["sets"]]
        return cls(**{**value, "sets": sets, "samplings": samplings})


@dataclass(frozen=True)
class Round:
    """Answers to one set, drawn in one way."""

    set: str
    sampling: Sampling
    outputs: list[list[list[int]]]
    """Token ids by prompt and turn."""
    seconds: float
    """Time for all prompts together, warm."""
    counters: dict[str, Any]
    """`drafts`, `draft_tokens`, `accepted`, `accepted_per_position`; empty without a draft."""

    @property
    def answers(self) -> list[list[int]]:
        """Token ids of all answers, one after the other."""
        return [answer for turns in self.outputs for answer in turns]

    @property
    def tokens(self) -> int:
        """Tokens of all answers."""
        return sum(map(len, self.answers))


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
