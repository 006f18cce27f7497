"""The model card beside a draft's weights: where it comes from, what is known of it, its terms, how to serve it.

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
_WHAT = (
    "A draft model for speculative decoding: it proposes tokens, the target checks them. It is of no use without its"
    " target."
)
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
        f"{_WHAT}\n",
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
    ids, parameters = (_of(records.at(_EXPORT, "results", key)) for key in ("layer_ids", "parameters"))
    yield f"parameters: {parameters}; embeddings are the target's"
    yield f"reads the target's states after {ids} decoder layers; config.json names them as {counts}"
    trained = records.mapping(_TRAIN, "results")
    if trained:
        keys = ("steps", "tokens", "loss_first", "loss_last", "validation_loss")
        told = {key: _of(trained.get(key)) for key in keys}
        yield "trained in {steps} steps on {tokens} tokens: loss {loss_first} at first, {loss_last} at last".format(
            **told
        )
        right = _of(trained.get("validation_accuracy"))
        yield f"on samples set apart: loss {told['validation_loss']}, first draft tokens right {right}"
    yield from _acceptance(records)


def _acceptance(records: Records) -> Iterator[str]:
    measured = records.mapping(_RESULT)
    exported = records.at(_EXPORT, "results", "weights_sha256", "vllm")
    if not measured:
        yield "acceptance: not measured yet; `draftkiln evaluate` measures it and writes it here"
        return
    if measured.get("draft_sha256") != exported:
        yield "acceptance: not measured; the run's result is that of other weights"
        return
    keys = ("acceptance_length", "num_draft_tokens", "prompts", "acceptance_per_position", "vllm", "dtype", "sampling")
    told = {key: _of(measured.get(key)) for key in keys}
    yield (
        "acceptance length {acceptance_length} at {num_draft_tokens} draft tokens on {prompts} prompts that were not"
        " trained on (1.00 = nothing accepted); by position {acceptance_per_position}; measured with vLLM {vllm} in"
        " {dtype}, sampling {sampling}"
    ).format(**told)
    for place in range(1, len(records.sequence(_RESULT, "sets"))):
        one = records.mapping(_RESULT, "sets", place)
        prompts, name, length = (_of(one.get(key)) for key in ("prompts", "set", "acceptance_length"))
        temperature = _of(records.at(_RESULT, "sets", place, "sampling", "temperature"))
        yield f"on {prompts} prompts of {name} at temperature {temperature}: acceptance length {length}"
    same = "equal to" if measured.get("lossless") else "DIFFERENT from"
    yield f"output with this draft: {same} the target alone"


def _terms(found: terms.Terms) -> Iterator[str]:
    yield (
        "The draft was trained on the target's hidden states and shares its embeddings, so the target's terms bear on"
        " it."
    )
    if found.licence:
        named = f", {_code(found.name)}" if found.name else ""
        link = f", {_code(found.link)}" if found.link else ""
        yield f"- the target's licence: {_code(found.licence)}{named}{link}, as {found.stated_by} states"
    elif found.name:
        yield f"- the target's licence: {found.name}"
    else:
        yield (
            "- the target's licence: unknown; neither its README.md nor its config.json states one. Look it up before"
            " you pass the draft on."
        )
    for name, line, sha256 in found.files:
        yield f"- {_code(name)} beside the target's weights begins {_code(line)} (sha256 {_code(sha256)})"


def _provenance(records: Records, layout: str, source: dict[str, Any]) -> Iterator[str]:
    prepared, extracted = "prepare/stage.json", "extract/stage.json"
    yield f"recipe: {_of(records.at('run.json', 'recipe'))}"
    config = _of(records.at(extracted, "inputs", "target_config"))
    yield f"target: {_of(source)}, config.json sha256 {config}"
    dataset = _of(records.at(prepared, "results", "dataset_sha256"))
    yield f"data: {_of(records.at(prepared, 'inputs', 'recipe.data', 'source'))}, dataset sha256 {dataset}"
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
