import hashlib
import importlib.metadata
import json
import os
import stat
import subprocess
import sys
import zipfile

import pytest
from fake_releases import GENERATOR, RELEASES, write_wheel
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from draftkiln.errors import DraftkilnError, ExitCode, NetworkError, PatchError
from draftkiln.patches import base, queue, record, wheel

EDIT = ("check(tokenizer)", "check(tokenizer, 1)")


@pytest.fixture
def series(project):
    project.patch("fix", EDIT)
    project.series("spec1.0-vllm0.16.0-cpu", "fix")
    return queue.load_series(project.queue, "spec1.0-vllm0.16.0-cpu")


def test_the_wheel_holds_the_patched_files_and_says_what_was_done(project, series, tmp_path):
    built = wheel.build(project.wheel("1.0"), series, tmp_path / "out")
    assert built.path.name == "speculators-1.0+spec1.0.vllm0.16.0.cpu-py3-none-any.whl"
    assert built.sha256 == hashlib.sha256(built.path.read_bytes()).hexdigest()
    name, version, _, _ = parse_wheel_filename(built.path.name)
    assert (name, version) == ("speculators", Version(built.version))
    with zipfile.ZipFile(built.path) as archive:
        archive.extractall(tmp_path / "site")
        # Installers write what the entries say: no entry may be unreadable for others, or executable.
        assert {stat.S_IMODE(member.external_attr >> 16) for member in archive.infolist()} == {0o644}
    assert "check(tokenizer, 1)" in (tmp_path / "site" / GENERATOR).read_text()
    found = next(iter(importlib.metadata.distributions(path=[str(tmp_path / "site")])))
    assert found.version == built.version
    told = json.loads(found.read_text(wheel.PATCHES_FILE))
    assert told["tree"] == built.tree
    assert told["base"]["sha256"] == built.base_sha256 == hashlib.sha256(project.wheel("1.0").read_bytes()).hexdigest()
    assert [patch["name"] for patch in told["patches"]] == ["fix"]
    assert "Version: of the text" in found.read_text("METADATA")


def test_record_is_true(project, series, tmp_path):
    built = wheel.build(project.wheel("1.0"), series, tmp_path)
    with zipfile.ZipFile(built.path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    own = next(name for name in files if name.endswith("/RECORD"))
    text = files.pop(own)
    assert text == record.written(files, own)
    assert list(files) == [line.split(",")[0] for line in text.decode().splitlines()[:-1]]


def test_two_builds_another_umask_and_another_folder_give_the_same_bytes(project, series, tmp_path):
    first = wheel.build(project.wheel("1.0"), series, tmp_path / "a")
    script = (
        "import os, sys; from pathlib import Path; os.umask(0o077); from draftkiln.patches import queue, wheel\n"
        "series = queue.load_series(Path(sys.argv[1]), 'spec1.0-vllm0.16.0-cpu')\n"
        "print(wheel.build(Path(sys.argv[2]), series, Path(sys.argv[3])).sha256)"
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, project.queue, project.wheel("1.0"), tmp_path / "b"],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == first.sha256
    assert (tmp_path / "b" / first.path.name).read_bytes() == first.path.read_bytes()


def test_rewording_a_patch_leaves_the_wheel_alone_and_changing_it_does_not(project, series, tmp_path):
    first = wheel.build(project.wheel("1.0"), series, tmp_path)
    project.patch("fix", EDIT, prose="Other words.", Bug="https://example.org/1")
    again = wheel.build(project.wheel("1.0"), queue.load_series(project.queue, series.name), tmp_path)
    assert again.sha256 == first.sha256
    project.patch("fix", ("check(tokenizer)", "check(tokenizer, 2)"))
    other = wheel.build(project.wheel("1.0"), queue.load_series(project.queue, series.name), tmp_path)
    assert other.sha256 != first.sha256
    assert other.tree != first.tree


def test_another_file_than_the_pristine_wheel_is_refused_and_nothing_written(project, series, tmp_path):
    with pytest.raises(PatchError, match="not the pristine wheel"):
        wheel.build(project.wheel("1.0"), series, tmp_path / "out", sha256="0" * 64)
    built = wheel.build(project.wheel("1.0"), series, tmp_path / "once")
    with pytest.raises(PatchError, match="not a released wheel"):
        wheel.build(built.path, series, tmp_path / "out")
    (tmp_path / "speculators-1.0-py3-none-any.whl").write_bytes(b"PK no")
    with pytest.raises(PatchError, match="cannot read"):
        wheel.build(tmp_path / "speculators-1.0-py3-none-any.whl", series, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "version"), [("spec0.3.0-vllm0.16.0-cpu", "spec0.3.0.vllm0.16.0.cpu"), ("A_b-007", "a.b.7"), ("x", "x")]
)
def test_local_versions_are_what_pep_440_makes_of_them(name, version):
    assert wheel.local_version(name) == version
    assert str(Version(f"1.0+{version}")) == f"1.0+{version}"


def test_a_cached_base_wheel_needs_no_network(project, monkeypatch):
    monkeypatch.setattr(base, "_download", lambda *_: pytest.fail("asked the index"))
    sha256 = hashlib.sha256(project.wheel("1.0").read_bytes()).hexdigest()
    found = base.base_wheel("speculators", "1.0", sha256, project.cache)
    assert found.read_bytes() == project.wheel("1.0").read_bytes()


def test_a_damaged_cached_wheel_is_fetched_again_and_a_wrong_one_refused(project, monkeypatch, tmp_path):
    sha256 = hashlib.sha256(project.wheel("1.0").read_bytes()).hexdigest()
    kept = project.cache / "wheels" / sha256 / "speculators-1.0-py3-none-any.whl"
    kept.write_bytes(b"damaged")
    monkeypatch.setattr(base, "_download", lambda *_: project.wheel("1.0"))
    assert base.base_wheel("speculators", "1.0", sha256, project.cache) == kept
    assert kept.read_bytes() == project.wheel("1.0").read_bytes()
    kept.unlink()
    other = write_wheel(tmp_path, "1.0", RELEASES["2.0"])
    monkeypatch.setattr(base, "_download", lambda *_: other)
    with pytest.raises(NetworkError, match="not the file that was asked for"):
        base.base_wheel("speculators", "1.0", sha256, project.cache)
    assert not kept.exists()


GONE = "ERROR: No matching distribution found for speculators==1.0"
SAID = {
    f"speculators==1.0 (from -r r.txt):\n    Expected sha256 {'a' * 64}\n         Got        {'b' * 64}": ExitCode.PIN,
    GONE: ExitCode.PIN,
    f"Temporary failure in name resolution\n{GONE}": ExitCode.NETWORK,
    "OSError: [Errno 28] No space left on device": ExitCode.STORAGE,
}


@pytest.mark.parametrize("said", SAID)
def test_case_65_a_base_wheel_with_other_bytes_is_not_taken_for_a_missing_network(tmp_path, monkeypatch, said):
    program = [sys.executable, "-c", f"import sys; sys.stderr.write({said!r}); sys.exit(1)"]
    monkeypatch.setattr(base, "pip", lambda: program)
    with pytest.raises(DraftkilnError) as caught:
        base.base_wheel("speculators", "1.0", "a" * 64, tmp_path)
    assert caught.value.code is SAID[said]
