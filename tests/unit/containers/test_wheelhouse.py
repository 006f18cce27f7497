import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftkiln import checkout, cli
from draftkiln.containers import inputs, wheelhouse
from draftkiln.containers.locked import Locked, Platform
from draftkiln.errors import ExitCode, NetworkError, PinError, ProblemsError, StorageError
from draftkiln.stack import fetching

X86 = Platform("3.11", "x86_64")


def refusal(said):
    return fetching.refusal(said, Path("/cache"))


MISMATCH = """\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, \
please update the hashes.
    torch==2.10.0 from https://index.example.org/torch-2.10.0-cp311.whl (from -r pins.txt (line 1)):
        Expected sha256 {a}
        Got        {b}
"""


@pytest.fixture
def cached(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_CACHE", str(tmp_path))

    def put(name, data, sha256=None):
        sha256 = sha256 or hashlib.sha256(data).hexdigest()
        path = tmp_path / "wheels" / sha256 / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        return path, sha256

    return put


def test_kept_wheels_need_no_index(cached, monkeypatch):
    path, sha256 = cached("x-1.0-py3-none-any.whl", b"wheel")
    monkeypatch.setattr(wheelhouse, "_download", lambda *_: pytest.fail("asked the index"))
    assert wheelhouse.fetch([Locked("x", "1.0", frozenset({sha256}))], X86) == [path]


def test_case_65_a_kept_wheel_whose_bytes_changed_is_refused_with_both_hashes(cached):
    path, sha256 = cached("x-1.0-py3-none-any.whl", b"wheel")
    path.write_bytes(b"other")
    with pytest.raises(PinError, match="bytes differ from the lock") as caught:
        wheelhouse.kept(Locked("x", "1.0", frozenset({sha256})), X86)
    assert sha256 in caught.value.why
    assert hashlib.sha256(b"other").hexdigest() in caught.value.why


def test_a_wheel_changed_after_it_was_checked_is_found(cached):
    path, sha256 = cached("x-1.0-py3-none-any.whl", b"wheel")
    package = Locked("x", "1.0", frozenset({sha256}))
    assert wheelhouse.kept(package, X86) == path
    path.write_bytes(b"longer than before")
    with pytest.raises(PinError):
        wheelhouse.kept(package, X86)


def test_case_65_changed_bytes_name_package_hashes_and_index_and_that_it_may_be_a_cut_download():
    error = refusal(MISMATCH.format(a="a" * 64, b="b" * 64))
    assert isinstance(error, ProblemsError)
    assert error.code is ExitCode.PIN
    text = str(error)
    assert "torch==2.10.0" in text
    assert "a" * 64 in text
    assert "b" * 64 in text
    assert "index.example.org" in text
    assert "cut" in text


def test_gone_and_no_network_are_told_apart():
    gone = refusal("ERROR: No matching distribution found for x==9")
    assert isinstance(gone, PinError)
    cut = refusal(
        "WARNING: Retrying … Temporary failure in name resolution\nERROR: No matching distribution found for x==9"
    )
    assert isinstance(cut, NetworkError)


def test_a_full_disk_is_told_as_one():
    error = refusal("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device")
    assert isinstance(error, StorageError)
    assert error.code is ExitCode.STORAGE


def test_case_65_nothing_in_the_project_leaves_hashes_out():
    root = checkout.root()
    files = [*root.glob("containers/steps/*.sh"), *root.glob("src/draftkiln/containers/*.py"), root / "noxfile.py"]
    for file in files:
        assert "no-verify" not in file.read_text(), file
    step = Path(root, "containers/steps/wheels.sh").read_text()
    assert "--require-hashes" in step
    assert "--no-deps" in step


def test_what_a_build_needs_is_fetched_alone(tmp_path, monkeypatch, capsys):
    wheel = tmp_path / "x-1.0-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    made = SimpleNamespace(tag="localhost/draftkiln/light", packages=("x",), platform=X86)
    monkeypatch.setattr(inputs, "collect", lambda _stack: made)
    monkeypatch.setattr(wheelhouse, "fetch", lambda *_: [wheel])
    assert cli.main(["image", "fetch", "--stack", "light"]) == ExitCode.OK
    assert "base and 1 wheels" in capsys.readouterr().out
