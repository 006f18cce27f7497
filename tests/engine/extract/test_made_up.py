"""Values for weights that an engine made up, on tensors of the real torch."""

from pathlib import Path

import pytest
import stacks

pytestmark = pytest.mark.engine
PROGRAM = Path(__file__).parents[1] / "programs" / "made_up.py"


def test_norms_become_one_packed_integers_are_drawn_by_name_and_the_rest_stays():
    done = stacks.run(stacks.EXTRACT, [PROGRAM])
    assert done.returncode == 0, done.stderr
