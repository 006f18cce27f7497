import os

import pytest

from draftkiln.errors import SystemMissingError
from draftkiln.stack import compiling, environment

CPU, CUDA = "spec0.3.0-vllm0.16.0-cpu", "spec0.4.0.1-vllm0.20.2-cu130"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A machine with these programs alone, and with Python's headers or without."""
    for key in ("CC", "CXX", "TORCHDYNAMO_DISABLE", environment.ACTIVE):
        monkeypatch.setenv(key, "x")
        monkeypatch.delenv(key)

    def has(*programs, headers=True):
        for name in programs:
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        if headers:
            (tmp_path / "Python.h").touch()
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(compiling.sysconfig, "get_path", lambda *_: str(tmp_path))

    return has


@pytest.mark.parametrize(
    ("programs", "headers", "uncompiled"),
    [(["g++"], True, False), (["gcc", "clang"], True, True), ([], True, True), (["g++"], False, True)],
)
def test_on_a_cpu_torch_compiles_only_where_it_can(host, programs, headers, uncompiled):
    """It looks for g++ alone; another compiler, or no Python headers, ended an extraction at its first step."""
    host(*programs, headers=headers)
    assert compiling.settings("cpu") == ({"TORCHDYNAMO_DISABLE": "1"} if uncompiled else {})
    assert compiling.settings("cuda") == {}


def test_a_compiler_that_is_named_counts_alone(host, monkeypatch):
    host("g++", "c++-14")
    monkeypatch.setenv("CXX", "c++-14")
    assert compiling.missing("cpu") == []
    monkeypatch.setenv("CXX", "c++-15")
    assert compiling.missing("cpu") == ["g++"]


def test_what_a_person_chose_stays(host, monkeypatch):
    host()
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    assert compiling.settings("cpu") == {}


def test_for_gpus_what_is_missing_is_named_before_an_environment_is_made(host, monkeypatch):
    host(headers=False)
    monkeypatch.setattr(environment, "ensure", lambda _name: pytest.fail("too late"))
    with pytest.raises(SystemMissingError, match="gcc") as caught:
        environment.enter(CUDA, ["extract"])
    assert caught.value.fix.startswith("sudo apt-get install -y gcc libpython3.")
    monkeypatch.setenv(environment.ACTIVE, CUDA)
    with pytest.raises(SystemMissingError, match="gcc"):
        environment.enter(CUDA, ["extract"])


def test_a_stage_on_a_cpu_says_once_that_nothing_is_compiled(host, monkeypatch, tmp_path, capsys):
    host()
    monkeypatch.setattr(environment, "ensure", lambda _name: made)
    made = environment.Environment(environment.read(CPU), tmp_path / "python", tmp_path)
    started = []
    monkeypatch.setattr(environment.os, "execve", lambda *words: started.append(words[2]))
    environment.enter(CPU, ["extract"])
    assert started[0]["TORCHDYNAMO_DISABLE"] == "1"
    assert "with g++ installed" in capsys.readouterr().err
    monkeypatch.setattr(os, "environ", {**os.environ, **started[0]})
    environment.enter(CPU, ["extract"])
    assert capsys.readouterr().err == ""
