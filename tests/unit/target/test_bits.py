import hashlib
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.target import bits


def as_float(patterns):
    return (np.asarray(patterns).astype("<u4") << 16).view("<f4").astype(float)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**100), max_value=2.0**100))
def test_rounding_gives_the_nearest_bfloat16_and_the_even_one_of_two(value):
    (pattern,) = (int(p) for p in bits.bfloat16(np.array([value])))
    (whole,) = struct.unpack("<I", struct.pack("<f", value))
    below, rest = whole >> 16, whole & 0xFFFF
    up = rest > 0x8000 or (rest == 0x8000 and below & 1)
    assert pattern == below + bool(up)


def test_a_uniform_tensor_has_the_asked_mean_and_deviation():
    values = as_float(bits.uniform("key", (512, 1024), 0.5, mean=0.25))
    assert values.mean() == pytest.approx(0.25, abs=0.003)
    assert values.std() == pytest.approx(0.5, rel=0.01)
    assert abs(values).max() <= 0.25 + 0.5 * 3**0.5 * 1.01


def test_the_bits_are_the_same_on_every_machine():
    made = bits.uniform("17/1/q_a", (1000,), 1.0)
    assert (
        hashlib.sha256(made.tobytes()).hexdigest() == "9d8d564b428e425126e150cc945edd8065fe04d15e7774caeb402999720350fd"
    )


def test_keys_name_streams_of_their_own():
    assert not np.array_equal(bits.uniform("a", (64,), 1.0), bits.uniform("b", (64,), 1.0))
    assert set(np.unique(bits.signs("a", (1000,)))) == {-1.0, 1.0}
