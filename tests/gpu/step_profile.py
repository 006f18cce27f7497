"""What a step does on the device, with and without the sink: `python tests/gpu/step_profile.py RECIPE DIR`.

A profile of the worker shows calls that wait for the device, the time in which kernels and copies to the host overlap,
and the memory that capturing takes. Prints one JSON object.
"""

import argparse
import collections
import json
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize", "cudaMemcpy")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=512)
    arguments = parser.parse_args()
    from draftkiln.extract import alternation, engine
    from draftkiln.recipe.load import load
    from draftkiln.target import facts
    from draftkiln.target.resolve import ensure

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    engine.EXTENSION = "profiled_worker.ProfiledExtension"
    recipe = load(arguments.recipe)
    target = ensure(recipe.target.source)
    settings = engine.Settings(target, facts.read(target), recipe, arguments.tokens, recipe.target.dtype)
    prompts = [[(7 * i + j) % 8000 for j in range(arguments.tokens)] for i in range(arguments.samples)]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    runs = alternation.WithSink(settings, arguments.folder)
    paths = {"plain": runs.plain, "extract": runs.extract}
    found = {}
    for name, path in paths.items():
        path(prompts)
        found[f"device_{name}"] = call(runs, "_profile_memory")
    for name, path in paths.items():
        call(runs, "_profile_start")
        seconds = path(prompts)
        trace = arguments.folder / f"{name}.json"
        call(runs, "_profile_stop", str(trace))
        found[name] = {
            "tokens_per_second": round(arguments.samples * arguments.tokens / seconds),
            **read(trace),
        }
        trace.unlink()
    runs.engine.shut_down()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    print("PROFILE " + json.dumps(found))


def call(runs, name, *words):
    return runs.engine._call(name, *words)[0]


def read(trace):
    """Calls that wait on the model's thread, seconds of kernels, of copies to the host, and of both at once."""
    events = json.loads(trace.read_text())["traceEvents"]
    # The profile's own end waits for the device, on the thread that runs the model.
    thread = next(event["tid"] for event in events if event.get("name") == "cudaDeviceSynchronize")
    waits = collections.Counter()
    waited = collections.Counter()
    kernels, copies = [], []
    for event in events:
        category, name = event.get("cat", ""), event.get("name", "")
        if category in ("cuda_runtime", "cuda_driver") and name in WAITS:
            where = "model thread" if event["tid"] == thread else "other threads"
            waits[f"{name}, {where}"] += 1
            waited[f"{name}, {where}"] += event.get("dur", 0) / 1e6
        elif category == "kernel":
            kernels.append((event["ts"], event["ts"] + event["dur"]))
        elif category == "gpu_memcpy" and "DtoH" in name and event.get("args", {}).get("bytes", 0) > 1 << 20:
            copies.append((event["ts"], event["ts"] + event["dur"]))
    names = collections.Counter()
    for event in events:
        if event.get("cat") == "kernel":
            names[event["name"][:90]] += event["dur"] / 1e6
    busy = union(kernels)
    return {
        "waits": dict(waits),
        "waited_seconds": {name: round(seconds, 3) for name, seconds in waited.items()},
        "kernel_seconds": round(length(busy) / 1e6, 4),
        "copy_seconds": round(length(union(copies)) / 1e6, 4),
        "both_seconds": round(overlap(busy, union(copies)) / 1e6, 4),
        "span_seconds": round((busy[-1][1] - busy[0][0]) / 1e6, 4) if busy else 0,
        "top_kernels": {name: round(seconds, 4) for name, seconds in names.most_common(12)},
    }


def union(spans):
    merged = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def length(spans):
    return sum(end - start for start, end in spans)


def overlap(ones, others):
    total = at = 0
    for start, end in ones:
        while at < len(others) and others[at][1] <= start:
            at += 1
        number = at
        while number < len(others) and others[number][0] < end:
            total += min(end, others[number][1]) - max(start, others[number][0])
            number += 1
    return total


if __name__ == "__main__":
    main()
