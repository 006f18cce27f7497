import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftkiln.errors import RunDirectoryError
from draftkiln.extract import manifest

HEAD = manifest.Head(
    layer_ids=(2, 4, 5, 8),
    hidden_size=64,
    dtype="bfloat16",
    computed_in="float32",
    samples=1000,
    dataset_sha256="d",
    stack="s",
    patched_wheel_sha256="p",
)
receipts = st.builds(
    manifest.Receipt,
    index=st.integers(0, 999),
    rows=st.integers(1, 4096),
    bytes=st.integers(1, 10**12),
    checksum=st.text("0123456789abcdef", min_size=32, max_size=32),
)


@given(st.lists(receipts, max_size=20))
def test_what_is_written_is_read(tmp_path_factory, written):
    path = tmp_path_factory.mktemp("m") / manifest.FILE
    manifest.create(path, HEAD)
    manifest.append(path, written)
    found = manifest.read(path)
    assert found.head == HEAD
    assert found.receipts == {receipt.index: receipt for receipt in written}


@given(st.lists(receipts, min_size=1, max_size=5, unique_by=lambda receipt: receipt.index), st.integers(1, 60))
def test_a_line_cut_by_a_crash_is_dropped_and_the_rest_kept(tmp_path_factory, written, cut):
    path = tmp_path_factory.mktemp("m") / manifest.FILE
    manifest.create(path, HEAD)
    manifest.append(path, written)
    path.write_bytes(path.read_bytes()[:-cut])
    assert manifest.read(path).receipts == {receipt.index: receipt for receipt in written[:-1]}
    manifest.append(path, written[-1:])
    assert len(manifest.read(path).receipts) == len(written)


@pytest.mark.parametrize(
    "line", ['{"index": 1}', "not json", '{"index": 1000, "rows": 1, "bytes": 1, "checksum": ""}', "[]"]
)
def test_a_wrong_line_in_the_middle_is_refused(tmp_path, line):
    path = tmp_path / manifest.FILE
    manifest.create(path, HEAD)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(RunDirectoryError, match="not a manifest"):
        manifest.read(path)


def test_another_schema_version_is_refused_by_name(tmp_path):
    path = tmp_path / manifest.FILE
    manifest.create(path, HEAD)
    values = json.loads(path.read_text()) | {"schema_version": 2}
    path.write_text(json.dumps(values) + "\n")
    with pytest.raises(RunDirectoryError) as caught:
        manifest.read(path)
    assert "schema_version 2" in caught.value.why
