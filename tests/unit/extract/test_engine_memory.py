"""The peak of a process and its children, begun anew at will."""

import mmap
import subprocess
import sys

from draftkiln.extract import memory

SIZE = 80 << 20
CHILD = f"x = bytearray({SIZE}); print(len(x), flush=True); import sys; sys.stdin.read()"


def touched():
    """Memory that is taken and given back."""
    with mmap.mmap(-1, SIZE) as area:
        area.write(b"x" * SIZE)


def test_the_highest_is_kept_and_begun_anew():
    memory.begin()
    before = memory.highest()
    touched()
    assert memory.highest() - before > 0.9 * SIZE
    memory.begin()
    assert memory.highest() - before < 0.5 * SIZE


def test_processes_below_count():
    memory.begin()
    before = memory.highest()
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline()
        assert child.pid in memory.processes()
        assert memory.highest() - before > 0.9 * SIZE
        child.stdin.close()
    assert child.pid not in memory.processes()
