"""Train the small run of the training tests in a process that can be killed: train_small.py RUN TARGET CHANGES."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "train"))

from conftest import Small
from draftkiln.errors import DraftkilnError
from draftkiln.stagelog import Terminal
from draftkiln.train.command import _train


def main() -> int:
    """Train; the exit code of an error as the command line gives it."""
    run, target, changes = sys.argv[1:]
    try:
        _train(Small(Path(run), Path(target)).context(**json.loads(changes)), Terminal(sys.stdout))
    except DraftkilnError as error:
        print(error, file=sys.stderr)
        return int(error.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
