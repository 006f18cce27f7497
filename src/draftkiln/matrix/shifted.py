"""The control of a numeric check: compare a sample with reference states of the neighbouring layers; it must not agree.

Run in a stack's environment: `python -m draftkiln.matrix.shifted RECIPE RUN` prints the highest of the slots' least
cosines as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main() -> int:
    """Print how well the first sample agrees with layers shifted by one."""
    import safetensors.torch

    from draftkiln.extract import manifest, samples
    from draftkiln.recipe.load import load
    from draftkiln.target.reference import reference_text_model
    from draftkiln.target.resolve import location
    from draftkiln.validate.reference import compare

    recipe, run = Path(sys.argv[1]), Path(sys.argv[2])
    ids = manifest.read(run / "extract" / manifest.FILE).head.layer_ids
    tensors = safetensors.torch.load_file(run / "extract" / samples.FOLDER / samples.name(0))
    found = compare(
        reference_text_model(location(load(recipe).target.source)),
        0,
        tensors["token_ids"].tolist(),
        tensors["hidden_states"],
        [layer - 1 for layer in ids],
    )
    print(json.dumps(max(agreement.min_cosine for agreement in found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
