"""What the engine takes at a time, and what may go between its processes."""

import ast
import subprocess
import types
from pathlib import Path

import pytest

from draftkiln.errors import EngineError
from draftkiln.extract import engine
from draftkiln.recipe.load import load

SOURCES = Path(engine.__file__).parents[1]
RECIPE = Path(__file__).parents[3] / "recipes" / "tiny-cpu.yaml"
PLAIN = {"None", "int", "str", "str | None", "bool", "list[int]", "Sequence[int]", "dict[str, Any]"}
PLAIN |= {"dict[str, Any] | None"}


def made(cache_tokens, longest, budget=2048):
    """An engine that was started, as far as its limits look at it."""
    found = engine.VllmEngine.__new__(engine.VllmEngine)
    extract = types.SimpleNamespace(token_budget=budget, max_num_seqs=32)
    found._settings = types.SimpleNamespace(longest=longest, recipe=types.SimpleNamespace(extract=extract))
    found._cache_tokens, found._block = cache_tokens, 16
    return found


def test_case_59_a_sample_that_never_fits_the_cache_is_refused_at_the_start_with_both_numbers():
    with pytest.raises(EngineError) as caught:
        made(cache_tokens=63 * 16, longest=1500).limits()
    assert "holds 1008 tokens, the longest sample has 1500" in caught.value.what
    assert made(cache_tokens=1504, longest=1500).limits().tokens == 1504
    with pytest.raises(EngineError):
        made(cache_tokens=1504, longest=1504).limits()  # the token that ends its prefill takes one more block


def test_a_small_cache_is_never_overbooked_and_a_large_one_keeps_many_steps_waiting():
    assert made(cache_tokens=4096, longest=512).limits().tokens == 4096
    assert made(cache_tokens=10**6, longest=512).limits().tokens == 32 * 2048


def calls(driver, worker):
    """Methods of the worker that the engine's own process calls by name, and their declared types."""
    called = {
        node.args[0].value
        for node in ast.walk(ast.parse((SOURCES / driver).read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", "") in {"_call", "_report", "collective_rpc"}
        and isinstance(node.args[0], ast.Constant)
    }
    tree = ast.parse((SOURCES / worker).read_text())
    return {
        node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in called
    }, called


@pytest.mark.parametrize(
    ("driver", "worker", "least"),
    [
        (
            "extract/engine.py",
            "extract/worker.py",
            {"_sink_open", "_sink_report", "_sink_close", "_sink_rows", "_sink_leave"},
        ),
        (
            "validate/vllm_reference.py",
            "validate/vllm_worker.py",
            {"_reference_open", "_reference_begin", "_reference_save"},
        ),
    ],
)
def test_case_73_calls_between_processes_carry_plain_values_only(driver, worker, least):
    methods, called = calls(driver, worker)
    assert called == set(methods) >= least
    for name, method in methods.items():
        types_ = [ast.unparse(argument.annotation) for argument in method.args.args if argument.annotation]
        for found in [*types_, ast.unparse(method.returns)]:
            assert found in PLAIN, f"{name}: {found}"


def test_case_73_the_insecure_switch_is_set_nowhere():
    root = SOURCES.parents[1]
    name = "VLLM_ALLOW_INSECURE_" + "SERIALIZATION"
    done = subprocess.run(
        ["grep", "-rlE", f"{name}['\":]*[ =:]+['\"]?1", "src", "containers", "recipes", "noxfile.py", ".github", ".ci"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == ""


def test_case_5_and_6_prefix_caching_is_off_and_a_prefill_may_be_chunked():
    settings = engine.Settings(Path("target"), None, load(RECIPE), longest=512, dtype="float32")
    found = settings.arguments()
    assert found["enable_prefix_caching"] is False
    assert found["enable_chunked_prefill"] is True
    assert found["max_model_len"] == 513
