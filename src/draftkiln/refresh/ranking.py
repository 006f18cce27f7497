"""Which series fits a build: the seams of every known one against the wheel's sources, which is never installed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.version import Version

from draftkiln.errors import PatchError
from draftkiln.patches import queue
from draftkiln.seams.check import check
from draftkiln.seams.engines import open_engine
from draftkiln.seams.model import from_json
from draftkiln.stack import model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from draftkiln.refresh.build import Build
    from draftkiln.seams.breaks import Break
    from draftkiln.seams.model import SeamList
    from draftkiln.stack.model import Stack

LAST_PATCHABLE = "0.4.0.1"


@dataclass(frozen=True)
class Fit:
    """How a stack's series stands to a build."""

    stack: Stack
    seams: SeamList
    breaks: tuple[Break, ...]
    undecided: int
    seconds: float
    missing: tuple[str, ...] = ()
    """Patches of other series that say of themselves (`Needs-Vllm:`) that this engine needs them: they are added."""

    @property
    def series(self) -> str:
        """Its series."""
        return self.seams.series

    @property
    def holds(self) -> bool:
        """Whether no seam breaks."""
        return not self.breaks


def known(speculators: str) -> list[Stack]:
    """CPU stacks that patch the generator of this release: those with a list of seams.

    Raises:
        PatchError: there is none; of a release that has no such files any more it says so.
    """
    stacks = [model.read(name) for name in model.names()]
    found = [
        stack
        for stack in stacks
        if stack.file.device == "cpu"
        and stack.file.speculators.version == speculators
        and (queue.queue_folder() / "seams" / f"{stack.name}.json").is_file()
    ]
    if found:
        return found
    if Version(speculators) > Version(LAST_PATCHABLE):
        raise PatchError(
            f"target removed upstream: speculators {speculators} has no generator to patch",
            why=f"{LAST_PATCHABLE} is the last release that has it; later ones use vLLM's own extraction",
            fix=f"refresh {LAST_PATCHABLE} or 0.3.0; a stack without patches needs no seams",
        )
    releases = sorted({stack.file.speculators.version for stack in stacks if stack.file.speculators.series})
    raise PatchError(
        f"no series for speculators {speculators}",
        why=f"stacks patch {', '.join(releases)}",
        fix=f"make one: draftkiln patches rebase --to speculators=={speculators}",
    )


def rank(build: Build, stacks: Sequence[Stack]) -> list[Fit]:
    """Every stack's series against the build, best first.

    Fewest breaks, then the nearest engine version. Patches that the engine is said to need are lent by other series.
    """
    engine = open_engine(str(build.wheel))
    slugs = {stack.name: needed(stack, build.version) for stack in stacks}
    every = set().union(*(wanted for _, wanted in slugs.values()))
    fits = []
    for stack in stacks:
        began = time.monotonic()
        seams = from_json(queue.queue_folder() / "seams" / f"{stack.name}.json")
        result = check(seams, engine.sources)
        broken = tuple(item for item in result.breaks if item.breaks)
        missing = tuple(sorted(every - slugs[stack.name][0]))
        fits.append(Fit(stack, seams, broken, len(result.undecided), time.monotonic() - began, missing))
    return sorted(
        fits,
        key=lambda fit: (len(fit.breaks), distance(build.version, fit.stack.file.engine.version)),
    )


def needed(stack: Stack, version: str) -> tuple[set[str], set[str]]:
    """All slugs of a stack's series, and those whose `Needs-Vllm:` takes in the engine `version`."""
    part = stack.file.speculators
    patches = queue.load_series(queue.queue_folder(), part.series or stack.name).patches(part.version)
    public = Version(version).base_version
    wanted = {
        patch.slug
        for patch in patches
        if patch.header.needs_vllm is not None and patch.header.needs_vllm.contains(public, prereleases=True)
    }
    return {patch.slug for patch in patches}, wanted


def distance(version: str, other: str) -> tuple[int, bool, int]:
    """How far two engine versions are apart: in minor releases, at a tie the newer one is nearer, then in patches.

    The newer one, as its patches ask what the engine has, while an older one may lack a patch.
    """
    one, two = ((*Version(text).release, 0, 0)[:3] for text in (version, other))
    minors = abs((one[0] - two[0]) * 1000 + one[1] - two[1])
    return minors, two < one, 0 if minors else abs(one[2] - two[2])
