"""A draft measured from its folder to its result file, around a stand-in of the engine."""

import io
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from draftkiln.cli import main
from draftkiln.errors import EngineError, EvaluationError, ExitCode, ProblemsError
from draftkiln.evaluate import draft as drafts
from draftkiln.evaluate import results
from draftkiln.evaluate.evaluation import evaluate_draft, trained_on
from draftkiln.export import layout
from draftkiln.recipe.model import Recipe
from draftkiln.rundir import RunDirectory
from draftkiln.stage import Context
from draftkiln.stagelog import Terminal

pytestmark = pytest.mark.slow

FACTS = {
    "architecture": "KimiK25ForConditionalGeneration",
    "hidden_size": 64,
    "vocab_size": 100,
    "num_layers": 8,
    "max_positions": 64,
}


@pytest.fixture
def context(stub_vllm: Path, tmp_path: Path) -> Context:
    run = RunDirectory(tmp_path / "run")
    run.folder("prepare")
    (run.path / "prepare" / "held_out.jsonl").write_text('{"prompt_token_ids": [1]}\n{"prompt_token_ids": [5, 6]}\n')
    (tmp_path / "q.jsonl").write_text('{"prompt_token_ids": [30]}\n')
    content = {
        "schema_version": 1,
        "name": "small",
        "stacks": {"extract": "a", "train": "b", "evaluate": "b"},
        "target": {"source": {"path": str(stub_vllm)}},
        "layers": {"aux": [2, 4, 5]},
        "data": {"source": {"synthetic": 48}},
        "train": {"draft": {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512}},
        "evaluate": {
            "prompts": 2,
            "max_tokens": 6,
            "sets": [{"name": "a-own", "path": str(tmp_path / "q.jsonl"), "form": "messages"}],
            "sampled": [{"temperature": 0.7, "seed": 3}],
        },
    }
    facts: Any = SimpleNamespace(path=stub_vllm, **FACTS)
    return Context(Recipe.model_validate(content), run, stub_vllm, facts, "b", {"requirements": "r"}, "cuda")


@pytest.fixture
def draft(tmp_path: Path) -> Path:
    folder = tmp_path / "draft"
    folder.mkdir()
    write_weights(folder, layout.tensors(layout.Sizes.of(CONFIG)))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


LAYER = {
    "hidden_size": 64,
    "vocab_size": 100,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 32,
}
CONFIG = {
    "speculators_model_type": "eagle3",
    "target_hidden_size": 64,
    "draft_vocab_size": 50,
    "eagle_aux_hidden_state_layer_ids": [2, 4, 5],
    "transformer_layer_config": LAYER,
}
KINDS = {layout.D2T: ("I64", 8), layout.T2D: ("BOOL", 1)}


def write_weights(folder: Path, tensors: dict[str, tuple[int, ...]]) -> None:
    header, end = {}, 0
    for name, shape in tensors.items():
        kind, size = KINDS.get(name, ("BF16", 2))
        begin, end = end, end + size * math.prod(shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}
    raw = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(end))


def measured(context: Context, draft: Path, folder: Path, **more: Any) -> tuple[dict[str, Any], str]:
    stream = io.StringIO()
    found = evaluate_draft(context, Terminal(stream), draft, folder, **more)
    return found, stream.getvalue()


def test_a_result_file_holds_every_set_and_way_of_sampling_with_what_they_were_measured_on(context, draft, tmp_path):
    found, told = measured(context, draft, tmp_path / "out")
    report = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [(one["set"], one["sampling"]["temperature"]) for one in report["sets"]] == [
        ("held-out", 0.0), ("a-own", 0.0), ("held-out", 0.7), ("a-own", 0.7)
    ]  # fmt: skip
    assert [one["lossless"] for one in report["sets"]] == [True, True, None, None]
    assert (report["acceptance_length"], report["acceptance_per_position"]) == (2.5, [0.8, 0.5, 0.2])
    assert (report["prompts"], report["tokens"], report["drafts"]) == (2, 12, 20)
    assert report["tokens_per_second"] > 0
    assert report["tokens_per_second_alone"] > 0
    for key in ("draft_sha256", "draft_config_sha256", "prompts_sha256", "target_config_sha256"):
        assert len(report[key]) == 64
    assert {len(one["file_sha256"]) for one in report["sets"]} == {64}
    assert (report["stack"], report["requirements_sha256"], report["vllm"]) == ("b", "r", "stub")
    assert found["acceptance_length"] == 2.5
    assert "a-own (1 prompts, temperature 0.7): acceptance length 2.500 (0.80, 0.50, 0.20; 10 drafts" in told


