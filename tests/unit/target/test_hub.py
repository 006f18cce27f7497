import hashlib

import pytest

from draftkiln.cli import main
from draftkiln.errors import NetworkError, StorageError, UsageError
from draftkiln.target import hub
from draftkiln.target.hub import HubFile


def described(folder, name, data, *, lfs):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    return HubFile(name, len(data), hashlib.sha256(data).hexdigest() if lfs else None, blob)


@pytest.fixture
def files(tmp_path):
    shards = [described(tmp_path, f"model-{n}.safetensors", bytes([n]) * 5000, lfs=True) for n in (1, 2)]
    return [*shards, described(tmp_path, "config.json", b"{}", lfs=False)]


def test_whole_files_pass_and_give_their_sha256(tmp_path, files):
    digests = hub.verify(tmp_path, files)
    assert digests["model-1.safetensors"] == files[0].sha256
    assert digests["config.json"] == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize("name", ["model-2.safetensors", "config.json"])
def test_a_changed_file_is_removed_and_named_and_the_others_stay(tmp_path, files, name):
    memory = tmp_path / ".cache" / "huggingface" / "download" / f"{name}.metadata"
    memory.parent.mkdir(parents=True)
    memory.write_text("done")
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"!" + data[1:])
    with pytest.raises(NetworkError, match=rf"1 of 3 files are not what the Hub names: {name}"):
        hub.verify(tmp_path, files)
    assert not (tmp_path / name).exists()
    assert not memory.exists()
    assert (tmp_path / "model-1.safetensors").exists()


def test_a_missing_file_is_one_that_differs(tmp_path, files):
    (tmp_path / "model-1.safetensors").unlink()
    with pytest.raises(NetworkError, match=r"model-1.safetensors"):
        hub.verify(tmp_path, files)


def test_no_network_is_asked_where_none_is_allowed(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    where = str(tmp_path / "kimi")
    code = main(["fetch-target", "hub", "moonshotai/Kimi-K2.5", "--revision", "a" * 40, "--into", where])
    assert code == NetworkError.code == 16
    assert "HF_HUB_OFFLINE is set" in capsys.readouterr().err


@pytest.mark.parametrize("revision", ["main", "abc1234", "A" * 40, "g" * 40])
def test_a_revision_that_can_move_is_refused(revision):
    with pytest.raises(UsageError, match="not a commit of 40 hex digits"):
        hub.checked_revision(revision)


def test_files_that_do_not_fit_are_refused_before_the_download(tmp_path):
    with pytest.raises(StorageError, match=r"1000000000.0 GB more are needed"):
        hub._refuse_without_room(tmp_path / "new", [HubFile("model.safetensors", 10**18, None, None)])


def test_what_an_engine_loads_and_what_states_the_terms_is_fetched():
    names = ["model-1.safetensors", "config.json", "README.md", "LICENSE", "LICENSE.txt", "NOTICE", "sub/config.json",
             "pytorch_model.bin", "figures/logo.png", "docs/README.md", "paper.pdf", "README.md.bak"]  # fmt: skip
    assert [name for name in names if hub.wanted(name)] == names[:7]
