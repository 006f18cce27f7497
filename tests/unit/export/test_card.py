import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from draftkiln import durable
from draftkiln.export import card, terms
from draftkiln.report.records import Records

HUB = {"hub": "moonshotai/Kimi-K2.5", "revision": "4" * 40}


@pytest.fixture
def target(tmp_path):
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def run(folder, source=None, name="tiny", result=None, sampled=()):
    asked = {
        "source": source or {"make": "kimi-tiny", "seed": 17},
        "trust_remote_code": True,
        "tensor_parallel_size": 8,
    }
    weights = {"vllm": "a" * 64, "sglang": "b" * 64}
    records = {
        "run.json": {"recipe": name, "schema_version": 1},
        "prepare/stage.json": {
            "inputs": {"recipe.data": {"source": {"path": name}}},
            "results": {"dataset_sha256": "d" * 64},
        },
        "extract/stage.json": {
            "inputs": {"recipe.target": asked, "target_config": "c" * 64, "stack": "s1"},
            "results": {},
        },
        "train/stage.json": {
            "inputs": {"stack": "s2"},
            "results": {
                "steps": 56,
                "tokens": 7168,
                "loss_first": 20.359376907348633,
                "loss_last": 3.173149013519287,
                "validation_loss": 3.6356701850891113,
                "validation_accuracy": [0.9633, 0.3303],
                "checkpoint_sha256": "e" * 64,
            },
        },
        "export/stage.json": {
            "inputs": {},
            "results": {"weights_sha256": weights, "parameters": 5, "layer_ids": [2, 4, 5]},
        },
        "export/vllm/config.json": {"speculators_config": {"proposal_methods": [{"speculative_tokens": 3}]}},
        "export/sglang/config.json": {},
    }
    if result is not None:
        measured = {
            "draft_sha256": "a" * 64,
            "acceptance_length": 2.46,
            "num_draft_tokens": 3,
            "prompts": 16,
            "lossless": True,
            "acceptance_per_position": [0.8959, 0.3293],
            "vllm": "0.32.0",
            "dtype": "float32",
            "sampling": {},
        }
        records["evaluate/result.json"] = {**measured, "sets": [measured, *sampled], **result}
    for file, content in records.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(json.dumps(content))  # not synced: a property test writes hundreds
    return folder


def written(folder, target, layout="vllm"):
    card.write(folder, target)
    return (folder / "export" / layout / "README.md").read_text(encoding="utf-8")


def test_a_card_lies_beside_the_weights_of_both_layouts(tmp_path, target):
    folder = run(tmp_path / "run", HUB)
    text = written(folder, target)
    pinned = f"vllm serve moonshotai/Kimi-K2.5 --revision {'4' * 40} --tensor-parallel-size 8 --trust-remote-code"
    assert pinned in text
    assert '"method": "eagle3"' in text
    assert "a" * 64 in text
    plain = (folder / "export" / "sglang" / "README.md").read_text(encoding="utf-8")
    assert "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4" in plain
    assert "b" * 64 in plain
    assert "as SGLang counts" in plain


def test_training_numbers_and_provenance_are_those_of_the_records(tmp_path, target):
    text = written(run(tmp_path / "run"), target)
    assert "trained in `56` steps on `7168` tokens: loss `20.3594` at first, `3.17315` at last" in text
    assert "loss `3.63567`, first draft tokens right `[0.9633, 0.3303]`" in text
    for part in ("c" * 64, "d" * 64, "e" * 64, "`s1`", "`s2`"):
        assert part in text


def test_acceptance_is_not_claimed_before_it_is_measured(tmp_path, target):
    assert "acceptance: not measured yet" in written(run(tmp_path / "run"), target)


def test_acceptance_is_written_once_it_is_measured(tmp_path, target):
    folder = run(tmp_path / "run")
    written(folder, target)
    sampled = [{"set": "own", "prompts": 4, "sampling": {"temperature": 0.7}, "acceptance_length": 2.1}]
    text = written(run(tmp_path / "run", result={}, sampled=sampled), target)
    assert "acceptance length `2.46` at `3` draft tokens on `16` prompts" in text
    assert "on `4` prompts of `own` at temperature `0.7`: acceptance length `2.1`" in text
    assert "output with this draft: equal to the target alone" in text
    assert "not measured" not in text


