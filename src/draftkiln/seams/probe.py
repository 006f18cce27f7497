"""Drive the real scheduler, block pool, requests, executor and worker with a stub model. Runs inside a stack.

Every generator is built in a process forked from this one, which has imported vLLM and never touches a device: a
break that leaves the engine in a bad state, kills or hangs it costs a second, and the next process goes on behind it
with that break worked round. So one run shows every finding, not the first only.

`python -m draftkiln.seams.probe [--tree DIR]` prints one JSON object on standard output; logs go to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from draftkiln.seams.probe_findings import KNOWN, Finding, finding, recognised

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from types import ModuleType

ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    # A core by its number: 0.20.2 starts no worker without one.
    "VLLM_CPU_OMP_THREADS_BIND": str(min(os.sched_getaffinity(0))),
    "VLLM_MLA_DISABLE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}
GENERATOR = "speculators.data_generation.vllm_hidden_states_generator"
_PATIENCE = 60.0
_SIGNATURES = 0  # not a number of the table: calls are fitted to the installed signatures
_NUMBERS = {"is_encoder_decoder": 1, "kv_cache_specs": 4, "block_size": 5}


@dataclass
class State:
    """How far the probe is: the next scenario and the breaks that are worked round."""

    scenario: int = 0
    mended: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, found: Finding) -> None:
        """Keep a finding once."""
        if not any(
            (item.number, item.what) == (found.number, found.what) and found.number is not None
            for item in self.findings
        ):
            self.findings.append(found)


def main(argv: list[str] | None = None) -> int:
    """Probe the installed engine; 0 when nothing was found, 1 when something was."""
    parser = argparse.ArgumentParser(prog="draftkiln.seams.probe", description=__doc__)
    parser.add_argument("--tree", type=Path, help="speculators to probe instead of the installed one")
    arguments = parser.parse_args(argv)
    if arguments.tree is not None:
        sys.path.insert(0, str(arguments.tree.resolve()))
    output = os.dup(1)
    os.dup2(2, 1)  # vLLM and its workers write to standard output
    os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
    start = time.monotonic()
    generator, engine = _imports()
    imported = time.monotonic()
    findings = probe(generator)
    result = {
        "engine": engine,
        "tree": str(Path(str(generator.__file__)).parents[2]),
        "seconds": {"import": round(imported - start, 1), "probe": round(time.monotonic() - imported, 1)},
        "findings": [item.as_json() for item in findings],
    }
    with os.fdopen(output, "w") as stream:
        print(json.dumps(result), file=stream)
    return 1 if findings else 0


def _imports() -> tuple[ModuleType, str]:
    import torch
    import vllm

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    generator = importlib.import_module(GENERATOR)
    stub = importlib.import_module("draftkiln.seams.stub_target")
    importlib.import_module("vllm.v1.worker.cpu_worker" if _on_cpu() else "vllm.v1.worker.gpu_worker")
    stub.register()
    return generator, str(vllm.__version__)


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())


def probe(generator: ModuleType) -> list[Finding]:
    """All findings, by running scenario after scenario in forked processes."""
    from draftkiln.seams.probe_scenarios import SCENARIOS

    state = State()
    with tempfile.TemporaryDirectory(prefix="draftkiln-probe-") as folder:
        importlib.import_module("draftkiln.seams.stub_target").write(Path(folder))
        while state.scenario < len(SCENARIOS):
            before = (state.scenario, tuple(state.mended))
            state = _in_child(generator, Path(folder), state)
            if (state.scenario, tuple(state.mended)) == before:
                state.scenario += 1
    return state.findings


def _in_child(generator: ModuleType, folder: Path, state: State) -> State:
    from draftkiln.seams.probe_scenarios import SCENARIOS

    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(generator, folder, state, sender))
    child.start()
    sender.close()
    latest = state
    try:
        while receiver.poll(_PATIENCE):
            message = receiver.recv()
            if message is None:  # not the pipe's end: the worker, a grandchild, keeps it open a while
                return latest
            latest = message
        name = SCENARIOS[latest.scenario].name if latest.scenario < len(SCENARIOS) else "the end"
        latest.add(finding(None, name, f"no answer for {_PATIENCE:.0f} s"))
    except EOFError:
        pass
    finally:
        _end(child)
    return latest


def _end(child: BaseProcess) -> None:
    """Kill a child with the worker it forked: left alone, that one waits for ever and keeps our streams open."""
    with contextlib.suppress(ProcessLookupError):  # it has not come as far as its own group
        os.killpg(child.pid or 0, signal.SIGKILL)
    child.kill()
    child.join()


def _child(generator: ModuleType, folder: Path, state: State, sender: Connection) -> None:
    """Build one generator and run scenarios until the end or until it must be built anew."""
    os.setpgid(0, 0)
    try:
        Session(generator, folder, state, sender).run()
    except BaseException:  # noqa: BLE001 - whatever it is, the parent hears of it
        state.add(finding(None, "the probe itself", traceback.format_exc()[-2000:]))
        sender.send(state)
    finally:
        sender.send(None)
        signal.pause()  # the parent kills the group, the worker with it


class Session:
    """One generator in one process."""

    def __init__(self, generator: ModuleType, folder: Path, state: State, sender: Connection) -> None:
        self.generator, self.folder, self.state, self.sender = generator, folder, state, sender
        self.trusted: bool | None = None

    def run(self) -> None:
        """Run the scenarios that are left; stop where the generator must be built anew."""
        from draftkiln.seams.probe_scenarios import SCENARIOS

        self._prepare()
        first = SCENARIOS[self.state.scenario].name
        try:
            built = self._build()
        except Exception:  # noqa: BLE001 - every failure is a finding
            if not self._explain(first, traceback.format_exc(), building=True):
                self.state.scenario = len(SCENARIOS)  # nothing can be driven
                self.sender.send(self.state)
            return
        if self.trusted is False:
            self.state.add(
                finding(14, "building the generator", "AutoTokenizer.from_pretrained without trust_remote_code=True")
            )
        while self.state.scenario < len(SCENARIOS):
            if not self._scenario(built, SCENARIOS[self.state.scenario]):
                return
            self.state.scenario += 1
            self.sender.send(self.state)

    def _prepare(self) -> None:
        from vllm.v1.executor import multiproc_executor

        from draftkiln.seams import probe_shims

        multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")
        # Waiting seconds for a worker that is thrown away anyway is no part of a probe.
        self.generator.VllmHiddenStatesGenerator.__del__ = lambda _: None
        self._watch_tokenizer()
        for number in self.state.mended:
            if number == _SIGNATURES:
                probe_shims.forgive(self.generator, self._misfit)
            else:
                probe_shims.before(number, self.generator)

    def _watch_tokenizer(self) -> None:
        original = self.generator.AutoTokenizer
        session = self

        class Watched:
            """AutoTokenizer that notes whether remote code is allowed."""

            @staticmethod
            def from_pretrained(*positional: Any, **keywords: Any) -> Any:
                session.trusted = keywords.get("trust_remote_code") is True
                return original.from_pretrained(*positional, **keywords)

        self.generator.AutoTokenizer = Watched  # type: ignore[attr-defined]

    def _misfit(self, callee: str, problem: str, name: str) -> None:
        self.state.add(finding(_NUMBERS.get(name), "building the generator", f"{callee}: {problem} {name}"))

    def _build(self) -> Any:
        import inspect

        from draftkiln.seams import probe_shims
        from draftkiln.seams.probe_scenarios import LAYERS, MAX_MODEL_LEN

        generator = self.generator.VllmHiddenStatesGenerator
        optional = {"trust_remote_code": True} if "trust_remote_code" in inspect.signature(generator).parameters else {}
        built = generator(str(self.folder), layer_ids=list(LAYERS), max_model_len=MAX_MODEL_LEN, **optional)
        for number in self.state.mended:
            probe_shims.after(number, built.executor)
        return built

    def _scenario(self, built: Any, scenario: Any) -> bool:
        """Run one scenario; True when the next may run in this process."""
        from draftkiln.seams.probe_scenarios import judge

        for batch in scenario.batches():
            try:
                results = built.generate(batch)
            except Exception:  # noqa: BLE001 - every failure is a finding
                self._explain(scenario.name, traceback.format_exc(), building=False)
                return False
            wrong = judge(batch, results)
            if wrong is not None:
                kind, seen = wrong
                number = 12 if kind == "order" else 13 if kind == "tokens" else scenario.number
                self.state.add(finding(number, scenario.name, seen))
                if number is not None and KNOWN[number].mended and number not in self.state.mended:
                    self.state.mended.append(number)
                    self.sender.send(self.state)
                    return False
                return True
        return True

    def _explain(self, scenario: str, trace: str, *, building: bool) -> bool:
        """Turn a failure into a finding; True when it is worked round from now on."""
        print(trace, file=sys.stderr)
        number = recognised(trace)
        misfit = (
            building and _SIGNATURES not in self.state.mended and ("TypeError" in trace or "ValidationError" in trace)
        )
        if misfit:
            self.state.mended.append(_SIGNATURES)
        elif number is not None and KNOWN[number].mended and number not in self.state.mended:
            self.state.add(finding(number, scenario, _shown(trace)))
            self.state.mended.append(number)
        else:
            self.state.add(finding(number, scenario, _shown(trace)))
            self.state.scenario += 0 if building else 1
            if not building:
                self.sender.send(self.state)
            return False
        self.sender.send(self.state)
        return True


def _shown(trace: str) -> str:
    """The error and the line of speculators that it came through last."""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip(" ^~")]
    places = [place for place, line in enumerate(lines) if line.startswith("File ") and "/speculators/" in line]
    through = ""
    if places:
        match = re.search(r'/(speculators/[^"]+)", line (\d+)', lines[places[-1]])
        through = f" (at {match[1]}:{match[2]}: {lines[places[-1] + 1]})" if match else ""
    last = lines[-1]
    if re.fullmatch(r"\w*(Error|Exception)", last):  # an error without a text: the line that raised it says more
        last = f"{last}: {lines[-2]}"
    return f"{last[:300]}{through}"


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
