"""How much of what is trained a draft vocabulary would cover, and what the counts are tied to."""

import json
from types import SimpleNamespace

import pytest

from draftkiln.errors import RecipeError, RunDirectoryError
from draftkiln.prepare import output, tokencount
from draftkiln.prepare.outcome import Outcome, Sample


def context(folder, size, target_size=10):
    (folder / "config.json").write_text(json.dumps({"text_config": {"eos_token_id": 8}}))
    draft = SimpleNamespace(vocab_size=size)
    recipe = SimpleNamespace(train=SimpleNamespace(draft=draft))
    facts, inputs = SimpleNamespace(vocab_size=target_size), {"dataset_sha256": "d" * 64}
    return SimpleNamespace(recipe=recipe, facts=facts, target=folder, inputs=inputs)


@pytest.fixture
def outcome():
    made = Outcome()
    made.add(Sample("d:1", [9, 7, 7, 7, 8, 9], [0, 1, 1, 1, 1, 0]))
    return made


# The end of a turn (8) is always inside, also where other tokens are trained more often.
@pytest.mark.parametrize(("size", "share"), [(1, 0.25), (2, 1.0), (5, 1.0), (10, 1.0)])
def test_case_31_coverage_is_the_share_of_trained_tokens_inside(tmp_path, outcome, size, share):
    facts = tokencount.facts(context(tmp_path, size), outcome)
    assert facts == {"distinct_trained_tokens": 2, "draft_vocabulary": {"size": size, "coverage": share}}
    report = output.report(outcome, 0, {"mask_proved_by": "x", **facts})
    assert f"{share:.2%} of trained tokens are inside a draft vocabulary of {size}" in output.table(report)


def test_without_a_draft_vocabulary_or_with_an_impossible_one_nothing_is_claimed(tmp_path, outcome):
    assert tokencount.facts(context(tmp_path, None), outcome) == {"distinct_trained_tokens": 2}
    facts = tokencount.facts(context(tmp_path, 11), outcome)
    assert facts["draft_vocabulary"]["coverage"] is None


def test_case_31_a_draft_vocabulary_is_exact_distinct_and_increasing_and_holds_all_ends(tmp_path):
    context(tmp_path, None)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [97, 98]}))
    counts = dict.fromkeys(range(50), 3)
    first, again = (tokencount.draft_vocabulary(tmp_path, counts, 64, 100) for _ in range(2))
    assert first == again
    assert len(first.d2t) == sum(first.t2d) == 64
    assert len(first.t2d) == 100
    assert list(first.targets) == sorted(set(first.targets))
    assert [draft + offset for draft, offset in enumerate(first.d2t)] == list(first.targets)
    assert {8, 97, 98, *counts} <= set(first.targets)
    assert tokencount.draft_vocabulary(tmp_path, counts, 100, 100) is None
    assert len(tokencount.draft_vocabulary(tmp_path, {5: 1}, 10, 100).targets) == 10
    with pytest.raises(RecipeError, match="101 tokens"):
        tokencount.draft_vocabulary(tmp_path, counts, 101, 100)


def test_case_68_counts_are_tied_to_dataset_tokenizer_and_the_padded_vocabulary(tmp_path, outcome):
    (tmp_path / "tokenizer.json").write_text("{}")
    written = []
    for content in ("{}", "{ }"):
        (tmp_path / "tokenizer.json").write_text(content)
        tokencount.write(tmp_path, outcome, "d" * 64, context(tmp_path, 2, target_size=16))
        written.append(json.loads((tmp_path / tokencount.NAME).read_text()))
    assert written[0]["counts"] == {"7": 3, "8": 1}
    assert (written[0]["dataset_sha256"], written[0]["target_vocab_size"]) == ("d" * 64, 16)
    assert written[0]["tokenizer_sha256"] != written[1]["tokenizer_sha256"]


def test_case_68_counts_of_another_tokenizer_vocabulary_or_dataset_are_refused_by_name(tmp_path, outcome):
    (tmp_path / "tokenizer.json").write_text("{}")
    same = context(tmp_path, 2, target_size=16)
    assert tokencount.read(tmp_path, same) is None
    tokencount.write(tmp_path, outcome, "d" * 64, same)
    assert tokencount.read(tmp_path, same) == outcome.trained
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    other = context(tmp_path, 2, target_size=17)
    other.inputs["dataset_sha256"] = "e" * 64
    with pytest.raises(RunDirectoryError) as caught:
        tokencount.read(tmp_path, other)
    for words in ("tokenizer_sha256", "target_vocab_size 16, now 17", f"dataset_sha256 {'d' * 64}, now {'e' * 64}"):
        assert words in str(caught.value)