def test_a_lossy_draft_is_refused_with_the_first_difference_and_the_result_is_kept(
    context, draft, tmp_path, monkeypatch
):
    monkeypatch.setenv("STUB", "lossy")
    monkeypatch.setattr("draftkiln.evaluate.evaluation._tokenizer", lambda _: SimpleNamespace(decode="<{0[0]}>".format))
    with pytest.raises(EvaluationError) as caught:
        measured(context, draft, tmp_path / "out")
    assert caught.value.what == "greedy answers to 1 of 3 prompts change when the draft is used"
    assert "prompt 1 of set held-out, after 2 equal tokens: alone token 7 '<7>', with the draft token 77" in str(
        caught.value
    )
    report = json.loads((tmp_path / "out" / "result.json").read_text())
    assert report["lossless"] is False
    assert report["divergences"] == [{"prompt": 1, "turn": 0, "position": 2, "alone": 7, "drafted": 77}]


def test_an_engine_that_dies_in_the_middle_leaves_no_result_also_none_of_an_earlier_measurement(
    context, draft, tmp_path, monkeypatch
):
    measured(context, draft, tmp_path / "out")
    monkeypatch.setenv("STUB", "dies")
    with pytest.raises(EngineError, match="the worker is gone"):
        measured(context, draft, tmp_path / "out")
    assert not (tmp_path / "out" / "result.json").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target_hidden_size": 128}, "hidden size 128, the target has 64"),
        (
            {"transformer_layer_config": LAYER | {"vocab_size": 70}},
            "vocabulary of 70 tokens is not the target's of 100",
        ),
        ({"draft_vocab_size": 500}, "drafts 500 tokens, the target has 100"),
        ({"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}, "fuses layers [2, 30, 58], the target has 8"),
        (
            {"speculators_config": {"verifier": {"architectures": ["Qwen3ForCausalLM"]}}},
            "trained for a Qwen3ForCausalLM, the target is a KimiK25ForConditionalGeneration",
        ),
    ],
)
def test_a_draft_of_another_target_is_refused_before_an_engine_starts(context, draft, tmp_path, change, words):
    (draft / "config.json").write_text(json.dumps(CONFIG | change))
    with pytest.raises(ProblemsError) as caught:
        measured(context, draft, tmp_path / "out")
    assert words in str(caught.value)
    assert caught.value.code is ExitCode.EVALUATION


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors: tensors.update({"fusion.weight": tensors.pop("fc.weight")}),
         ["tensor fc.weight is missing; its shape would be [64, 192]", "tensor fusion.weight is none that vLLM"]),
        (lambda tensors: tensors.update({"lm_head.weight": (49, 64)}),
         ["lm_head.weight has shape [49, 64], config.json makes it [50, 64] (a row for each draft token)"]),
    ],
)  # fmt: skip
def test_case_23_weights_that_do_not_load_are_told_before_an_engine_starts(context, draft, tmp_path, change, words):
    tensors = layout.tensors(layout.Sizes.of(CONFIG))
    change(tensors)
    write_weights(draft, tensors)
    with pytest.raises(ProblemsError) as caught:
        measured(context, draft, tmp_path / "out")
    assert [word in str(problem) for word, problem in zip(words, caught.value.problems, strict=True)] == [True] * len(
        words
    )


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("/elsewhere/target/", False),
        ("moonshotai/Kimi-K2.5", True),
        ("", False),
    ],
)
def test_a_draft_that_names_another_target_of_the_same_sizes_is_measured_and_told(context, draft, named, told):
    (draft / "config.json").write_text(
        json.dumps(CONFIG | {"speculators_config": {"verifier": {"name_or_path": named}}})
    )
    found = list(drafts.remarks(draft, context.facts, None))
    assert found == [f"it names {named} as its target, this one is {context.target}"] * told
    assert list(drafts.remarks(draft, context.facts, "moonshotai/Kimi-K2.5")) == []


def test_case_9_a_draft_that_names_no_layers_is_told_which_ones_vllm_takes(context, draft, tmp_path):
    (draft / "config.json").write_text(json.dumps({key: CONFIG[key] for key in CONFIG if key != IDS}))
    _, told = measured(context, draft, tmp_path / "out")
    assert "it names no layers: vLLM takes those that it holds for usual, [2, 4, 5] in most targets of 8 layers" in told


def test_a_name_that_nothing_has_is_told_as_such(context, tmp_path):
    with pytest.raises(EvaluationError) as caught:
        drafts.check(tmp_path / "nowhere", context.facts)
    assert caught.value.why == "nothing has that name"


def test_a_run_directory_named_as_a_draft_is_told_with_its_draft(context, tmp_path):
    (tmp_path / "other" / "export" / "vllm").mkdir(parents=True)
    with pytest.raises(EvaluationError, match=r"other is no draft") as caught:
        drafts.check(tmp_path / "other", context.facts)
    assert "other/export/vllm, the draft of this run" in str(caught.value)


IDS = "eagle_aux_hidden_state_layer_ids"


