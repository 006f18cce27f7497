import json

import numpy as np
import pytest
from stub_samples import LAYERS, TOKENS, honest, lay, write

from draftkiln.extract import samples
from draftkiln.validate import profile


def test_norms_and_cosines_are_those_of_the_rows(tmp_path):
    states = honest()
    states[:, 1] = 3 * states[:, 0]
    states[:, 2] = -states[:, 0]
    found = profile.measure([write(tmp_path, states)], LAYERS)
    wanted = np.linalg.norm(states, axis=2)
    assert (found.samples, found.rows, [one.layer for one in found.layers]) == (1, len(TOKENS), list(LAYERS))
    for slot, layer in enumerate(found.layers):
        assert layer.norm_min == pytest.approx(wanted[:, slot].min(), rel=0.01)
        assert layer.norm_median == pytest.approx(np.median(wanted[:, slot]), rel=0.01)
        assert layer.norm_max == pytest.approx(wanted[:, slot].max(), rel=0.01)
    assert found.cosines[0][1] == pytest.approx(1, abs=1e-3)
    assert found.cosines[0][2] == pytest.approx(-1, abs=1e-3)
    assert abs(found.cosines[0][3]) < 0.3
    assert [found.cosines[slot][slot] for slot in range(4)] == pytest.approx([1] * 4, abs=1e-5)


def test_several_samples_count_by_their_rows(tmp_path):
    paths = [
        write(tmp_path, honest(40, seed=1)),
        write(tmp_path, 9 * honest(8, seed=2), TOKENS[:8], 1),
    ]
    found = profile.measure(paths, LAYERS)
    assert (found.samples, found.rows) == (2, 48)
    assert found.layers[0].norm_max > 5 * found.layers[0].norm_median


def test_states_in_eight_bits_are_read_with_their_scales(tmp_path):
    codes = np.full((2, len(LAYERS), 4), 0x38, dtype=np.uint8)  # 1.0
    codes[1] = 0xB8  # -1.0
    scales = np.array([2.0, 5.0], dtype="<f4")
    ids = np.array([7, 8], dtype="<i8").tobytes()
    tensors = [
        ("token_ids", "I64", [2], ids),
        ("hidden_states", "F8_E4M3", [2, len(LAYERS), 4], codes.tobytes()),
        (samples.SCALES, "F32", [2, 1, 1], scales.tobytes()),
    ]
    header, data = {}, b""
    for name, kind, shape, content in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    found = profile.measure([lay(tmp_path, header, data)], LAYERS)
    assert [(one.norm_min, one.norm_max) for one in found.layers] == [(4.0, 10.0)] * 4


def test_the_table_of_eight_bits_has_its_known_values():
    table = profile._E4M3
    assert [float(table[code]) for code in (0, 1, 0x07, 0x08, 0x38, 0x40, 0x7E, 0xFE)] == [
        0, 2.0**-9, 7 * 2.0**-9, 2.0**-6, 1, 2, 448, -448,
    ]  # fmt: skip
    assert np.isnan(table[0x7F])
    assert np.isfinite(np.delete(table, [0x7F, 0xFF])).all()


def test_what_is_recorded_is_json(tmp_path):
    content = profile.measure([write(tmp_path, honest())], LAYERS).content()
    assert json.loads(json.dumps(content))["layers"][3]["layer"] == LAYERS[3]
