"""SIGTERM ends preparation with one line, its exit code, and no process left."""

import signal
import subprocess
import sys

import pytest

from draftkiln.errors import ExitCode

from .processes import wait_until_gone

pytestmark = pytest.mark.slow

STAGE = """
import os, sys, time
from pathlib import Path
from draftkiln import stagelog
from draftkiln.errors import DataError
from draftkiln.prepare import pool, termination
from draftkiln.prepare.conversation import TextRow

out = os.dup(1)  # the stage's log takes descriptor 1

class Slow:
    def render(self, row):
        os.write(out, b"%d\\n" % os.getpid())
        time.sleep(0.3)

with termination.told("prepare"), stagelog.stage_log(Path(sys.argv[1]), DataError):
    rows = (TextRow(str(number), "x") for number in range(1000))
    list(pool.render(Slow(), rows, 2))
"""


def test_sigterm_is_one_line_with_its_exit_code_and_leaves_no_process(tmp_path):
    log = tmp_path / "prepare.log"
    started = subprocess.Popen(
        [sys.executable, "-c", STAGE, log], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    workers = {int(started.stdout.readline()) for _ in range(4)}
    started.send_signal(signal.SIGTERM)
    _, told = started.communicate(timeout=60)
    assert started.returncode == ExitCode.TERMINATED == 143
    (line,) = told.splitlines()
    assert line.startswith("draftkiln prepare: stopped by SIGTERM; nothing half-written is left")
    assert "Traceback" not in log.read_text()
    for worker in workers:
        wait_until_gone(worker)