def in_sglangs_layout(draft: Path, ids: list[int], *, nested: bool = True) -> None:
    names = layout.tensors(layout.Sizes.of(CONFIG))
    write_weights(draft, {layout.sglang_name(name): shape for name, shape in names.items()})
    named = {"eagle_config": {IDS: ids, "use_aux_hidden_state": True}} if nested else {IDS: ids}
    (draft / "config.json").write_text(json.dumps({**LAYER, "draft_vocab_size": 50, **named}))


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize(
    ("architecture", "ids"), [("KimiK25ForConditionalGeneration", [1, 3, 4]), ("GptOssForCausalLM", [2, 4, 5])]
)
def test_case_9_a_draft_in_the_layout_of_sglang_is_served_with_the_states_that_it_was_trained_on(
    draft, context, tmp_path, architecture, ids, nested
):
    context.facts.architecture = architecture
    in_sglangs_layout(draft, ids, nested=nested)
    before = (draft / "config.json").read_bytes()
    _, told = measured(context, draft, tmp_path / "out")
    job = json.loads((tmp_path / "out" / "drafted-job.json").read_text())
    serving = tmp_path / "out" / "draft"
    assert job["draft"] == str(serving)
    config = json.loads((serving / "config.json").read_text())
    assert config[IDS] == [2, 4, 5]
    assert config.get("eagle_config", {IDS: [2, 4, 5]})[IDS] == [2, 4, 5]
    assert (serving / "model.safetensors").samefile(draft / "model.safetensors")
    assert (draft / "config.json").read_bytes() == before
    assert f"{draft} is in SGLang's layout; its layers, [2, 4, 5] as vLLM counts" in told
    assert json.loads((tmp_path / "out" / "result.json").read_text())["draft_layer_ids"] == [2, 4, 5]


def test_a_draft_in_speculators_layout_is_served_as_it_lies_also_after_another_one(draft, context, tmp_path):
    (tmp_path / "out" / "draft").mkdir(parents=True)
    measured(context, draft, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "drafted-job.json").read_text())["draft"] == str(draft)
    assert not (tmp_path / "out" / "draft").exists()


def test_layers_that_sglang_counts_beyond_the_target_are_told_in_both_ways(draft, context):
    in_sglangs_layout(draft, [1, 3, 7])
    with pytest.raises(ProblemsError, match=r"layers \[2, 4, 8\] \(written \[1, 3, 7\], as SGLang counts\)"):
        drafts.check(draft, context.facts)


def test_a_prompt_too_long_for_the_target_is_refused_before_an_engine_starts(context, draft, tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps({"prompt_token_ids": [1] * 60}) + "\n")
    with pytest.raises(ProblemsError, match="set a-own, prompt 0: 60 tokens, at most 54 fit"):
        measured(context, draft, tmp_path / "out")


def test_case_75_a_draft_of_few_samples_is_told_to_show_the_steps_only(context, draft, tmp_path):
    assert trained_on(context) is None  # nothing is known of a run that extracted nothing
    context.run.finish("extract", {}, {"samples": 16, "tokens": 3584})
    known = trained_on(context)
    assert known == {"samples": 16, "tokens": 3584, "answers": "of random words", "on_policy": False}
    _, told = measured(context, draft, tmp_path / "out", trained_on=known)
    assert "trained on 16 samples, 3584 tokens, answers of random words: this shows that the steps work" in told
    assert json.loads((tmp_path / "out" / "result.json").read_text())["trained_on"] == known
    many = {"samples": 500_000, "tokens": 10**8, "answers": "by the target itself", "on_policy": True}
    assert "this shows" not in results.expectation(many)
    assert "this shows" in results.expectation(many | {"on_policy": False})


def test_fail_under_names_every_set_that_is_below():
    reports = [{"set": "a", "acceptance_length": 2.49}, {"set": "b", "acceptance_length": 2.5}]
    reports.append({"set": "b", "acceptance_length": 1.9, "sampling": {"temperature": 0.8}})
    with pytest.raises(EvaluationError, match=r"under 2\.5: a 2\.490, b \(temperature 0\.8\) 1\.900") as caught:
        results.refuse_below(reports, 2.5)
    assert caught.value.code == 14
    assert "b 2.5" not in caught.value.what
    results.refuse_below(reports, 1.5)
    results.refuse_below(reports, None)


@pytest.mark.parametrize(
    "arguments", [["--fail-under", "0.5"], ["--timeout", "0"], ["--max-tokens", "-1"], ["--limit", "x"]]
)
def test_numbers_that_mean_nothing_are_refused_by_the_command_line(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", *arguments])
    assert caught.value.code == ExitCode.USAGE
    assert arguments[0] in capsys.readouterr().err


def test_without_a_run_or_a_server_the_command_says_what_it_needs(capsys):
    assert main(["evaluate"]) == ExitCode.USAGE
    assert "needs --recipe and --run, or --url" in capsys.readouterr().err
