"""The model card beside a draft's weights: where it comes from, what is known of it, under which terms, how to serve it.

It is written from the run's records alone, by `export` and again whenever `export` or `evaluate` is run: the records
stay the only place where a number is kept, and a card cannot say what they do not.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from draftkiln import __version__, durable
from draftkiln.export import terms
from draftkiln.report.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILE = "README.md"
_RESULT = "evaluate/result.json"
_TRAIN, _EXPORT = "train/stage.json", "export/stage.json"
_SERVE = {
    "vllm": """```
vllm serve {target}{options} \\
  --speculative-config '{{"method": "eagle3", "model": "PATH/TO/THIS/FOLDER", "num_speculative_tokens": {tokens}}}'
```""",
    "sglang": """```
python -m sglang.launch_server --model {target}{options} --speculative-algorithm EAGLE3 \\
  --speculative-draft-model-path PATH/TO/THIS/FOLDER \\
  --speculative-num-steps {tokens} --speculative-eagle-topk 1 --speculative-num-draft-tokens {more}
```""",
}


def write(run: Path, target: Path) -> None:
    """Write the card of each folder that `run` exported.

    Args:
        run: run directory; nothing is written where export is not finished.
        target: folder of the target.
    """
    records = Records.open(run)
    for layout in records.mapping(_EXPORT, "results", "weights_sha256"):
        if (run / "export" / layout).is_dir():
            durable.write_text(run / "export" / layout / FILE, text(records, layout, target))


def text(records: Records, layout: str, target: Path) -> str:
    """The card of the folder `layout` (`vllm` or `sglang`)."""
    source = records.mapping("extract/stage.json", "inputs", "recipe.target", "source")
    found = terms.of(target, source)
    parts = [
        _front_matter(source, layout),
        f"# EAGLE-3 draft for {_code(_name(source, target))}\n",
        "A draft model for speculative decoding: it proposes tokens, the target checks them. It is of no use without"
        " its target.\n",
        "## Serve it\n",
        _serve(records, layout, _name(source, target)),
        "\n## What is known of it\n",
        *(f"- {line}" for line in _numbers(records, layout)),
        "\n## Terms\n",
        *_terms(found),
        "\n## Where it comes from\n",
        *(f"- {line}" for line in _provenance(records, layout, source)),
        f"\nWritten by draftkiln {__version__} from the records of its run.\n",
    ]
    return "\n".join(parts)


def _front_matter(source: dict[str, Any], layout: str) -> str:
    """What hubs read; the draft's own licence is for its publisher to state."""
    base = [f"base_model: {json.dumps(source['hub'])}"] if isinstance(source.get("hub"), str) else []
    tags = ("eagle3", "speculative-decoding", "speculators" if layout == "vllm" else "sglang")
    return "\n".join(["---", *base, "tags:", *(f"- {tag}" for tag in tags), "---\n"])


def _serve(records: Records, layout: str, target: str) -> str:
    """The command that serves target and draft."""
    written = records.at("export/vllm/config.json", "speculators_config", "proposal_methods", 0, "speculative_tokens")
    tokens = written if isinstance(written, int) else 3
    asked = records.mapping("extract/stage.json", "inputs", "recipe.target")
    devices = asked.get("tensor_parallel_size", 1)
    revision = asked["source"].get("revision") if isinstance(asked.get("source"), dict) else None
    options = [f"--revision {_shell(revision)}"] if isinstance(revision, str) else []
    if isinstance(devices, int) and devices > 1:
        options.append(f"--{'tensor-parallel-size' if layout == 'vllm' else 'tp'} {devices}")
    options += ["--trust-remote-code"] if asked.get("trust_remote_code") is True else []
    words = "".join(f" {option}" for option in options)
    return _SERVE[layout].format(target=_shell(target), options=words, tokens=tokens, more=tokens + 1)


def _numbers(records: Records, layout: str) -> Iterator[str]:
    counts = "vLLM counts" if layout == "vllm" else "SGLang counts"
    results = records.mapping(_TRAIN, "results")
    yield f"parameters: {_of(records.at(_EXPORT, 'results', 'parameters'))}; embeddings are the target's"
    ids = records.at(_EXPORT, "results", "layer_ids")
    yield f"reads the target's states after {_of(ids)} decoder layers; config.json names them as {counts}"
    if results:
        steps, tokens = _of(results.get("steps")), _of(results.get("tokens"))
        yield f"trained in {steps} steps on {tokens} tokens: loss {_of(results.get('loss_first'))} at first, {_of(results.get('loss_last'))} at last"
        if results.get("validation_accuracy"):
            yield f"on samples set apart: loss {_of(results.get('validation_loss'))}, first draft tokens right {_of(results['validation_accuracy'])}"
    yield from _acceptance(records)


