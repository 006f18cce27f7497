import pytest

from draftkiln.arithmetic import engine_dtype


@pytest.mark.parametrize(
    ("dtype", "device", "features", "wanted"),
    [
        ("bfloat16", "cuda", (), "bfloat16"),
        ("bfloat16", "cpu", ("avx2", "fma"), "float32"),
        ("bfloat16", "cpu", ("avx2", "avx512f"), "bfloat16"),
        ("bfloat16", "cpu", ("asimd", "bf16"), "bfloat16"),
        ("float16", "cpu", (), "float16"),
    ],
)
def test_a_cpu_without_bfloat16_units_computes_in_float32(dtype, device, features, wanted):
    assert engine_dtype(dtype, device, frozenset(features)) == wanted
