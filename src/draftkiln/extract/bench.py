"""`draftkiln bench`: what extraction costs beside plain prefill, on the same engine and prompts in one run.

Rounds alternate plain prefill and extraction as the stage does it (checksums, syncs and manifest included), so that a
slow moment of a shared machine meets both. vLLM's own extraction and the way of speculators' own `generate()`, states
back to the driver and a `torch.save` a sample, follow on engines of their own. What engines print goes into a log: the
figures are for people.
"""

from __future__ import annotations

import functools
import json
import os
import random
import statistics
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln import arithmetic, stagelog
from draftkiln.counts import positive
from draftkiln.errors import UsageError
from draftkiln.extract import alternation, ceilings, neighbours, resume
from draftkiln.extract.engine import Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from draftkiln.extract.neighbours import Prompts
    from draftkiln.stagelog import Terminal

_OWN = "vLLM's own extract_hidden_states"
_PLAIN, _EXTRACT = "plain prefill", "extract"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is measured and how often."""
    parser.add_argument("--recipe", type=Path, metavar="FILE", help="target, layers, engine, writers")
    parser.add_argument("--folder", type=Path, required=True, metavar="DIR", help="where samples go; made and emptied")
    parser.add_argument("--rounds", type=positive, default=3, help="rounds of each path after one that is not counted")
    parser.add_argument("--samples", type=positive, default=16, help="prompts of a round")
    parser.add_argument(
        "--tokens", type=_lengths, default=(512,), metavar="N[,N…]", help="tokens of a prompt; several take turns"
    )
    parser.add_argument(
        "--also",
        type=_case,
        action="append",
        default=[],
        metavar="DIR:N[,N…]",
        help="on the same engine also into this folder, with prompts of these lengths, about as many tokens a round",
    )
    parser.add_argument(
        "--neighbour-samples", type=positive, metavar="N", help="prompts of a round of the slower ways; default: all"
    )
    parser.add_argument(
        "--skip-ceilings", action="store_true", help="leave out what bus and storage take by themselves"
    )
    parser.add_argument(
        "--token-budget",
        type=positive,
        metavar="N",
        help="tokens of a step; default: the recipe's. A round should have many",
    )
    parser.add_argument("--writers", type=positive, metavar="N", help="threads that write; default: the recipe's")
    parser.add_argument(
        "--slots",
        type=int,
        choices=(3, 4),
        default=4,
        help="states of a token: 3 leaves the one after the last layer out",
    )
    parser.add_argument("--skip-own", action="store_true", help="leave vLLM's own extract_hidden_states out")
    parser.add_argument("--skip-generator", action="store_true", help="leave speculators' own generate() out")
    parser.add_argument(
        "--resume",
        type=positive,
        metavar="N",
        help="measure, without an engine, how long a resume looks at N samples and how much memory that takes",
    )
    parser.add_argument("--result", type=Path, metavar="FILE", help="also write every round as JSON")


def _lengths(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _case(text: str) -> tuple[Path, tuple[int, ...]]:
    folder, _, lengths = text.rpartition(":")
    return Path(folder), _lengths(lengths)


def main(arguments: argparse.Namespace) -> int:
    """Measure and print tokens a second of every path and their ratios to plain prefill."""
    import sys

    from draftkiln.recipe.load import load
    from draftkiln.stack import environment

    if arguments.resume is not None:
        return resume.measure(alternation.fresh(arguments.folder), arguments.resume)
    if arguments.recipe is None:
        raise UsageError("bench needs --recipe", fix="name one, or --resume N to measure a resume alone")
    recipe = load(arguments.recipe)
    changes = {name: getattr(arguments, name) for name in ("token_budget", "writers")}
    extract = recipe.extract.model_copy(update={name: value for name, value in changes.items() if value is not None})
    recipe = recipe.model_copy(update={"extract": extract})
    environment.enter(recipe.stacks.extract, sys.argv[1:])
    log = arguments.folder.with_name(f"{arguments.folder.name}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    print(f"bench: what the engines print goes to {log}", flush=True)
    with stagelog.stage_log(log) as terminal:
        return _measure(recipe, arguments, terminal)


def _measure(recipe: Any, arguments: argparse.Namespace, terminal: Terminal) -> int:
    from draftkiln import cache
    from draftkiln.stack.model import read
    from draftkiln.target import facts as target_facts
    from draftkiln.target.resolve import ensure

    target = ensure(recipe.target.source, cache.root() / "targets")
    facts = target_facts.read(target)
    device = read(recipe.stacks.extract).file.device
    dtype = arithmetic.engine_dtype(recipe.target.dtype, device)
    prompts = _prompts(arguments.tokens, arguments.samples, facts.vocab_size)
    others = prompts[: arguments.neighbour_samples]
    captured = recipe.layers.captured(facts.num_layers)[: arguments.slots]
    longest = max(length for lengths in (arguments.tokens, *(case[1] for case in arguments.also)) for length in lengths)
    settings = Settings(target, facts, recipe, longest, dtype, layer_ids=captured)
    folder = alternation.fresh(arguments.folder)
    rates: dict[str, list[float]] = {}
    notes: dict[str, str] = {}
    with_sink = alternation.WithSink(settings, folder)
    paths: dict[str, Callable[[Prompts], float]] = {_PLAIN: with_sink.plain, _EXTRACT: with_sink.extract}
    try:
        _rounds(paths, prompts, arguments.rounds, rates, terminal)
        for place, lengths in arguments.also:
            count = max(1, round(sum(map(len, prompts)) * len(lengths) / sum(lengths)))
            what = f"{place}, {count} x {'/'.join(map(str, lengths))} tokens"
            into = functools.partial(with_sink.extract, folder=alternation.fresh(place))
            paths = {f"{_PLAIN}, {what}": with_sink.plain, f"{_EXTRACT}, {what}": into}
            _rounds(paths, _prompts(lengths, count, facts.vocab_size), arguments.rounds, rates, terminal)
    finally:
        with_sink.engine.shut_down()
    plain, extracting = with_sink.memory
    more = f"{(extracting - plain) / 1e9:.2f} GB more than prefill alone ({plain / 1e9:.2f} GB)"
    terminal.line(f"host memory of driver and engine at the highest of extraction: {more}")
    if not arguments.skip_ceilings:
        sample = max(arguments.tokens) * len(captured) * facts.hidden_size * 2
        ceilings.tell(folder, recipe.extract.writers, sample, terminal)
    if not arguments.skip_own:
        notes[_OWN] = _own_path(settings, folder, others, arguments.rounds, rates, terminal)
    if not arguments.skip_generator:
        generator = neighbours.Generator(settings, folder)
        _rounds({"generate() + torch.save": generator.save}, others, arguments.rounds, rates, terminal)
    return _print(rates, notes, arguments, f"{device}, {_host()}, states of {list(captured)}", terminal)


def _prompts(lengths: tuple[int, ...], count: int, vocab_size: int) -> list[list[int]]:
    chance = random.Random(1)  # noqa: S311 - prompts, no secrets
    return [
        [chance.randrange(vocab_size // 2) for _ in range(lengths[number % len(lengths)])] for number in range(count)
    ]


def _own_path(
    settings: Settings,
    folder: Path,
    prompts: Prompts,
    rounds: int,
    rates: dict[str, list[float]],
    terminal: Terminal,
) -> str:
    """Measure vLLM's own way, without the last state where it cannot give that one; what is to be said of it."""
    if (missing := neighbours.own_path_missing()) is not None:
        terminal.line(f"{_OWN}: {missing}")
        return missing
    ids = settings.captured()
    without_last = tuple(layer for layer in ids if layer < settings.facts.num_layers)
    said = []
    for captured in dict.fromkeys((ids, without_last)):
        found: dict[str, list[float]] = {}
        path = None
        try:
            path = neighbours.OwnPath(settings, captured, folder)
            _rounds({_OWN: path.save}, prompts, rounds, found, terminal)
        except Exception as failure:  # noqa: BLE001 - whatever that path dies of is what is told of it
            traceback.print_exc()
            said.append(f"states of {list(captured)}: {stagelog.cause_of(failure)}")
            terminal.line(f"{_OWN}: {said[-1]}")
        else:
            rates.update(found)
            return "; ".join([*said, f"states of {list(captured)}"])
        finally:
            if path is not None:
                path.shut_down()
    return "; ".join(said)


