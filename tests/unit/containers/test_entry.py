import os
import pwd
import signal

import pytest

from draftkiln.containers import entry
from draftkiln.errors import ExitCode


@pytest.fixture
def nobody(monkeypatch):
    def unknown(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for key in ("USER", "LOGNAME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", "/proc/no-home")


@pytest.mark.usefixtures("nobody")
def test_case_62_a_uid_without_a_name_gets_name_home_and_cache():
    import getpass

    entry.name_unknown_user()
    assert getpass.getuser() == "draftkiln"
    assert os.access(os.environ["HOME"], os.W_OK)
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"].startswith(os.environ["HOME"])


@pytest.mark.usefixtures("nobody")
def test_case_62_the_entry_runs_with_an_unknown_uid(monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit) as caught:
        entry.main(["--version"])
    assert caught.value.code == 0


def test_the_stacks_variables_are_defaults(tmp_path, monkeypatch):
    file = tmp_path / "provenance.json"
    file.write_text('{"environment": {"DRAFTKILN_TEST_A": "stack", "DRAFTKILN_TEST_B": "stack"}}')
    monkeypatch.setattr(entry, "PROVENANCE", file)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(entry.cli, "main", lambda _argv: 0)
    monkeypatch.setenv("DRAFTKILN_TEST_A", "person")
    monkeypatch.setenv("DRAFTKILN_TEST_B", "x")
    monkeypatch.delenv("DRAFTKILN_TEST_B")
    entry.main([])
    assert (os.environ["DRAFTKILN_TEST_A"], os.environ["DRAFTKILN_TEST_B"]) == ("person", "stack")


def test_sigterm_ends_with_its_exit_code():
    with pytest.raises(SystemExit) as caught:
        entry._terminated(signal.SIGTERM, None)
    assert caught.value.code == ExitCode.TERMINATED == 143


@pytest.mark.parametrize(("cuda", "value"), [("null", "1"), ('"13.0"', None)])
def test_torch_compiles_nothing_in_an_image_for_cpus_without_a_compiler(tmp_path, monkeypatch, cuda, value):
    """Images for GPUs have one; without it torch would end an extraction at its first step."""
    file = tmp_path / "provenance.json"
    file.write_text(f'{{"environment": {{}}, "cuda": {cuda}}}')
    monkeypatch.setattr(entry, "PROVENANCE", file)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(entry.cli, "main", lambda _argv: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "x")
    monkeypatch.delenv("TORCHDYNAMO_DISABLE")
    entry.main([])
    assert os.environ.get("TORCHDYNAMO_DISABLE") == value