def test_acceptance_of_other_weights_is_not_claimed(tmp_path, target):
    text = written(run(tmp_path / "run", result={"draft_sha256": "9" * 64}), target)
    assert "2.46" not in text
    assert "the run's result is that of other weights" in text


def test_a_lossy_draft_is_called_so(tmp_path, target):
    assert "DIFFERENT from the target alone" in written(run(tmp_path / "run", result={"lossless": False}), target)


def test_nothing_is_written_where_nothing_was_exported(tmp_path, target):
    durable.write_json(tmp_path / "run" / "run.json", {"recipe": "r"})
    card.write(tmp_path / "run", target)
    assert not (tmp_path / "run" / "export").exists()


def front(text):
    return yaml.safe_load(text.split("---\n")[1])


def test_hubs_read_the_base_model_and_no_licence_is_given_away(tmp_path, target):
    assert front(written(run(tmp_path / "run", HUB), target)) == {
        "base_model": "moonshotai/Kimi-K2.5",
        "tags": ["eagle3", "speculative-decoding", "speculators"],
    }
    assert "base_model" not in front(written(run(tmp_path / "other"), target))


@given(name=st.text(max_size=30))
def test_any_text_of_a_recipe_stays_inside_of_its_quotes(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("run")
    run(folder, {"hub": name, "revision": name}, name=name)
    text = card.text(Records.open(folder), "vllm", folder)
    assert front(text)["tags"] == ["eagle3", "speculative-decoding", "speculators"]
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if line.startswith(("# EAGLE-3", "## "))
    ]
    assert len([line for line in text.splitlines() if line.startswith("## ")]) == 4


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        (
            {"README.md": "---\nlicense: other\nlicense_name: modified-mit\nlicense_link: LICENSE\n---\n# K\n"},
            ("other", "modified-mit", "LICENSE", "the target's README.md"),
        ),
        ({"README.md": "---\r\nlicense: mit\r\n---\r\n"}, ("mit", None, None, "the target's README.md")),
        ({"config.json": '{"license": "apache-2.0"}'}, ("apache-2.0", None, None, "the target's config.json")),
        ({"README.md": "no front matter, license: mit"}, (None, None, None, None)),
        ({"README.md": "---\nlicense: [a, b]\n---\n"}, (None, None, None, None)),
        ({"README.md": "---\n{broken: yaml\n---\n"}, (None, None, None, None)),
        ({"config.json": "{"}, (None, None, None, None)),
    ],
)
def test_terms_are_what_lies_beside_the_weights(target, files, wanted):
    for name, content in files.items():
        (target / name).write_text(content, newline="")
    found = terms.of(target, HUB)
    assert (found.licence, found.name, found.link, found.stated_by) == wanted


def test_licence_files_are_named_by_their_first_line_and_hash(tmp_path, target):
    (target / "LICENSE").write_text("\n\n  Modified MIT License\n\nmore\n")
    text = written(run(tmp_path / "run", HUB), target)
    sha256 = durable.sha256_file(target / "LICENSE")
    assert f"`LICENSE` beside the target's weights begins `Modified MIT License` (sha256 `{sha256}`)" in text
    assert "the target's licence: unknown" in text


def test_terms_of_targets_without_files_are_known_or_said_to_be_unknown(tmp_path, target):
    assert terms.of(target, {"fetch": "smollm2"}).licence == "apache-2.0"
    assert "made this target up from a seed" in written(run(tmp_path / "a"), target)
    assert "the target's licence: unknown" in written(run(tmp_path / "b", {"path": "/x"}), target)
    assert terms.of(tmp_path / "gone", HUB) == terms.Terms(None)


def test_numbers_of_a_card_are_json_where_they_are_no_text():
    assert card._of({"a": None}) == '`{"a": null}`'
    assert json.loads(card._of([1.5]).strip("`")) == [1.5]
    assert card._code("a`b") == "`` a`b ``"
