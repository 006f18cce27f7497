"""Trees of speculators with the series, with parts of it or with none, and programs that run on them in a stack."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from draftkiln.patches import wheel
    from draftkiln.patches.queue import Patch
    from draftkiln.patches.repository import Repository

PROGRAMS = Path(__file__).parent / "programs"
CONTROLS = Path(__file__).parent / "controls"
LOUD = (
    "state-decoder-only",
    "find-decoder-in-wrapper",
    "kv-memory-from-workers",
    "kv-cache-config-arguments",
    "scheduler-block-size",
    "capture-with-layer-hooks",
    "request-block-hasher",
    "reply-of-one-rank",
    "sample-after-execute",
)
"""What raises an error, mended; `request-block-hasher` is a control that mends break 7 and leaves caching on."""


BREAKS_SHOWN_ON = "spec0.3.0-vllm0.16.0-cpu"
"""The stack on which each patch is also left out; the others show that the whole series extracts the right states."""


@dataclass(frozen=True)
class Trees:
    """Makes unpacked wheels of speculators that hold some of the series' patches."""

    repository: Repository
    base: wheel.Wheel
    patches: Mapping[str, Patch]
    commits: Mapping[str, str]
    """Commit of each patch of the whole series, in order."""
    folder: Path
    stack: str

    @property
    def show_breaks(self) -> bool:
        """Whether patches are left out on this stack."""
        return self.stack == BREAKS_SHOWN_ON

    @property
    def starts_early(self) -> bool:
        """Whether the first patches alone let a generator start: later engines need those at the series' end."""
        return "-vllm0.16.0-" in self.stack

    def full(self) -> Path:
        """All of the series."""
        return self._write("full", next(reversed(self.commits.values())))

    def before(self, slug: str) -> Path:
        """The series up to a patch, without it."""
        return self._write(f"before-{slug}", f"{self.commits[slug]}~")

    def without(self, *slugs: str) -> Path:
        """The series without some patches, those that are written on their lines included."""
        self.repository.checkout(next(reversed(self.commits.values())))
        for slug in reversed([slug for slug in self.commits if slug in slugs]):
            self.repository.git("revert", "--no-edit", self.commits[slug])
        return self._write("without-" + "-and-".join(slugs), self.repository.head())

    def only(self, name: str, slugs: Sequence[str]) -> Path:
        """Some patches alone, in this order."""
        self.repository.checkout(self._base_commit())
        for slug in slugs:
            control = CONTROLS / f"{slug}.patch"
            data = control.read_bytes() if control.exists() else self.patches[slug].data
            answer = self.repository.am(data, three_way=True)
            assert answer.returncode == 0, answer
        return self._write(name, self.repository.head())

    def _base_commit(self) -> str:
        return f"{next(iter(self.commits.values()))}~"

    def _write(self, name: str, commit: str) -> Path:
        tree = self.folder / name
        if not tree.exists():
            changed = self.repository.changed(self._base_commit(), commit)
            info = {
                f"{self.base.name}-{self.base.version}.dist-info/{key}": data for key, data in self.base.info.items()
            }
            for path, data in {**self.base.package, **changed, **info}.items():
                if data is not None:
                    (tree / path).parent.mkdir(parents=True, exist_ok=True)
                    (tree / path).write_bytes(data)
        return tree


@dataclass(frozen=True)
class Engine:
    """Runs programs with the interpreter of the engine's stack."""

    python: Path
    variables: Mapping[str, str]

    def run(self, program: str, *arguments: object, tree: Path | None = None, timeout_s: float = 1500) -> str:
        """Run a program of `programs/` and return what it printed; `tree` is the speculators that it imports."""
        source = Path(__file__).parents[3] / "src"
        done = subprocess.run(
            [self.python, PROGRAMS / program, *map(str, arguments)],
            env={**self.variables, "PYTHONPATH": os.pathsep.join(str(part) for part in (tree, source) if part)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        return done.stdout


@dataclass(frozen=True)
class Run:
    """What the generator did with a job."""

    report: dict[str, Any]
    states: dict[str, np.ndarray]
