import errno
import os

import pytest

from draftkiln import durable
from draftkiln.errors import StorageError


def test_write_replaces_whole_files_and_leaves_no_temporary(tmp_path):
    path = tmp_path / "deep" / "file.json"
    durable.write_json(path, {"a": 1})
    durable.write_json(path, {"a": 2})
    assert durable.json.loads(path.read_text()) == {"a": 2}
    assert [file.name for file in path.parent.iterdir()] == ["file.json"]


def test_a_crash_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    durable.write_text(path, "old")

    def crash(_descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(durable.os, "fsync", crash)
    with pytest.raises(KeyboardInterrupt):
        durable.write_text(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_case_29_a_full_disk_is_named_with_the_path(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(durable.os, "fsync", full)
    with pytest.raises(StorageError, match=r"file") as caught:
        durable.write_text(tmp_path / "file", "x")
    assert "No space left" in caught.value.why


def test_json_hash_does_not_depend_on_key_order():
    assert durable.sha256_json({"a": 1, "b": [2]}) == durable.sha256_json({"b": [2], "a": 1})
    assert durable.sha256_json({"a": 1}) != durable.sha256_json({"a": 2})
