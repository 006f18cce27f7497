import io
import json
import tarfile
from types import SimpleNamespace

import pytest

from draftkiln import cli, durable
from draftkiln.containers import base
from draftkiln.errors import (
    ContainerError,
    ExitCode,
    NetworkError,
    PinError,
    StackError,
    StorageError,
    SystemMissingError,
)


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))
    record = base._record("cpu")
    record.parent.mkdir(parents=True)
    tar = record.with_name("base.tar")
    tar.write_bytes(b"root file system")
    values = {"sha256": durable.sha256_file(tar), "description": base.read("cpu").model_dump(), "packages": ["a 1 all"]}
    record.write_text(json.dumps(values))
    return tar


def test_a_made_base_is_kept(made):
    found = base.kept("cpu")
    assert found.tar == made
    assert found.packages == ("a 1 all",)


def test_a_base_tar_with_the_wrong_hash_is_refused(made):
    made.write_bytes(b"other")
    with pytest.raises(PinError, match="wrong hash") as caught:
        base.kept("cpu")
    assert caught.value.code is ExitCode.PIN
    assert "its record" in caught.value.why


@pytest.mark.usefixtures("made")
def test_a_base_tar_that_is_not_the_pinned_one_is_refused():
    with pytest.raises(PinError, match="wrong hash") as caught:
        base.kept("cpu", "f" * 64)
    assert "the pinned one" in caught.value.why
    assert "f" * 64 in caught.value.why


