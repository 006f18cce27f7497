"""What `draftkiln refresh` refuses at once, also while another refresh runs."""

import os

import pytest
import small_project

from draftkiln import cli
from draftkiln.errors import ExitCode
from draftkiln.refresh import refresh as work


@pytest.fixture
def project(tmp_path, index, monkeypatch):
    monkeypatch.setenv("DRAFTKILN_HOME", str(small_project.build(tmp_path / "project", tmp_path / "cache")))
    monkeypatch.delenv("DRAFTKILN_VLLM_INDEX", raising=False)
    monkeypatch.chdir(tmp_path)

    def waits(*_, **__):
        raise AssertionError("the lock is waited for")

    monkeypatch.setattr(work, "held", waits)
    return index


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ("--vllm newest", ExitCode.USAGE, "not a build that can be named"),
        ("--vllm http://[", ExitCode.USAGE, "--vllm http://[: not a URL that can be asked"),
        ("--vllm https://host:port/x.whl", ExitCode.USAGE, "not a URL that can be asked"),
        ("--vllm nightly", ExitCode.USAGE, "no index of such wheels"),
        ("--vllm nightly --index http://[x", ExitCode.USAGE, "http://[x: not a URL that can be asked"),
        ("--vllm 0.33.0 --sha256 abc", ExitCode.USAGE, "not a sha256"),
        ("--vllm 0.33.0 --speculators abc", ExitCode.USAGE, "--speculators abc: not a version"),
        ("--vllm 0.33.0 --speculators 0.5.0", ExitCode.PATCHES, "target removed upstream"),
        ("--vllm 0.33.0 --speculators 0.2.0", ExitCode.PATCHES, "no series for speculators 0.2.0"),
        ("--vllm 0.33.0 --report project", ExitCode.USAGE, "--report project: no report can be written there"),
        ("--vllm 0.33.0 --markdown file/report.md", ExitCode.USAGE, "--markdown file/report.md: no report"),
    ],
)
def test_wrong_arguments_are_refused_without_waiting_for_another_refresh(project, tmp_path, capsys, words, code, told):
    (tmp_path / "file").touch()
    assert cli.main(["refresh", *words.split()]) == code
    assert told in capsys.readouterr().err
    assert project.asked == []


def test_a_report_where_nobody_may_write_is_refused_before_the_work(project, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(os, "access", lambda place, _: str(place) != str(tmp_path))
    assert cli.main(["refresh", "--vllm", "0.33.0", "--report", "new/report.json"]) == ExitCode.USAGE
    assert f"{tmp_path} cannot be written" in capsys.readouterr().err


def test_right_arguments_take_their_turn(project):
    with pytest.raises(AssertionError, match="the lock is waited for"):
        cli.main(["refresh", "--vllm", "0.33.0", "--report", "new/folder/report.json"])
