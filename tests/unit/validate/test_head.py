"""lm_head(norm(last slot)) against the engine's own words, without torch and without a second model."""

import json
import types

import numpy as np
import pytest
from safetensors.numpy import save_file
from stub_samples import LAYERS, made

from draftkiln.errors import ProblemsError
from draftkiln.extract import manifest, samples, top_tokens
from draftkiln.validate import head, numerics

HIDDEN, VOCAB, ROWS = 32, 97, 40
EPSILON = 1e-5


@pytest.fixture
def target(tmp_path):
    """A target with a strongly uneven final norm; its config.json, norm and head are all that is looked at."""
    chance = np.random.default_rng(4)
    folder = tmp_path / "target"
    folder.mkdir()
    weights = {
        "model.norm.weight": chance.lognormal(sigma=1.5, size=HIDDEN).astype(np.float32),
        "lm_head.weight": chance.normal(size=(VOCAB, HIDDEN)).astype(np.float32),
        "model.embed_tokens.weight": chance.normal(size=(VOCAB, HIDDEN)).astype(np.float32),
    }
    save_file(weights, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "deepseek_v3", "rms_norm_eps": EPSILON}))
    return folder, weights


def states(seed=0):
    """States that bfloat16 holds exactly, so that storing them moves nothing."""
    drawn = np.random.default_rng(seed).normal(size=(ROWS, len(LAYERS), HIDDEN)).astype(np.float32)
    return (drawn.view(np.uint32) & 0xFFFF0000).view(np.float32)


def said(weights, last, *, normed=True):
    normal = last / np.sqrt((last**2).mean(axis=1, keepdims=True) + EPSILON) * weights["model.norm.weight"]
    return ((normal if normed else last) @ weights["lm_head.weight"].T).argmax(axis=1).tolist()


def compared(tmp_path, target, captured, words):
    folder = tmp_path / "extract" / samples.FOLDER
    folder.mkdir(parents=True)
    _, found = made(folder, captured)
    top_tokens.append(folder.parent / top_tokens.FILE, {0: words})
    answers, problems = numerics.against_engine(target, found, folder)
    return answers, [str(problem) for problem in problems]


def test_case_50_what_the_engine_said_follows_from_the_last_slot_and_its_norm(tmp_path, target, monkeypatch):
    monkeypatch.setattr(head, "_BLOCK_ROWS", 10)
    folder, weights = target
    captured = states()
    answers, problems = compared(tmp_path, folder, captured, said(weights, captured[:, -1]))
    assert answers == [head.Answer(0, ROWS, ROWS, -1)]
    assert problems == []


@pytest.mark.parametrize("fault", ["another layer", "another row", "another sample", "norm applied already"])
def test_case_8_and_50_a_last_slot_that_is_something_else_is_named(tmp_path, target, fault):
    folder, weights = target
    captured = states()
    words = said(weights, captured[:, -1])
    if fault == "another layer":
        captured[:, -1] = captured[:, -2]
    elif fault == "another row":
        captured = np.roll(captured, 1, axis=0)
    elif fault == "another sample":
        captured = states(9)
    else:
        last = captured[:, -1]
        captured[:, -1] = last / np.sqrt((last**2).mean(axis=1, keepdims=True)) * weights["model.norm.weight"]
    answers, problems = compared(tmp_path, folder, captured, words)
    assert answers[0].same < 0.8 * ROWS
    assert "hs_0.safetensors: lm_head(norm(last slot)) gives the engine's own next token for" in problems[0]
    assert f"of {ROWS} tokens" in problems[0]


@pytest.mark.parametrize(("less", "same"), [(0.004, ROWS), (0.02, 0)])
def test_a_word_whose_logit_bfloat16_cannot_tell_from_the_highest_is_as_good(tmp_path, target, less, same):
    folder, weights = target
    captured = np.abs(states())
    rows = weights["lm_head.weight"]
    rows[:] = -np.abs(rows)
    rows[7] = np.abs(rows[7])
    rows[8] = rows[7] * np.float32(1 - less)
    save_file(weights, folder / "model.safetensors")
    assert set(said(weights, captured[:, -1])) == {7}
    answers, problems = compared(tmp_path, folder, captured, [8] * ROWS)
    assert answers[0].same == same
    assert bool(problems) is (same == 0)


@pytest.mark.parametrize("count", [ROWS - 1, ROWS + 1])
def test_words_of_another_number_of_tokens_are_refused_and_not_compared_with_the_next_sample(tmp_path, target, count):
    folder, _ = target
    with pytest.raises(ProblemsError, match=f"sample 0 has {count} next tokens for {ROWS} tokens"):
        compared(tmp_path, folder, states(), [1] * count)