def _acceptance(records: Records) -> Iterator[str]:
    measured = records.mapping(_RESULT)
    exported = records.at(_EXPORT, "results", "weights_sha256", "vllm")
    if not measured:
        yield "acceptance: not measured yet; `draftkiln evaluate` measures it and writes it here"
    elif measured.get("draft_sha256") != exported:
        yield "acceptance: not measured; the run's result is that of other weights"
    else:
        yield (
            f"acceptance length {_of(measured.get('acceptance_length'))} at {_of(measured.get('num_draft_tokens'))} draft"
            f" tokens on {_of(measured.get('prompts'))} prompts that were not trained on (1.00 = nothing accepted); by"
            f" position {_of(measured.get('acceptance_per_position'))}; measured with vLLM {_of(measured.get('vllm'))} in"
            f" {_of(measured.get('dtype'))}, sampling {_of(measured.get('sampling'))}"
        )
        for one in records.sequence(_RESULT, "sets")[1:]:
            yield (
                f"on {_of(one.get('prompts'))} prompts of {_of(one.get('set'))} at temperature"
                f" {_of(one.get('sampling', {}).get('temperature'))}: acceptance length {_of(one.get('acceptance_length'))}"
            )
        same = "equal to" if measured.get("lossless") else "DIFFERENT from"
        yield f"output with this draft: {same} the target alone"


def _terms(found: terms.Terms) -> Iterator[str]:
    yield "The draft was trained on the target's hidden states and shares its embeddings, so the target's terms bear on it."
    if found.licence:
        named = f", {_code(found.name)}" if found.name else ""
        link = f", {_code(found.link)}" if found.link else ""
        yield f"- the target's licence: {_code(found.licence)}{named}{link}, as {found.stated_by} states"
    elif found.name:
        yield f"- the target's licence: {found.name}"
    else:
        yield "- the target's licence: unknown; neither its README.md nor its config.json states one. Look it up before you pass the draft on."
    for name, line, sha256 in found.files:
        yield f"- {_code(name)} beside the target's weights begins {_code(line)} (sha256 {_code(sha256)})"


def _provenance(records: Records, layout: str, source: dict[str, Any]) -> Iterator[str]:
    yield f"recipe: {_of(records.at('run.json', 'recipe'))}"
    yield f"target: {_of(source)}, config.json sha256 {_of(records.at('extract/stage.json', 'inputs', 'target_config'))}"
    yield f"data: {_of(records.at('prepare/stage.json', 'inputs', 'recipe.data', 'source'))}, dataset sha256 {_of(records.at('prepare/stage.json', 'results', 'dataset_sha256'))}"
    for stage in ("extract", "train"):
        inputs = records.mapping(f"{stage}/stage.json", "inputs")
        yield (
            f"{stage}: stack {_of(inputs.get('stack'))}, requirements.lock sha256 {_of(inputs.get('requirements'))},"
            f" speculators' wheel sha256 {_of(inputs.get('speculators'))}"
        )
    yield f"checkpoint sha256 {_of(records.at(_TRAIN, 'results', 'checkpoint_sha256'))}"
    yield f"these weights, sha256 {_of(records.at(_EXPORT, 'results', 'weights_sha256', layout))}"


def _name(source: dict[str, Any], target: Path) -> str:
    """The target's name that others know: its repository, else its folder's name."""
    return source["hub"] if isinstance(source.get("hub"), str) else target.name


def _of(value: Any) -> str:
    """A value of a record; numbers with six digits."""
    if value is None:
        return "not recorded"
    if isinstance(value, float):
        return f"`{value:.6g}`"
    return _code(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _code(content: str) -> str:
    """Text that Markdown shows as it is."""
    plain = "".join(letter if letter.isprintable() else "�" for letter in content)
    fence = "`"
    while fence in plain:
        fence += "`"
    space = " " if fence != "`" or not plain else ""
    return f"{fence}{space}{plain}{space}{fence}"


def _shell(content: str) -> str:
    import shlex

    return shlex.quote("".join(letter for letter in content if letter.isprintable()).replace("`", ""))
