import pytest
from fake_engines import GENERATOR, NEW, OLD, WORKER

from draftkiln.errors import PatchError
from draftkiln.seams.check import check, with_baseline
from draftkiln.seams.extract import extract
from draftkiln.seams.model import from_json, to_json

LLAMA = ("LlamaForCausalLM",)


def found(seams, sources):
    return {(item.severity, item.what) for item in check(seams, sources, LLAMA).breaks}


def one_call(guarded, vllm, tree, speculators):
    seams = extract(speculators(generator=guarded, worker=""), series="x")
    return found(seams, tree({"vllm/__init__.py": "", **vllm}, "vllm-tree"))


def test_case_11_every_moved_symbol_is_reported_in_one_run(tree, speculators):
    seams = extract(speculators(), series="x")
    assert found(seams, tree(OLD, "old")) == set()
    assert found(seams, tree(NEW, "new")) == {
        ("new required parameter", "vllm.config.SchedulerConfig: new required parameter is_encoder_decoder"),
        ("unexpected keyword", "vllm.kv.kv_config: unexpected keyword specs"),
        ("new required parameter", "vllm.scheduler.Scheduler: new required parameter block_size"),
        ("new required parameter", "vllm.request.Request: new required parameter hasher"),
        ("gone", "None.states is gone"),
        ("return changed", "vllm.executor.Executor().collective_rpc() gives Output, not what `index` needs"),
        ("renamed", "LlamaModel.get_input_embeddings is gone"),
    }


def test_case_1_a_tree_without_the_generator_is_named_as_removed_upstream(tree):
    sources = tree({"speculators/__init__.py": "", "speculators-0.5.0.dist-info/METADATA": ""}, "later")
    with pytest.raises(PatchError, match=r"target removed upstream: speculators 0\.5\.0 .*custom_worker") as error:
        extract(sources, series="x")
    assert "0.4.0.1 is the last" in error.value.why


@pytest.mark.parametrize(
    ("name", "before", "after", "what"),
    [
        ("vllm/request.py", "class Request", "class Other", "vllm.request.Request is gone"),
        ("vllm/scheduler.py", "def schedule", "def plan", "Scheduler.schedule is gone"),
        ("vllm/output.py", "    total: int\n", "    tokens: int\n", "Scheduled.total is gone"),
        ("vllm/scheduler.py", "add_request(self, request)", "add_request(self)", "too many arguments"),
        ("vllm/v1/worker/gpu_worker.py", "self.model = ", "self.module = ", "Runner.model is gone"),
        ("vllm/model_executor/models/llama.py", "self.model = ", "self.body = ", "LlamaForCausalLM.model is gone"),
        (
            "vllm/model_executor/models/llama.py",
            "self.layers = make",
            "self.blocks = make",
            "LlamaModel.layers is gone",
        ),
        ("vllm/model_executor/models/llama.py", "self.norm", "self.end_norm", "LlamaModel.norm is gone"),
        ("vllm/model_executor/models/llama.py", "residual): ...", "residual, scale): ...", "required parameter scale"),
        (
            "vllm/model_executor/models/llama.py",
            "(nn.Module, SupportsEagle3)",
            "(nn.Module)",
            "supports_eagle3 is false",
        ),
    ],
)
def test_one_change_of_the_engine_is_one_kind_of_break(tree, speculators, name, before, after, what):
    assert before in OLD[name]
    seams = extract(speculators(), series="x")
    breaks = found(seams, tree(OLD | {name: OLD[name].replace(before, after)}, "changed"))
    assert any(what in text for _, text in breaks)
    assert len(breaks) <= 2


def test_a_worker_method_called_by_name_must_exist(tree, speculators):
    changed = OLD | {"vllm/v1/worker/gpu_worker.py": OLD["vllm/v1/worker/gpu_worker.py"].replace("_states", "_other")}
    assert found(extract(speculators(), series="x"), tree(changed, "changed")) == {("gone", "Worker._states is gone")}


ASKING = "def asks(c, n):\n    return n in inspect.signature(c).parameters\n"
FITTING = """
def fit(c, **k):
    p = inspect.signature(c).parameters
    return c(**{n: v for n, v in k.items() if n in p})
"""
VERSION = "import vllm\nfrom packaging.version import Version\n"
ASKS = "import inspect\nfrom vllm.a import f\ntakes = inspect.signature(f).parameters\n"


@pytest.mark.parametrize(
    "call",
    [
        "if 'x' in inspect.signature(f).parameters:\n    f(x=1)\nelse:\n    f()",
        "f(**({'x': 1} if 'x' in takes else {}))",
        "k = {'x': 1}\nf(**{n: v for n, v in k.items() if n in takes})",
        "k = {}\nif 'x' in takes:\n    k['x'] = 1\nf(**k)",
        ASKING + "if asks(f, 'x'):\n    f(x=1)\nelse:\n    f()",
        FITTING + "fit(f, x=1)",
        "try:\n    f(x=1)\nexcept TypeError:\n    f()",
    ],
)
@pytest.mark.parametrize("signature", ["()", "(x)"])
def test_calls_that_ask_the_signature_are_no_false_alarm(tree, speculators, call, signature):
    breaks = one_call(ASKS + call, {"vllm/a.py": f"def f{signature}: ...\n"}, tree, speculators)
    assert breaks == set() or (signature == "(x)" and "except TypeError" in call)


