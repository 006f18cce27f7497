"""The line that tells a person why an engine ended."""

import pytest

from draftkiln.cause import last_error

WORKER = """\
(Worker pid=9) ERROR 11-29 21:36:28 [multiproc_executor.py:953]     loaded_weight = loaded_weight.narrow(
(Worker pid=9) ERROR 11-29 21:36:28 [multiproc_executor.py:953]                     ^^^^^^^^^^^^^^^^
(Worker pid=9) ERROR 11-29 21:36:28 [multiproc_executor.py:953] RuntimeError: start (0) + length (576) is too much.
Traceback (most recent call last):
Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Traceback\n  File x\nValueError: no such model\nwarning: leaked\n", "ValueError: no such model"),
        ("pkg.errors.LoadError: shapes\n", "pkg.errors.LoadError: shapes"),
        (WORKER, "RuntimeError: start (0) + length (576) is too much."),
        ("(EngineCore pid=7) ValueError: a\nRuntimeError: Engine failed. See root cause above.", "ValueError: a"),
        ("RuntimeError: see root cause above.", "RuntimeError: see root cause above."),
        ("Killed\n", "Killed"),
        ("", "it printed nothing"),
    ],
)
def test_the_cause_is_found_under_what_only_points_at_it_and_is_never_empty(text, line):
    assert last_error(text) == line
