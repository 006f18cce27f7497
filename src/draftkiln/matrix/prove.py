"""Prove one pair: seams, probe, then the stages that extract from a target and compare with transformers."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from draftkiln import checkout, durable
from draftkiln.errors import DraftkilnError, EngineError, StackError
from draftkiln.matrix.record import Row
from draftkiln.recipe.load import load
from draftkiln.rundir import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from draftkiln.matrix.pairs import Pair
    from draftkiln.stack.environment import Environment

_STAGES = ("prepare", "extract", "validate")
_TAIL = 4
_CELL = 300
"""Characters of a failure that the table takes; all of it is in the pair's folder."""
_DEADLINE_S = 3600
_UNCOMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""Compiling the functions that vLLM marks takes a cold machine minutes; run as they are they compute the same."""


def recipe_of(stack: str, target: str) -> dict[str, Any]:
    """The tiny recipe with every stage on `stack` and the made target `target`."""
    recipe = load(checkout.root() / "recipes" / "tiny-cpu.yaml").model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    recipe["name"] = f"pair-{stack}"
    recipe["stacks"] = dict.fromkeys(("prepare", "extract", "validate", "train", "evaluate"), stack)
    recipe["target"]["source"]["make"] = target
    return recipe


def prove(pair: Pair, target: str, work: Path, tell: Callable[[str], None]) -> Row:
    """Prove `pair` and say what came out; a failure is a result too.

    Args:
        pair: what is proved.
        target: made target whose states are extracted.
        work: folder for recipe, run and logs; emptied first, removed when the pair holds.
        tell: takes a line a step.
    """
    shutil.rmtree(work, ignore_errors=True)
    began = time.monotonic()
    results: dict[str, Any] = {}
    try:
        failed = _steps(pair, target, work, results, tell)
    except DraftkilnError as error:
        failed = ": ".join(part for part in (error.what, error.why) if part)
    if not failed:
        shutil.rmtree(work, ignore_errors=True)
    row = Row(
        pair.stack,
        pair.speculators,
        pair.vllm,
        pair.patches,
        pair.identity,
        target,
        dt.datetime.now(dt.UTC).date().isoformat(),
        round(time.monotonic() - began, 1),
        failed=" ".join(failed.split()).replace("|", "/")[:_CELL],
    )
    return dataclasses.replace(row, **results)


def _steps(pair: Pair, target: str, work: Path, results: dict[str, Any], tell: Callable[[str], None]) -> str:
    """Fill `results` step by step and return what failed, empty where nothing did."""
    from draftkiln.preflight.engine_checks import check_seams
    from draftkiln.seams.probe_command import probe
    from draftkiln.stack.environment import ensure

    environment = ensure(pair.stack)
    _refuse_other_wheel(environment)
    seams = [item for item in check_seams(environment, None) if item.status == "fail"]
    results["seams"] = len(seams)
    tell(f"{pair.stack}: seams, {len(seams)} breaks")
    findings = probe(environment.python, environment.variables()).findings
    results["probe"] = len(findings)
    tell(f"{pair.stack}: probe, {len(findings)} findings")
    if seams or findings:
        durable.write_json(
            work / "findings.json", [*(item.as_json() for item in seams), *(item.as_json() for item in findings)]
        )
        return "; ".join([*(item.reason for item in seams), *(f"{item.what}: {item.seen}" for item in findings)])
    return numbers(pair.stack, target, environment, work, results, tell)


def numbers(
    stack: str, target: str, environment: Environment, work: Path, results: dict[str, Any], tell: Callable[[str], None]
) -> str:
    """Extract from the made target and compare with transformers, right layers and shifted ones.

    Fills `results` and returns what failed, empty where nothing did.

    Raises:
        EngineError: a stage failed; its log is in `work`.
    """
    file, run = work / "recipe.json", work / "run"
    content = recipe_of(stack, target)
    durable.write_json(file, content)
    for stage in _STAGES:
        command = [sys.executable, "-m", "draftkiln", stage, "--recipe", str(file), "--run", str(run)]
        run_logged(stage, command, work / f"{stage}.log", {**os.environ, **_UNCOMPILED})
        tell(f"{stack}: {stage} done")
    directory = RunDirectory.open(run, content["name"])
    made, checked = (directory.require(stage)["results"] for stage in ("extract", "validate"))
    results |= {"samples": made["samples"], "tokens": made["tokens"], "min_cosine": round(checked["min_cosine"], 6)}
    command = [str(environment.python), "-m", "draftkiln.matrix.shifted", str(file), str(run)]
    log = work / "shifted.log"
    run_logged("shifted ids", command, log, environment.variables())
    shifted = float(json.loads(log.read_text(encoding="utf-8").splitlines()[-1]))
    results["shifted_cosine"] = round(shifted, 6)
    tell(f"{stack}: least cosine {checked['min_cosine']:.5f}, with shifted ids {shifted:.3f}")
    least = content["validate"]["min_cosine"]
    return f"layer ids shifted by one agree as well: {shifted:.5f}" if shifted >= least else ""


def _refuse_other_wheel(environment: Environment) -> None:
    locked = str(environment.stack.locked().patched_wheel_sha256)
    if not locked.startswith(environment.overlay.name):
        raise StackError(
            "the patched wheel is not the locked one",
            why="a patch was changed after the lock was made",
            fix=f"nox -s lock -- {environment.stack.name}",
        )


def run_logged(what: str, command: list[str], log: Path, variables: Mapping[str, str] | None) -> None:
    """Run a program with its output in `log`.

    Raises:
        EngineError: it failed; the last lines of its log are the cause.
    """
    with log.open("w+", encoding="utf-8") as output:
        try:
            code = subprocess.run(
                command,
                env=None if variables is None else dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=_DEADLINE_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{what}: not done after {_DEADLINE_S} s", why=f"see {log}") from error
    if code:
        tail = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-_TAIL:]
        raise EngineError(f"{what}: exit code {code}: {' '.join(tail)}"[:400], why=f"see {log}")