def test_the_branch_that_would_run_is_still_checked(tree, speculators):
    call = ASKS + "if 'x' in takes:\n    f(x=1)\nelse:\n    f(y=1)"
    assert one_call(call, {"vllm/a.py": "def f(): ...\n"}, tree, speculators) == {
        ("unexpected keyword", "vllm.a.f: unexpected keyword y")
    }
    assert one_call(call, {"vllm/a.py": "def f(x, z): ...\n"}, tree, speculators) == {
        ("new required parameter", "vllm.a.f: new required parameter z")
    }


@pytest.mark.parametrize(
    "code",
    [
        "import vllm.a\nif hasattr(vllm.a, 'g'):\n    vllm.a.g()",
        "import vllm.a\ng = getattr(vllm.a, 'g', None)\nif g is not None:\n    g(1, 2, 3)",
        "try:\n    from vllm.a import g\nexcept ImportError:\n    g = None",
        "try:\n    from vllm.b import g\nexcept ImportError:\n    from vllm.a import f as g\ng()",
        "import vllm.a\ndef do():\n    if not hasattr(vllm.a, 'g'):\n        return\n    vllm.a.g()",
        VERSION + "if Version(vllm.__version__) >= Version('9'):\n    from vllm.a import g",
        "import contextlib\nwith contextlib.suppress(ImportError):\n    from vllm.a import g",
    ],
)
def test_names_that_are_asked_for_first_are_no_false_alarm(tree, speculators, code):
    vllm = {"vllm/__init__.py": "__version__ = '1'\n", "vllm/a.py": "def f(): ...\n"}
    assert one_call(code, vllm, tree, speculators) == set()


@pytest.mark.parametrize(
    "code",
    [
        "try:\n    from vllm.a import g\nexcept ImportError as error:\n    raise RuntimeError from error",
        "try:\n    from vllm.b import g\nexcept ImportError:\n    from vllm.a import g",
        "import vllm.a\nif hasattr(vllm.a, 'f'):\n    vllm.a.g()",
        "from vllm.a import f\ntry:\n    f()\nexcept Exception:\n    raise\nfrom vllm.a import g",
    ],
)
def test_a_guard_that_does_not_help_tolerates_nothing(tree, speculators, code):
    assert one_call(code, {"vllm/a.py": "def f(): ...\n"}, tree, speculators) in (
        {("gone", "vllm.a.g is gone")},
        {("gone", "vllm.a.g is gone"), ("gone", "vllm.b.g is gone")},
    )


def test_a_changed_default_and_result_are_told_against_the_baseline(tree, speculators):
    old = tree({"vllm/__init__.py": "", "vllm/a.py": "def f(x, y=1) -> int: ...\n"}, "old")
    code = "from vllm.a import f\nf(x=1)"
    seams = with_baseline(extract(speculators(generator=code, worker=""), series="x"), old, "vllm 1")
    assert check(seams, old).breaks == ()
    later = tree({"vllm/__init__.py": "", "vllm/a.py": "def f(x, y=2, z=3) -> str: ...\n"}, "later")
    breaks = check(seams, later).breaks
    assert [(item.severity, item.before, item.now) for item in breaks] == [
        ("default changed", "y=1", "y=2"),
        ("result changed", "int", "str"),
    ]
    assert not any(item.breaks for item in breaks)


def test_a_list_survives_its_file_byte_for_byte(tmp_path, tree, speculators):
    seams = with_baseline(extract(speculators(), series="x"), tree(OLD, "old"), "vllm 1")
    file = tmp_path / "seams.json"
    file.write_text(to_json(seams))
    assert from_json(file) == seams
    assert to_json(from_json(file)) == to_json(seams)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 1}', '{"schema_version": 2, "series": "x"}'])
def test_a_broken_list_is_refused_by_name(tmp_path, text):
    (tmp_path / "seams.json").write_text(text)
    with pytest.raises(PatchError, match=r"seams\.json"):
        from_json(tmp_path / "seams.json")


def test_a_local_helper_is_followed_with_what_it_is_given(tree, speculators):
    helper = "def drive(scheduler):\n    scheduler.run(1)\n"
    code = "from vllm.a import S\nfrom .helper import drive\ndrive(S())"
    seams = extract(speculators(generator=code, worker="", helper=helper), series="x")
    vllm = tree({"vllm/__init__.py": "", "vllm/a.py": "class S:\n    def run(self): ...\n"}, "vllm-tree")
    breaks = check(seams, vllm).breaks
    assert [(item.severity, item.seam.file, item.seam.line) for item in breaks] == [
        ("too many arguments", "speculators/data_generation/helper.py", 2)
    ]


def test_the_worker_of_the_fixture_is_the_one_that_is_checked(speculators):
    seams = extract(speculators(GENERATOR, WORKER), series="x").seams
    assert {seam.paths[0] for seam in seams if seam.paths[0].startswith("@")} >= {
        "@decoder",
        "@decoder.get_input_embeddings",
        "@decoder.layers[]",
        "@worker.model_runner.model",
        "@worker._states",
    }