def test_a_head_tied_to_the_embeddings_is_found(tmp_path, target):
    folder, weights = target
    tied = {name: value for name, value in weights.items() if name != "lm_head.weight"}
    save_file(tied, folder / "model.safetensors")
    config = {"model_type": "llama", "rms_norm_eps": EPSILON, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))
    captured = states()
    words = said({**weights, "lm_head.weight": weights["model.embed_tokens.weight"]}, captured[:, -1])
    assert compared(tmp_path, folder, captured, words)[0][0].same == ROWS


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "gemma3_text", "rms_norm_eps": 1e-6}, "the final norm of gemma3_text is another one"),
        ({"model_type": "gpt2", "layer_norm_epsilon": 1e-5}, "no rms_norm_eps"),
        ({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", "rms_norm_eps": 1e-5}}, None),
    ],
)
def test_where_the_check_cannot_be_made_it_is_said_why(tmp_path, config, why):
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = head.why_not(tmp_path)
    assert why in found if why else found is None


def test_the_last_slot_is_read_in_float8_with_its_scales(tmp_path):
    rows, hidden = 3, 4
    codes = np.array([0x38, 0xB8, 0x40, 0x7E], dtype=np.uint8)  # 1, -1, 2, 448
    data = np.broadcast_to(codes, (rows, 2, hidden)).copy()
    data[:, 0] = 0x08
    path = tmp_path / samples.name(0)
    ids, scales = np.arange(rows, dtype="<i8"), np.array([1, 0.5, 2], dtype="<f4")
    path.write_bytes(
        samples.head_bytes(rows, 2, hidden, samples.FP8) + ids.tobytes() + data.tobytes() + scales.tobytes()
    )
    assert head.last_slot(path).tolist() == [[1, -1, 2, 448], [0.5, -0.5, 1, 224], [2, -2, 4, 896]]


def test_the_engines_words_are_the_most_likely_tokens_of_its_own_output():
    logprob = lambda value: types.SimpleNamespace(logprob=value, rank=1)  # noqa: E731 - a stand-in of one line
    prompt = [None, {5: logprob(-3.0), 7: logprob(-0.1)}, {9: logprob(-0.2)}]
    assert top_tokens.of_output(prompt, 11) == [7, 9, 11]


def test_samples_to_ask_about_are_few_short_and_spread_over_the_whole_run():
    lengths = [100 if index % 3 else 5000 for index in range(3000)]
    chosen = sorted(top_tokens.choose(lengths, range(3000)))
    assert 4 <= len(chosen) <= 8
    assert chosen[0] < 400
    assert chosen[-1] > 2000
    assert all(lengths[index] == 100 for index in chosen)
    assert top_tokens.choose([5000, 1], range(2)) == frozenset()
    assert top_tokens.choose([], range(0)) == frozenset()


def test_words_cut_short_by_a_kill_spoil_nothing(tmp_path):
    path = tmp_path / top_tokens.FILE
    top_tokens.append(path, {3: [1, 2], 4: [5]})
    path.write_text(path.read_text()[:-6])
    top_tokens.append(path, {5: [6]})
    assert top_tokens.read(path) == {3: [1, 2], 5: [6]}
    other = tmp_path / "other"
    top_tokens.append(other, {9: [9]})
    top_tokens.join([path, other, tmp_path / "none"], tmp_path / "all")
    assert top_tokens.read(tmp_path / "all") == {3: [1, 2], 5: [6], 9: [9]}


def agreement(**changes):
    values = {
        "index": 1, "layer": 4, "min_cosine": 0.99, "row": 3, "max_difference": 1.0, "median_cosine": 0.9999,
        "nearest": 0.95, "argmax": None, **changes,
    }  # fmt: skip
    return types.SimpleNamespace(**values)


FOUND = manifest.Manifest(manifest.Head(LAYERS, HIDDEN, "bfloat16", "float32", 4, "d", "s", "p"), {})


def test_a_row_off_its_reference_is_refused_by_layer_and_row_on_a_dense_target():
    problem = numerics.disagreement(agreement(), 0.9995, FOUND, flips=False)
    assert "hs_1.safetensors: layer 4, row 3: cosine 0.99000" in str(problem)


def test_where_tokens_are_routed_rows_may_be_off_as_long_as_they_are_nearest_to_their_own():
    assert numerics.disagreement(agreement(min_cosine=0.6), 0.9995, FOUND, flips=True) is None
    shifted = agreement(min_cosine=0.6, nearest=0.02)
    assert "2% of the rows are nearest to their own" in str(numerics.disagreement(shifted, 0.9995, FOUND, flips=True))


@pytest.mark.parametrize(
    ("config", "routes"),
    [
        ({"n_routed_experts": 384, "num_experts_per_tok": 8}, True),
        ({"text_config": {"n_routed_experts": 384, "num_experts_per_tok": 8}}, True),
        ({"num_local_experts": 4, "num_experts_per_tok": 4}, False),
        ({"num_hidden_layers": 2}, False),
    ],
)
def test_targets_that_route_are_told_by_their_config(tmp_path, config, routes):
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert numerics.routed(tmp_path) is routes


def test_compared_samples_are_spread_over_the_whole_run():
    assert numerics.spread(range(100), 4) == [0, 33, 66, 99]
    assert numerics.spread(range(3), 8) == [0, 1, 2]
    assert numerics.spread(range(1), 8) == [0]
