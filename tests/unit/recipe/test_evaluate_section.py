"""The evaluate section: prompt sets, sampled measurements, and what of it is recorded."""

import pytest
from least_recipe import SYNTHETIC as GOOD

from draftkiln.errors import ProblemsError
from draftkiln.recipe.load import loads


def told(evaluate):
    with pytest.raises(ProblemsError) as caught:
        loads(GOOD + evaluate, "r.yaml")
    (problem,) = caught.value.problems
    return str(problem)


def test_sets_and_sampled_are_read_and_none_are_without_them():
    nothing = loads(GOOD, "r.yaml").evaluate
    assert (nothing.sets, nothing.sampled) == ((), ())
    text = (
        "evaluate:\n  sets: [{name: mt, path: q.jsonl, form: mt-bench, limit: 3}]\n"
        "  sampled: [{temperature: 0.8, seed: 5}]\n"
    )
    found = loads(GOOD + text, "r.yaml").evaluate
    assert (found.sets[0].form, found.sets[0].limit, found.sampled[0].top_p) == ("mt-bench", 3, 1.0)


@pytest.mark.parametrize(
    ("evaluate", "words"),
    [
        ("evaluate: {sets: [{name: a, path: x, form: mtbench}]}\n", 'evaluate.sets[0].form: "mtbench" is not accepted'),
        ("evaluate: {sets: [{name: a, pth: x, path: x, form: gsm8k}]}\n", "did you mean `path`?"),
        ("evaluate: {sets: [{name: held-out, path: x, form: gsm8k}]}\n", "two sets are named held-out"),
        ("evaluate: {sampled: [{temperature: 0}]}\n", "evaluate.sampled[0].temperature: 0 is not accepted"),
    ],
)
def test_what_is_wrong_is_told_with_its_key(evaluate, words):
    found = told(evaluate)
    assert words in found
    assert found.startswith("r.yaml:12: evaluate.")
