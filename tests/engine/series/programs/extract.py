"""Run the generator of the speculators tree on PYTHONPATH and write what it returns.

Run by a stack's Python: `extract.py JOB.json FOLDER`. JOB holds `generator` (constructor arguments) and `calls`, a list
of `{"name", "samples"}`. FOLDER receives `report.json` (per call its seconds or its error) and `states.safetensors`
with `CALL/INDEX/ids` and `CALL/INDEX/states` `[layers, tokens, hidden]` float32.
"""

import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file


def failure(error: BaseException) -> dict[str, str]:
    """Describe an error so that a test can tell it from any other."""
    return {"type": type(error).__name__, "message": str(error), "traceback": traceback.format_exc()}


def main() -> None:
    """Run the job; errors of the generator belong to the result."""
    job = json.loads(Path(sys.argv[1]).read_text())
    folder = Path(sys.argv[2])
    report: dict[str, Any] = {"calls": {}}
    tensors: dict[str, torch.Tensor] = {}
    begin = time.monotonic()
    try:
        from speculators.data_generation import VllmHiddenStatesGenerator

        report["imported_s"] = time.monotonic() - begin
        generator = VllmHiddenStatesGenerator(**job["generator"])
        report["started_s"] = time.monotonic() - begin
    except Exception as error:  # noqa: BLE001 - the error is the result
        report["start"] = failure(error)
        generator = None
    for call in job["calls"] if generator else []:
        begin = time.monotonic()
        try:
            results = generator.generate(call["samples"])
        except Exception as error:  # noqa: BLE001 - the error is the result
            report["calls"][call["name"]] = failure(error)
            continue
        report["calls"][call["name"]] = {"seconds": time.monotonic() - begin, "samples": len(results)}
        for index, result in enumerate(results):
            key = f"{call['name']}/{index}"
            tensors[f"{key}/ids"] = result["input_ids"]
            report["calls"][call["name"]].setdefault("dtype", str(result["hidden_states"][0].dtype))
            tensors[f"{key}/states"] = torch.stack(result["hidden_states"]).float()
    del generator
    save_file(tensors, folder / "states.safetensors")
    (folder / "report.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
