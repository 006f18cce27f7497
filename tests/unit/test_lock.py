import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

from draftkiln import lock
from draftkiln.errors import ExitCode, StorageError

CHILD = """
import sys, time
from pathlib import Path
from draftkiln import lock
with lock.held(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def no_locks(monkeypatch, request):
    number = getattr(request, "param", errno.ENOLCK)

    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refused)
    return number


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_process_waits_for_the_first(tmp_path):
    path, told = tmp_path / "a.lock", []
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline().strip() == "held"
        threading.Timer(0.3, child.stdin.close).start()
        with lock.held(path, announce=told.append):
            pass
    assert any("waiting" in line for line in told)


def test_the_lock_of_a_killed_process_is_free_at_once(tmp_path):
    path, told = tmp_path / "a.lock", []
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline().strip() == "held"
        child.kill()
        child.wait()
        with lock.held(path, announce=told.append):
            assert told == []


def test_case_74_locks_are_opened_read_write(tmp_path, monkeypatch):
    flags = []
    opened = os.open
    monkeypatch.setattr(lock.os, "open", lambda path, how, *rest: flags.append(how) or opened(path, how, *rest))
    with lock.held(tmp_path / "a.lock"):
        assert flags[0] & os.O_ACCMODE == os.O_RDWR


@pytest.mark.parametrize("no_locks", [errno.EBADF, errno.ENOLCK], indirect=True)
def test_case_74_without_locks_a_claim_is_used_and_said(tmp_path, no_locks):
    told = []
    with lock.held(tmp_path / "a.lock", announce=told.append):
        claim = json.loads((tmp_path / "a.lock.claim").read_text())
        assert claim == {"host": socket.gethostname(), "pid": os.getpid()}
    assert errno.errorcode[no_locks] in told[0]
    assert [path.name for path in tmp_path.iterdir()] == ["a.lock"]


@pytest.mark.usefixtures("no_locks")
def test_case_74_the_claim_of_a_dead_process_of_this_host_is_taken_over(tmp_path):
    claim, told = tmp_path / "a.lock.claim", []
    claim.write_text(json.dumps({"host": socket.gethostname(), "pid": dead_pid()}))
    with lock.held(tmp_path / "a.lock", announce=told.append):
        assert json.loads(claim.read_text())["pid"] == os.getpid()
    assert any("taking over" in line for line in told)


@pytest.mark.usefixtures("no_locks")
def test_case_74_the_claim_of_another_host_is_never_taken_over(tmp_path):
    claim = tmp_path / "a.lock.claim"
    claim.write_text(json.dumps({"host": "node7", "pid": dead_pid()}))
    with pytest.raises(StorageError, match="of host node7") as caught, lock.held(tmp_path / "a.lock"):
        pytest.fail("taken over")
    assert str(claim) in caught.value.fix
    assert caught.value.code is ExitCode.STORAGE
    assert claim.exists()


@pytest.mark.usefixtures("no_locks")
def test_a_living_process_of_this_host_is_waited_for(tmp_path):
    claim, told = tmp_path / "a.lock.claim", []
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        claim.write_text(json.dumps({"host": socket.gethostname(), "pid": other.pid}))
        threading.Timer(0.3, claim.unlink).start()
        began = time.monotonic()
        with lock.held(tmp_path / "a.lock", announce=told.append):
            assert time.monotonic() - began >= 0.3
        other.stdin.close()
    assert any("waiting for process" in line for line in told)


@pytest.mark.usefixtures("no_locks")
def test_a_claim_that_says_nothing_is_left_alone(tmp_path):
    (tmp_path / "a.lock.claim").write_text("")
    with pytest.raises(StorageError, match="unknown"), lock.held(tmp_path / "a.lock"):
        pass


def test_other_errors_are_not_hidden(tmp_path, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, "x")

    monkeypatch.setattr(fcntl, "flock", broken)
    with pytest.raises(OSError, match="x"), lock.held(tmp_path / "a.lock"):
        pass