def _rounds(
    paths: dict[str, Callable[[Prompts], float]],
    prompts: Prompts,
    rounds: int,
    rates: dict[str, list[float]],
    terminal: Terminal,
) -> None:
    tokens = sum(map(len, prompts))
    rates.update({name: [] for name in paths})
    for number in range(rounds + 1):
        # By turns, so that a machine that gets busier or quieter favours none of them.
        for name, path in list(paths.items())[:: -1 if number % 2 else 1]:
            seconds = path(prompts)
            terminal.line(f"{name}: {tokens / seconds:.0f} tok/s{'' if number else ' (not counted)'}")
            if number:
                rates[name].append(tokens / seconds)


def _print(
    rates: dict[str, list[float]],
    notes: dict[str, str],
    arguments: argparse.Namespace,
    surroundings: str,
    terminal: Terminal,
) -> int:
    middle = {name: statistics.median(found) for name, found in rates.items()}
    plain, extract = middle[_PLAIN], middle[_EXTRACT]
    steps = f"steps of {arguments.token_budget} tokens, " if arguments.token_budget else ""
    lengths = "/".join(map(str, arguments.tokens))
    terminal.line(f"\n{arguments.samples} x {lengths} tokens, {steps}{arguments.rounds} rounds, {surroundings}")
    terminal.line("| path | tok/s, median | least … most | / plain prefill |\n| --- | --- | --- | --- |")
    for name, found in rates.items():
        case = name.partition(", ")[2]
        ratio = f"{middle[name] / (middle[f'{_PLAIN}, {case}'] if case else plain):.3f}"
        terminal.line(f"| {name} | {middle[name]:.0f} | {min(found):.0f} … {max(found):.0f} | {ratio} |")
    for name, text in notes.items():
        terminal.line(f"{name}: {text}" if name in rates else f"| {name} | none | {text} | none |")
    if arguments.result is not None:
        arguments.result.write_text(json.dumps({"rates": rates, "notes": notes}, indent=2) + "\n", encoding="utf-8")
    for name in list(rates)[2:]:
        if name.partition(", ")[2]:
            continue
        terminal.line(f"extract / {name}: {extract / middle[name]:.2f}")
    terminal.line(f"extract / plain prefill ratio: {extract / plain:.3f}")
    return 0


def _host() -> str:
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.get_device_name()}, {os.cpu_count()} cores"
    return f"{len(os.sched_getaffinity(0))} CPU cores"
