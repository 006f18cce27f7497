import os
import signal
import subprocess
import sys
import time

import pytest

from draftkiln import signals

CHILD = """
import pathlib, signal, sys, time
place = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: (place.joinpath('child').write_text('told'), sys.exit(1)))
place.joinpath('ready').touch()
time.sleep(60)
"""
PARENT = f"""
import sys, tempfile
from pathlib import Path
from draftkiln import signals
with signals.raised(), tempfile.TemporaryDirectory(dir=sys.argv[1], prefix="making-") as folder:
    if sys.argv[2] == "alone":
        Path(sys.argv[1], "ready").touch()
        import time
        time.sleep(60)
    words = [sys.executable, "-c", {CHILD!r}, sys.argv[1]]
    if sys.argv[2] == "with a group":
        words = ["sh", "-c", 'trap "" TERM; (trap - TERM; exec "$@") & wait $!', "sh", *words]
    done = signals.run(words, start_new_session=sys.argv[2] == "with a group")
    Path(sys.argv[1], "after").touch()
"""


@pytest.mark.parametrize("kind", ["alone", "with a child", "with a group"])
def test_sigterm_ends_the_work_removes_temporary_files_and_has_its_exit_code(tmp_path, kind):
    process = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), kind])
    until = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"ready"} if kind == "alone" else {"ready", "child"}), "the child was told, nothing went on"


def test_a_command_that_ends_by_itself_gives_what_it_said():
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)"
    done = signals.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "err\n")


def test_sigint_is_an_interruption_after_the_command_has_ended(tmp_path):
    code = f"import os, signal; os.kill({os.getpid()}, signal.SIGINT); import time; time.sleep(0.5)"
    with pytest.raises(KeyboardInterrupt):
        signals.run([sys.executable, "-c", code], cwd=tmp_path)


def test_the_earlier_handler_comes_back():
    earlier = signal.getsignal(signal.SIGTERM)
    with signals.raised():
        assert signal.getsignal(signal.SIGTERM) is not earlier
    assert signal.getsignal(signal.SIGTERM) is earlier
