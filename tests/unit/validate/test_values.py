import tracemalloc

import numpy as np
import pytest
from stub_samples import LAYERS, TOKENS, bf16, honest, write

from draftkiln.extract import samples
from draftkiln.validate import values


def test_an_honest_sample_passes(tmp_path):
    assert values.problems(write(tmp_path, honest()), TOKENS, LAYERS) == []


def test_case_49_a_sample_of_one_token_and_one_of_repeated_tokens_pass(tmp_path):
    assert values.problems(write(tmp_path, honest(1), [7]), [7], LAYERS) == []
    same = np.repeat(honest(1), 40, axis=0)
    assert values.problems(write(tmp_path, same, [7] * 40), [7] * 40, LAYERS) == []


def test_the_largest_bfloat16_is_legal(tmp_path):
    states = honest()
    states[3, 1, 2] = 3.3895e38
    assert values.problems(write(tmp_path, states), TOKENS, LAYERS) == []


def broken(change):
    states = honest()
    change(states)
    return states


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.fill(0), "layer 2: all zero"),
        (lambda s: s[:, 2].fill(0), "layer 5: all zero"),
        (lambda s: s[20:].fill(0), "layer 2: 20 rows are zero, 20 of them in one run, the first is row 20"),
        (
            lambda s: s[:, 1].__setitem__(slice(None), s[:, 0]),
            "layers 2 and 4 are the same in 40 of 40 rows, the first is row 0",
        ),
        (lambda s: s.__setitem__(slice(None), s[:1]), "all 40 rows are equal"),
        (lambda s: s[:, 3].fill(1.5), "layer 8: 40 of 40 rows are one value all over, the first is row 0"),
        (lambda s: s[7, 2].__setitem__(3, np.nan), "layer 5: 1 values are not finite, in 1 rows, the first in row 7"),
        (lambda s: s[0, 0].__setitem__(0, np.inf), "layer 2: 1 values are not finite, in 1 rows, the first in row 0"),
        (lambda s: s[7:30, 2].__setitem__((slice(None), 3), np.nan), "layer 5: 23 values are not finite, in 23 rows"),
        (lambda s: s[20:, 1].__setitem__(slice(None), s[:20, 1]), "layer 4: 20 rows repeat a row of another token"),
        (lambda s: s[33, 0].__setitem__(slice(None), s[12, 0]), "the first is row 33, equal to row 12"),
        (lambda s: s[20:, 3].fill(2), "layer 8: 20 of 40 rows are one value all over, the first is row 20"),
        (lambda s: s[:, 3].__setitem__(slice(None), s[:, 0]), "layers 2 and 8 are the same"),
        (lambda s: s[30:, 2].__setitem__(slice(None), s[30:, 1]), "layers 4 and 5 are the same in 10 of 40 rows"),
    ],
)
def test_case_22_and_49_broken_states_are_named_with_layer_and_row(tmp_path, change, words):
    found = values.problems(write(tmp_path, broken(change)), TOKENS, LAYERS)
    assert any(words in text for text in found), found


def test_layers_and_rows_that_are_almost_the_same_pass(tmp_path):
    """Neighbouring layers of a deep model, rows of tokens that go to the same experts: near, never equal."""
    base = np.random.default_rng(1).normal(size=(1, 1, 256)) * 50
    states = base + np.random.default_rng(2).normal(size=(40, len(LAYERS), 256)) * 0.2
    left, right = states[0, 0], states[1, 1]
    assert left @ right / np.linalg.norm(left) / np.linalg.norm(right) > 0.9999
    assert values.problems(write(tmp_path, states), TOKENS, LAYERS) == []


def test_case_22_memory_stays_flat_on_a_file_of_200_megabytes(tmp_path):
    rows, hidden = 6500, 4096
    block = bf16(honest(500, hidden))
    path, ids = tmp_path / samples.name(0), np.arange(rows, dtype="<i8")
    head = samples.head_bytes(rows, len(LAYERS), hidden)
    with path.open("wb") as file:
        file.write(head + ids.tobytes())
        for part in range(rows // 500):
            file.write((block + np.uint16(part)).tobytes())
    assert path.stat().st_size > 200e6
    with path.open("r+b") as file:
        file.seek(len(head) + ids.nbytes + (6123 * len(LAYERS) + 2) * hidden * 2)
        file.write(b"\x80\x7f\x80\x7f")
    tracemalloc.start()
    found = values.problems(path, ids, LAYERS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == ["layer 5: 2 values are not finite, in 1 rows, the first in row 6123"]
    assert peak < 60e6


def fp8(folder, states, scales):
    """A sample in FP8 as `hs_connectors` lays it: bit patterns and one scale a token."""
    rows, slots, hidden = states.shape
    path = folder / samples.name(0)
    head = samples.head_bytes(rows, slots, hidden, samples.FP8)
    ids, codes = np.arange(1, rows + 1, dtype="<i8"), states.astype(np.uint8)
    path.write_bytes(head + ids.tobytes() + codes.tobytes() + np.asarray(scales, dtype="<f4").tobytes())
    return path


def test_states_in_fp8_are_judged_as_well(tmp_path):
    codes = np.random.default_rng(0).integers(0, 120, size=(40, len(LAYERS), 32))
    assert values.problems(fp8(tmp_path, codes, [0.5] * 40), TOKENS, LAYERS) == []
    bad = codes.copy()
    bad[4, 1, 2] = 0x7F
    scales = [0.5] * 38 + [0.0, np.inf]
    assert values.problems(fp8(tmp_path, bad, scales), TOKENS, LAYERS) == [
        "2 scales are not finite and above 0, the first is of row 38",
        "layer 4: 1 values are not finite, in 1 rows, the first in row 4",
    ]


def test_states_of_another_sample_are_found_by_the_token_echo(tmp_path):
    other = [*TOKENS[:10], 99, *TOKENS[11:]]
    found = values.problems(write(tmp_path, honest(), other), TOKENS, LAYERS)
    assert "from position 10 on" in found[0]
