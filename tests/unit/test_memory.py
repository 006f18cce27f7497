import os
import subprocess
import sys
import time

from draftkiln import memory


def test_grandchildren_are_counted():
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(20)'])"
    with subprocess.Popen([sys.executable, "-c", program]) as child:
        try:
            deadline = time.monotonic() + 10
            while len(memory.descendants(child.pid)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            assert len(memory.descendants(child.pid)) == 2
        finally:
            for pid in reversed(memory.descendants(child.pid)):
                os.kill(pid, 9)


def test_the_peak_of_a_child_is_seen():
    program = "import time; block = bytearray(300_000_000); time.sleep(2)"
    with memory.Peak() as peak:
        subprocess.run([sys.executable, "-c", program], check=True)
    assert 0.3 < peak.gigabytes < 1.5
