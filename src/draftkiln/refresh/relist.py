"""The list of seams of a candidate's patched wheel, checked against the build's sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from draftkiln import cache, durable
from draftkiln.patches import base
from draftkiln.seams.check import check, with_baseline
from draftkiln.seams.engines import open_engine
from draftkiln.seams.extract import extract
from draftkiln.seams.model import to_json
from draftkiln.seams.owners import owner_lookup, read_series
from draftkiln.seams.sources import open_sources
from draftkiln.stack import patched

if TYPE_CHECKING:
    from draftkiln.refresh.build import Build
    from draftkiln.refresh.home import Home
    from draftkiln.seams.breaks import Break
    from draftkiln.stack.model import Stack


def list_seams(home: Home, stack: Stack, build: Build) -> tuple[int, list[Break]]:
    """Write the candidate's list of seams, the build's signatures as its baseline; their number and all breaks."""
    part = stack.file.speculators
    pristine = base.base_wheel("speculators", part.version, stack.locked().base_wheel_sha256, cache.root())
    sources = open_sources(patched.build(pristine, home.stack).path, "speculators")
    patches = read_series(home.patches, home.stack, part.version)
    seams = extract(sources, series=home.stack, owner=owner_lookup(sources, patches))
    engine = open_engine(str(build.wheel))
    durable.write_text(home.seams, to_json(with_baseline(seams, engine.sources, engine.name)))
    result = check(seams, engine.sources)
    return len(seams.seams), [item for item in result.breaks if item.breaks]
