"""The numeric checks of some samples: against a reference, and the last slot against what the engine itself said."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from draftkiln.errors import ProblemsError, ValidationError
from draftkiln.extract import samples, top_tokens
from draftkiln.target.facts import text_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from draftkiln.extract.engine import Settings
    from draftkiln.extract.manifest import Manifest
    from draftkiln.recipe.model import Validate
    from draftkiln.stagelog import Terminal
    from draftkiln.validate.head import Answer
    from draftkiln.validate.reference import Agreement

_MIN_SAME = {"bfloat16": 0.98, samples.FP8: 0.9}
"""Share of the tokens where the head says the same: close calls are lost to rounding of what is stored."""
_MIN_NEAREST = 0.75


def routed(target: Path) -> bool:
    """Whether the target sends each token to some of its experts only."""
    text = text_config(json.loads((target / "config.json").read_text(encoding="utf-8")))
    experts = next((text[key] for key in ("n_routed_experts", "num_experts", "num_local_experts") if text.get(key)), 0)
    return bool(experts and (text.get("num_experts_per_tok") or 0) < experts)


def spread(indices: Sequence[int], count: int) -> list[int]:
    """`count` of `indices`, spread over all: a fault that begins with a later batch must be met too."""
    count = min(count, len(indices))
    return list(dict.fromkeys(indices[round(k * (len(indices) - 1) / max(count - 1, 1))] for k in range(count)))


@dataclass(frozen=True)
class Comparison:
    """What is compared with a reference.

    Attributes:
        target: its directory.
        settings: how many samples, and how alike they must be.
        found: the manifest.
        folder: of the samples.
        rows: the dataset.
        terminal: for people.
    """

    target: Path
    settings: Validate
    found: Manifest
    folder: Path
    rows: Any
    terminal: Terminal

    def chosen(self) -> list[int]:
        """The samples that are compared."""
        return spread(self.found.head.indices, self.settings.samples)

    def with_transformers(self) -> tuple[list[Agreement], list[ValidationError]]:
        """Compare with transformers' own states; the comparisons, and what is wrong."""
        from draftkiln.target.reference import reference_text_model
        from draftkiln.validate import reference

        return self._with("transformers", functools.partial(reference.compare, reference_text_model(self.target)))

    def with_vllm(self, settings: Settings) -> tuple[list[Agreement], list[ValidationError]]:
        """Compare with the states of vLLM itself, started as `settings` say; likewise."""
        from draftkiln.validate import vllm_reference

        with vllm_reference.started(settings, self.found.head.layer_ids) as engine:
            self.terminal.line(f"validate: vLLM {engine.version} gives its states {engine.taken}")
            return self._with("vllm", engine.compare)

    def _with(
        self, name: str, compare: Callable[..., list[Agreement]]
    ) -> tuple[list[Agreement], list[ValidationError]]:
        import safetensors.torch

        chosen = self.chosen()
        agreements: list[Agreement] = []
        for number, index in enumerate(chosen, start=1):
            tensors = safetensors.torch.load_file(self.folder / samples.name(index))
            states = tensors["hidden_states"]
            if samples.SCALES in tensors:
                states = states.float() * tensors[samples.SCALES]
            agreements += compare(index, self.rows[index]["input_ids"], states, self.found.head.layer_ids)
            lowest = min(agreement.min_cosine for agreement in agreements)
            self.terminal.progress(
                f"validate: {number}/{len(chosen)} samples against {name}, least cosine {lowest:.5f}",
                last=number == len(chosen),
            )
        flips, fp8 = routed(self.target), self.found.head.dtype == samples.FP8
        least = self.settings.min_cosine_fp8 if fp8 else self.settings.min_cosine
        wrong = (disagreement(a, least, self.found, flips=flips, reference=name) for a in agreements)
        return agreements, [problem for problem in wrong if problem]


def disagreement(
    agreement: Agreement, least: float, found: Manifest, *, flips: bool, reference: str = "transformers"
) -> ValidationError | None:
    """What is wrong with a slot of a sample beside its reference; None when nothing is.

    Args:
        agreement: of the slot.
        least: cosine that every row must reach.
        found: the manifest.
        flips: whether tokens are routed, so that rows may differ after a close call.
        reference: its name.
    """
    where = f"{samples.name(agreement.index)}: layer {agreement.layer}"
    if agreement.min_cosine < least and not (flips and agreement.nearest >= _MIN_NEAREST):
        nearest = f"; {agreement.nearest:.0%} of the rows are nearest to their own reference" if flips else ""
        return ValidationError(
            f"{where}, row {agreement.row}: cosine {agreement.min_cosine:.5f} to {reference}, at least {least} wanted"
            + nearest,
            why="rows of another sample, another layer, or an engine that computes something else",
            fix="run `draftkiln preflight` on the extraction stack; do not train on these states",
        )
    wanted = _MIN_SAME[found.head.dtype]
    if agreement.argmax is not None and agreement.argmax < wanted and not flips:
        return ValidationError(
            f"{where}: lm_head(norm(last slot)) gives the reference's next token for "
            f"{agreement.argmax:.1%} of the tokens, at least {wanted:.0%} wanted",
            why="the last slot is not the state before the final norm",
        )
    return None


def against_engine(target: Path, found: Manifest, folder: Path) -> tuple[list[Answer], Iterator[ValidationError]]:
    """Compare the last slot of the samples that the engine was asked about; none where the check cannot be made.

    Raises:
        ProblemsError: the file of what it said is not of these samples.
    """
    from draftkiln.validate import head

    said = top_tokens.read(folder.parent / top_tokens.FILE)
    said = {index: ids for index, ids in said.items() if index in found.receipts}
    if not said or head.why_not(target) is not None:
        return [], iter(())
    odd = [index for index, ids in said.items() if len(ids) != found.receipts[index].rows]
    if odd:
        raise ProblemsError([_odd_answers(index, len(said[index]), found.receipts[index].rows) for index in odd])
    states = {index: head.last_slot(folder / samples.name(index)) for index in said}
    answers = head.compare(target, states, said)
    return answers, _answer_problems(answers, _MIN_SAME[found.head.dtype])


def _odd_answers(index: int, count: int, rows: int) -> ValidationError:
    return ValidationError(
        f"{top_tokens.FILE}: sample {index} has {count} next tokens for {rows} tokens",
        why="the engine said one after each token; the file was changed, or is another run's",
        fix=f"remove extract/{top_tokens.FILE} of this run: nothing is compared with it then",
    )


def _answer_problems(answers: list[Answer], wanted: float) -> Iterator[ValidationError]:
    rows, same = sum(answer.rows for answer in answers), sum(answer.same for answer in answers)
    if same < wanted * rows:
        worst = min(answers, key=lambda answer: answer.same / answer.rows)
        yield ValidationError(
            f"{samples.name(worst.index)}: lm_head(norm(last slot)) gives the engine's own next token for "
            f"{worst.same} of {worst.rows} tokens, not from row {worst.row} on; in all {same / rows:.1%} of {rows}, "
            f"at least {wanted:.0%} wanted",
            why="the last slot is not what the engine computed its answer from: another layer, row or sample",
            fix="run `draftkiln preflight` on the extraction stack; do not train on these states",
        )
