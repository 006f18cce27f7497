"""The seam check on the real sources: vLLM of the extraction stack, speculators as released and patched.

`$DRAFTKILN_ENGINE_PYTHON` names an interpreter that has the engine, `$DRAFTKILN_BASE_WHEEL` a pristine wheel; both are
found through the stack otherwise.
"""

import os
import time
from pathlib import Path

import pytest

from draftkiln import cache
from draftkiln.cli import main
from draftkiln.patches import base, queue, wheel
from draftkiln.seams.check import check
from draftkiln.seams.engines import download, open_engine
from draftkiln.seams.extract import extract
from draftkiln.seams.owners import owner_lookup, read_series
from draftkiln.seams.report import number_of
from draftkiln.seams.sources import open_sources
from draftkiln.stack import environment, model

pytestmark = pytest.mark.engine
ROOT = Path(__file__).parents[2]
POOL = ROOT / "patches" / "speculators"
DEFAULT = "spec0.3.0-vllm0.16.0-cpu"
STACK = os.environ.get("DRAFTKILN_ENGINE_STACK", DEFAULT)
RELEASE = model.read(STACK).file.speculators.version


class Overlay:
    """Sources with some files changed."""

    def __init__(self, under, **changes):
        self.under, self.changes, self.origin = under, changes, under.origin

    def distributions(self):
        return self.under.distributions()

    def has(self, name):
        return self.under.has(name)

    def read(self, name):
        text = self.under.read(name)
        before, after = self.changes.get(name, ("", ""))
        assert before in text
        return text.replace(before, after) if before else text


@pytest.fixture(scope="module")
def engine():
    python = os.environ.get("DRAFTKILN_ENGINE_PYTHON")
    return open_engine("installed", Path(python) if python else environment.python_of(STACK))


@pytest.fixture(scope="module")
def pristine():
    named = os.environ.get("DRAFTKILN_BASE_WHEEL")
    stack = model.read(STACK)
    sha256 = stack.locked().base_wheel_sha256
    return Path(named) if named else base.base_wheel("speculators", RELEASE, sha256, cache.root())


@pytest.fixture(scope="module")
def patched(pristine, tmp_path_factory):
    """Seams of the patched wheel."""
    series = queue.load_series(POOL, STACK)
    built = wheel.build(pristine, series, tmp_path_factory.mktemp("patched"))
    sources = open_sources(built.path, "speculators")
    return extract(sources, series=STACK, owner=owner_lookup(sources, read_series(POOL, STACK, RELEASE)))


def numbers(result):
    return {number_of(item) for item in result.breaks}


@pytest.mark.skipif(STACK != DEFAULT, reason="other engines break other things")
def test_the_released_0_3_0_shows_breaks_1_2_4_5_6_at_once(pristine, engine):
    result = check(extract(open_sources(pristine, "speculators"), series="pristine"), engine.sources)
    assert numbers(result) == {1, 2, 4, 5, 6}
    renamed = [item for item in result.breaks if number_of(item) == 6]
    assert all("embed_input_ids" in item.now for item in renamed)


def test_the_patched_tree_shows_nothing_and_is_checked_in_three_seconds(patched, engine):
    start = time.process_time()
    result = check(patched, engine.sources)
    assert time.process_time() - start < 3
    assert [item.what for item in result.breaks] == []
    assert len(result.undecided) < result.checked / 10


@pytest.mark.skipif(STACK != DEFAULT, reason="other engines break other things")
def test_the_released_0_4_0_1_holds_on_this_engine(engine):
    tree = open_sources(download("speculators", "0.4.0.1"), "speculators")
    assert check(extract(tree, series="pristine"), engine.sources).breaks == ()


@pytest.mark.parametrize(
    "stack", ["spec0.3.0-vllm0.16.0-cpu", "spec0.3.0-vllm0.16.0-cu128", "spec0.4.0.1-vllm0.16.0-cpu"]
)
def test_the_committed_list_is_what_the_stack_gives(tmp_path, stack):
    assert main(["seams", "extract", "--stack", stack, "--out", str(tmp_path / "seams.json")]) == 0
    assert (tmp_path / "seams.json").read_text() == (POOL / "seams" / f"{stack}.json").read_text()


def test_lines_of_patches_are_owned_by_them(patched):
    owners = {seam.owner for seam in patched.seams}
    assert {"scheduler-block-size", "find-decoder-in-wrapper", "sample-after-execute"} & owners
    assert owners - {None} <= {slug for slug, _ in read_series(POOL, STACK, RELEASE)}


SCHEDULER = "vllm/v1/core/sched/scheduler.py"
UTILITIES = "vllm/v1/core/kv_cache_utils.py"
MUTATIONS = {
    "parameter renamed": (SCHEDULER, "        kv_cache_config: KVCacheConfig,", "        kv_config: KVCacheConfig,"),
    "required parameter added": (
        UTILITIES,
        "    available_memory: int,\n) -> KVCacheConfig:",
        "    a: int,\n    available_memory: int,\n) -> KVCacheConfig:",
    ),
    "class deleted": ("vllm/v1/structured_output/__init__.py", "class StructuredOutputManager", "class Other"),
    "method renamed": (SCHEDULER, "def finish_requests", "def end_requests"),
    "field renamed": ("vllm/v1/core/sched/output.py", "    total_num_scheduled_tokens: int", "    total_tokens: int"),
    "field required": (
        "vllm/config/scheduler.py",
        "    runner_type: RunnerType =",
        "    needed: int\n    runner_type: RunnerType =",
    ),
    "enum member renamed": ("vllm/v1/request.py", "    FINISHED_ABORTED = ", "    FINISHED_STOPPED_BY_USER = "),
    "executor method renamed": ("vllm/v1/executor/abstract.py", "def determine_available_memory", "def free_memory"),
    "worker method renamed": ("vllm/v1/worker/gpu_worker.py", "def get_kv_cache_spec", "def kv_cache_spec"),
    "cache config field renamed": ("vllm/v1/kv_cache_interface.py", "    num_blocks: int", "    blocks: int"),
    "return changed": (SCHEDULER, "def schedule(self) -> SchedulerOutput:", "def schedule(self) -> None:"),
    "output field renamed": ("vllm/v1/outputs.py", "    req_ids: list[str]", "    request_ids: list[str]"),
    "private helper renamed": (UTILITIES, "def _get_kv_cache_groups_uniform_spec", "def _groups"),
    "decoder attribute renamed": (
        "vllm/model_executor/models/deepseek_v2.py",
        "self.start_layer, self.end_layer, self.layers = make_layers",
        "self.start_layer, self.end_layer, self.blocks = make_layers",
    ),
}


@pytest.mark.parametrize("kind", MUTATIONS)
def test_one_change_in_a_copy_of_the_real_sources_is_found(patched, engine, kind):
    name, before, after = MUTATIONS[kind]
    if not engine.sources.has(name) or before not in engine.sources.read(name):
        pytest.skip(f"{engine.name} words this otherwise")
    assert any(item.breaks for item in check(patched, Overlay(engine.sources, **{name: (before, after)})).breaks)
