"""Order of rows and number of processes change nothing; a killed process is told."""

import os
import signal
import subprocess
import sys

import pytest

from draftkiln.errors import DataError
from draftkiln.prepare import pool
from draftkiln.prepare.conversation import Conversation
from draftkiln.prepare.outcome import Refusal
from draftkiln.prepare.samples import Limits, Renderer
from draftkiln.prepare.template import Template

from .processes import wait_until_gone
from .stubs import Tokenizer

# Under xdist this process has a thread of its own, of which newer Pythons warn at a fork; no lock of it is held here.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning")


def rows(count):
    turns = [({"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": f"a{n}"}) for n in range(count)]
    return [Conversation(f"d.jsonl:{number}", pair) for number, pair in enumerate(turns, 1)]


@pytest.fixture
def renderer():
    tokenizer = Tokenizer()
    tokenizer.encode("user assistant \n" + " ".join(f"q{n} a{n}" for n in range(400)))
    return Renderer(Template(tokenizer), Limits(64))


def test_any_number_of_processes_gives_the_same_in_the_same_order(renderer):
    given = [*rows(300), Refusal("d.jsonl:301", "not JSON")]
    alone = list(pool.render(renderer, given, 1))
    assert list(pool.render(renderer, given, 3)) == alone
    assert [made.parts[0].source for made in alone[:-1]] == [row.source for row in rows(300)]
    assert alone[-1] == given[-1]


def test_case_46_each_row_has_the_same_ids_in_another_order(renderer):
    forth = {made.parts[0].source: made.parts[0] for made in pool.render(renderer, rows(50), 1)}
    back = {made.parts[0].source: made.parts[0] for made in pool.render(renderer, reversed(rows(50)), 2)}
    assert forth == back


def test_rows_are_taken_no_faster_than_they_are_rendered(renderer):
    taken = []

    def counted():
        for row in rows(5000):
            taken.append(row)
            yield row

    found = pool.render(renderer, counted(), 2)
    next(found)
    assert len(taken) <= 2 * 3 * pool.CHUNK_ROWS
    found.close()


ENDLESS = """
import os, time
from draftkiln.prepare import pool
from draftkiln.prepare.conversation import TextRow
class Slow:
    def render(self, row):
        os.write(1, b"%d\\n" % os.getpid())  # one write a line: print makes two, and two processes mix them
        time.sleep(60)
list(pool.render(Slow(), (TextRow(str(number), "x") for number in range(1000)), 2))
"""


def test_no_process_outlives_the_stage_even_where_that_is_killed():
    stage = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, text=True)
    assert stage.stdout is not None
    try:
        workers = {int(stage.stdout.readline()) for _ in range(2)}
    finally:
        stage.kill()
        stage.wait()
        stage.stdout.close()
    assert len(workers) == 2
    for worker in workers:
        wait_until_gone(worker)


def test_a_process_that_is_killed_is_told(renderer):
    class Deadly(Renderer):
        def render(self, row):
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(DataError, match="a process that renders rows was killed"):
        list(pool.render(Deadly(renderer.template, renderer.limits), rows(200), 2))