STATUS = """\
Package: python3
Status: install ok installed
Architecture: amd64
Version: 3.11.2-1+b1
Description: interpreter
 Version: not this one

Package: gone
Status: deinstall ok config-files
Architecture: all
Version: 1

Package: adduser
Status: install ok installed
Architecture: all
Version: 3.134
"""


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A base tar that another machine made."""
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "base.tar"
    with tarfile.open(file, "w") as archive:
        member = tarfile.TarInfo("./var/lib/dpkg/status")
        member.size = len(STATUS)
        archive.addfile(member, io.BytesIO(STATUS.encode()))
    return file


def test_a_base_made_elsewhere_is_taken_with_its_bytes_and_packages(elsewhere):
    taken = base.take("cpu", elsewhere)
    assert taken.sha256 == durable.sha256_file(elsewhere)
    assert taken.packages == ("adduser 3.134 all", "python3 3.11.2-1+b1 amd64")
    assert base.kept("cpu", taken.sha256) == taken
    with pytest.raises(PinError, match="wrong hash") as caught:
        base.kept("cpu", "f" * 64)
    assert "--from FILE" in caught.value.fix


@pytest.mark.parametrize("content", [None, b"", b"no archive", b"\0" * 10240])
def test_what_is_no_base_is_not_taken_and_the_one_there_stays(made, tmp_path, content):
    file = tmp_path / "other.tar"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ContainerError, match="no base tar"):
        base.take("cpu", file)
    assert base.kept("cpu").tar == made


def test_one_file_is_one_base(elsewhere, capsys):
    assert cli.main(["image", "base", "cpu", "cuda", "--from", str(elsewhere)]) == ExitCode.USAGE
    assert "name one of them" in capsys.readouterr().err


@pytest.mark.usefixtures("made")
def test_a_changed_description_makes_a_base_anew(monkeypatch):
    changed = base.read("cpu").model_copy(update={"packages": ["python3"]})
    monkeypatch.setattr(base, "read", lambda _name: changed)
    assert base.kept("cpu") is None


def test_an_unknown_base_names_the_known_ones():
    with pytest.raises(StackError, match="no base named 'tpu'") as caught:
        base.read("tpu")
    assert "cpu, cuda" in caught.value.why


def test_mmdebstrap_is_named_when_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemMissingError, match="mmdebstrap"):
        base.make("cpu")


def test_a_failed_base_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "mmdebstrap"
    program.write_text("#!/bin/sh\necho 'E: the mirror is away' >&2\nexit 25\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ContainerError, match="cannot be made") as caught:
        base.make("cpu")
    assert "mirror is away" in caught.value.why
    assert base.kept("cpu") is None
    assert list(base._record("cpu").parent.iterdir()) == []


def test_what_names_the_build_machine_or_its_mirror_is_removed(tmp_path):
    words = " ".join(base.command(base.read("cpu"), tmp_path / "b.tar"))
    for file in ("etc/hostname", "etc/resolv.conf", "etc/machine-id", "etc/apt/sources.list", "var/log/*"):
        assert file in words


def test_the_hosts_own_package_lists_are_never_touched(tmp_path):
    """mmdebstrap keeps settings of apt in the new /tmp: a hook that emptied it made apt clean the host instead."""
    words = base.command(base.read("cpu"), tmp_path / "b.tar")
    assert "--skip=cleanup/apt" in words
    removed = next(word for word in words if "rm -rf" in word and "var/lib/apt/lists/*" in word)
    assert " tmp" not in removed


def test_a_snapshot_pins_the_mirrors_state(tmp_path):
    pinned = base.read("cpu").model_copy(update={"snapshot": "https://archive.example/debian/20260405T000000Z/"})
    words = base.command(pinned, tmp_path / "b.tar")
    assert "/20260405T000000Z/ bookworm main" in words[-1]


def test_a_gpu_base_brings_what_triton_compiles_with():
    assert {"gcc", "libc6-dev", "libpython3.11-dev"} <= set(base.read("cuda").packages)


REFUSED = {
    "E: no entry in /etc/subuid for tester": (SystemMissingError, "usermod --add-subuids"),
    "E: cannot find newuidmap": (SystemMissingError, "uidmap"),
    "E: unshare syscall failed: Operation not permitted": (SystemMissingError, "--from FILE"),
    "tar: ./usr/lib/x: Cannot write: No space left on device": (StorageError, "TMPDIR"),
    "Err:1 http://deb.example bookworm InRelease\n  Temporary failure resolving 'deb.example'": (
        NetworkError,
        "--from",
    ),
    "E: cannot create /home/x/tmp/root: Permission denied": (SystemMissingError, "TMPDIR"),
    "E: something else": (ContainerError, "see the text above"),
}


@pytest.mark.parametrize("said", REFUSED)
def test_what_keeps_a_base_from_being_made_has_one_cause_and_one_step(tmp_path, monkeypatch, said):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    program = tmp_path / "mmdebstrap"
    program.write_text(f'#!/bin/sh\necho "{said}" >&2\nexit 25\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    kind, step = REFUSED[said]
    with pytest.raises(kind, match="cannot be made") as caught:
        base.make("cpu")
    assert step in caught.value.fix
    assert said.splitlines()[-1] in caught.value.why


@pytest.mark.parametrize(("uid", "wish", "place"), [(0, "/t", None), (1000, None, "/var/tmp"), (1000, "/t", "/t")])
def test_without_root_packages_are_unpacked_where_other_ids_may_go(tmp_path, monkeypatch, uid, wish, place):
    """A home of mode 700, where the cache lies, may not be entered by the ids of the user's range."""
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", "/t")
    if wish is None:
        monkeypatch.delenv("TMPDIR")
    monkeypatch.setattr(base.os, "geteuid", lambda: uid)
    monkeypatch.setattr(base.shutil, "which", lambda _name: "mmdebstrap")
    seen = {}

    def run(words, env, **_others):
        seen.update(env, mode=words[1], folder=str(tmp_path / "cache"))
        return SimpleNamespace(returncode=25, stderr="E: x")

    monkeypatch.setattr(base.signals, "run", run)
    with pytest.raises(ContainerError):
        base.make("cpu")
    assert seen["mode"] == ("--mode=root" if uid == 0 else "--mode=unshare")
    assert seen["TMPDIR"] == place if place else seen["TMPDIR"].startswith(seen["folder"])
