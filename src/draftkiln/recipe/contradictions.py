"""What is wrong with values that are each right alone: rules over the whole recipe.

A rule asks for values by key path. One whose values are absent or wrong themselves is skipped, so that the rest is
still reported together with every unknown key and wrong type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from draftkiln.recipe.model import HELD_OUT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from draftkiln.recipe.document import Location
    from draftkiln.recipe.places import Values


class Contradiction(NamedTuple):
    """Two or more values that cannot stand together; `where` names the one to change."""

    where: Location
    what: str
    why: str
    fix: str


def contradictions(values: Values) -> list[Contradiction]:
    """Apply every rule."""
    found: list[Contradiction] = []
    for rule in RULES:
        try:
            found.extend(rule(values))
        except LookupError:
            continue
    return found


def _aux_ids(values: Values) -> Iterator[Contradiction]:
    aux = list(values("layers.aux"))
    where: Location = ("layers", "aux")
    low = ", ".join(str(layer) for layer in aux if layer < 1)
    if low:
        yield Contradiction(
            where,
            f"id {low} is no decoder layer's output",
            "id 0 is the embeddings, which the generator cannot give",
            "name ids from 1 on",
        )
    doubled = sorted({layer for layer in aux if aux.count(layer) > 1})
    if doubled:
        text = ", ".join(map(str, doubled))
        yield Contradiction(
            where,
            f"id {text} is named more than once",
            "the draft fuses three different states",
            "name three different ids",
        )
    elif aux != sorted(aux) and not low:
        yield Contradiction(
            where, f"{aux} does not ascend", "the engine returns states in ascending order", f"write {sorted(aux)}"
        )


def _draft_heads(values: Values) -> Iterator[Contradiction]:
    heads, groups = values("train.draft.num_attention_heads"), values("train.draft.num_key_value_heads")
    if heads % groups:
        yield Contradiction(
            ("train", "draft", "num_key_value_heads"),
            f"{groups} does not divide num_attention_heads {heads}",
            "each key/value head serves the same number of query heads",
            f"use one of {[n for n in range(1, heads + 1) if heads % n == 0]}",
        )


def _head_dim(values: Values) -> Iterator[Contradiction]:
    size = values("train.draft.head_dim")
    if size % 2:
        yield Contradiction(
            ("train", "draft", "head_dim"), f"{size} is odd", "rotary positions turn pairs", "use an even size"
        )


def _held_out(values: Values) -> Iterator[Contradiction]:
    limit, held_out = values("data.limit"), values("data.held_out")
    if limit is not None and held_out >= limit:
        yield Contradiction(
            values.first_named("data.held_out", "data.limit"),
            f"{held_out} of at most {limit} conversations are held out",
            "none is left to train on (data.limit counts the held-out ones too)",
            "lower data.held_out or raise data.limit",
        )


def _limit_of_synthetic(values: Values) -> Iterator[Contradiction]:
    if values("data.limit") is not None and _is_synthetic(values):
        yield Contradiction(
            ("data", "limit"),
            "synthetic conversations have a limit",
            "`synthetic` is their number already",
            "remove data.limit",
        )


def _answers_of_synthetic(values: Values) -> Iterator[Contradiction]:
    if values("data.answers") is not None and _is_synthetic(values):
        yield Contradiction(
            ("data", "answers"),
            "synthetic conversations cannot be answered anew",
            "their answers are random words, so that each sample has exactly data.max_tokens tokens",
            "remove data.answers, or name a file with data.source.path",
        )


def _answer_length(values: Values) -> Iterator[Contradiction]:
    if values("data.answers") is None:
        return
    answer, sample = values("data.answers.max_tokens"), values("data.max_tokens")
    if answer >= sample:
        yield Contradiction(
            values.first_named("data.answers.max_tokens", "data.max_tokens"),
            f"an answer of {answer} tokens does not fit a sample of {sample}",
            "the prompt needs room too",
            "lower data.answers.max_tokens or raise data.max_tokens",
        )


def _network_of_hub(values: Values) -> Iterator[Contradiction]:
    if "hub" in values("data.source") and not values("data.source.network"):
        yield Contradiction(
            values.first_named("data.source.network", "data.source.hub"),
            "a data set on the Hub without a network",
            "nothing is fetched unless the recipe says so",
            "add `network: true`, or fetch the files yourself and name them with `path`",
        )


def _no_files(values: Values) -> Iterator[Contradiction]:
    source = values("data.source")
    for key in ("several", "files"):
        if key in source and not source[key]:
            yield Contradiction(("data", "source", key), "no file is named", "nothing could be read", "name one")


def _text_without_answers(values: Values) -> Iterator[Contradiction]:
    if values("data.raw_text") is None:
        return
    if values("data.answers") is not None:
        yield Contradiction(
            ("data", "raw_text"),
            "raw text cannot be answered anew",
            "it has no prompt that the target's template would know",
            "remove data.raw_text or data.answers",
        )
    if values.named("data.raw_text.answer_ends") and not values.named("data.raw_text.answer_begins"):
        yield Contradiction(
            ("data", "raw_text", "answer_ends"),
            "an end of answers without a beginning",
            "without `answer_begins` the whole text is trained",
            "add `answer_begins`, or remove `answer_ends`",
        )


def _prompts(values: Values) -> Iterator[Contradiction]:
    prompts, held_out = values("evaluate.prompts"), values("data.held_out")
    if prompts > held_out:
        yield Contradiction(
            values.first_named("evaluate.prompts", "data.held_out"),
            f"{prompts} prompts are asked for, {held_out} are held out",
            "acceptance is measured on prompts that were not trained on",
            "raise data.held_out or lower evaluate.prompts",
        )


def _names_of_sets(values: Values) -> Iterator[Contradiction]:
    seen = {HELD_OUT}
    for place, one in enumerate(values("evaluate.sets")):
        if one["name"] in seen:
            yield Contradiction(
                ("evaluate", "sets", place, "name"),
                f"two sets are named {one['name']}",
                f"results are kept by name, and {HELD_OUT} is what `prepare` sets apart",
                "name it otherwise",
            )
        seen.add(one["name"])


def _tokens_per_step(values: Values) -> Iterator[Contradiction]:
    step, sample = values("train.tokens_per_step"), values("data.max_tokens")
    if step < sample and not values("train.cut_samples"):
        yield Contradiction(
            values.first_named("train.tokens_per_step", "data.max_tokens"),
            f"a sample of {sample} tokens does not fit a step of {step}",
            "the trainer would cut it without a word",
            "raise train.tokens_per_step, lower data.max_tokens, or say train.cut_samples",
        )


def _steps_or_epochs(values: Values) -> Iterator[Contradiction]:
    if values("train.max_steps") is not None and values.named("train.epochs"):
        yield Contradiction(
            ("train", "epochs"),
            "both max_steps and epochs are named",
            "one of them would be ignored",
            "remove one of the two",
        )


def _settings_of_muon(values: Values) -> Iterator[Contradiction]:
    if values("train.optimizer") == "muon":
        return
    for key in ("muon_lr", "muon_weight_decay"):
        if values(f"train.{key}") is not None:
            yield Contradiction(
                ("train", key),
                "a setting of Muon, which is not used",
                f"train.optimizer is {values('train.optimizer')}",
                f"write `optimizer: muon`, or remove {key}",
            )


def _decay_of_muon(values: Values) -> Iterator[Contradiction]:
    decay = values("train.muon_weight_decay")
    if values("train.optimizer") != "muon" or decay is None:
        return
    name = "lr" if values("train.muon_lr") is None else "muon_lr"
    taken = decay * values(f"train.{name}")
    if taken >= 1:
        yield Contradiction(
            ("train", "muon_weight_decay"),
            f"{decay:g} times the learning rate is {taken:g}",
            "each step of Muon takes that share of the weights away: nothing is left of them",
            f"lower it below {1 / values(f'train.{name}'):g}, or train.{name}; the usual decay is 0.1",
        )


def _sharded_alone(values: Values) -> Iterator[Contradiction]:
    if values("train.shard") and values("train.devices") == 1:
        yield Contradiction(
            values.first_named("train.shard", "train.devices"),
            "weights are spread over one device",
            "train.devices is 1",
            "name the number of GPUs with train.devices, or remove train.shard",
        )


def _validated_samples(values: Values) -> Iterator[Contradiction]:
    if values("validate.against") is None or not _is_synthetic(values):
        return
    checked, made = values("validate.samples"), values("data.source.synthetic")
    if checked > made:
        yield Contradiction(
            values.first_named("validate.samples", "data.source.synthetic"),
            f"{checked} samples are to be compared, {made} are made",
            "",
            "lower validate.samples",
        )


def _dummy_weights(values: Values) -> Iterator[Contradiction]:
    if values("target.load_format") == "dummy" and values("validate.against") is not None:
        yield Contradiction(
            values.first_named("validate.against", "target.load_format"),
            "made-up weights are compared with the real ones",
            "target.load_format is dummy",
            "write `against: null`, or load the weights",
        )


def _is_synthetic(values: Values) -> bool:
    return "synthetic" in values("data.source")


RULES: tuple[Callable[[Values], Iterator[Contradiction]], ...] = (
    _aux_ids,
    _draft_heads,
    _head_dim,
    _held_out,
    _limit_of_synthetic,
    _answers_of_synthetic,
    _answer_length,
    _network_of_hub,
    _no_files,
    _text_without_answers,
    _prompts,
    _names_of_sets,
    _tokens_per_step,
    _steps_or_epochs,
    _settings_of_muon,
    _decay_of_muon,
    _sharded_alone,
    _validated_samples,
    _dummy_weights,
)
