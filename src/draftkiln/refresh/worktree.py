"""The tree that a person goes on in where a build needs work: speculators as the candidate's series makes it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from draftkiln import cache
from draftkiln.patches import base, queue, start
from draftkiln.patches import wheel as wheels
from draftkiln.refresh import candidate
from draftkiln.refresh.attempt import series_lines

if TYPE_CHECKING:
    from pathlib import Path

    from draftkiln.refresh.build import Build
    from draftkiln.refresh.home import Home
    from draftkiln.refresh.ranking import Fit


def hand_out(home: Home, build: Build, fit: Fit) -> Path:
    """Write the patched files beside the candidate and return their folder; an edited one is left as it is.

    The candidate's stack and series are written where no attempt did, so that `patches new` finds them.
    """
    if not (home.stack_folder / "stack.yaml").exists():
        candidate.write(home, build, fit.stack, series_lines(fit, build.version))
    tree = home.folder.parent / "tree"
    mark = home.folder.parent / "tree.series"
    part, lock = fit.stack.file.speculators, fit.stack.locked()
    series = queue.load_series(home.patches, home.stack)
    patches = series.patches(part.version)
    names = "".join(f"{patch.name} {patch.diff_sha256}\n" for patch in patches)
    if tree.exists() and mark.exists() and mark.read_text(encoding="utf-8") == names:
        return tree
    shutil.rmtree(tree, ignore_errors=True)
    pristine = wheels.read(base.base_wheel("speculators", part.version, lock.base_wheel_sha256, cache.root()))
    start.hand_out(pristine, patches, tree)
    mark.write_text(names, encoding="utf-8")
    return tree
