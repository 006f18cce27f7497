"""Have a made target answer prompts through its stack's real server, lose an answer as a crash would, and ask again.

Run by a stack's Python: `answers.py FOLDER`. FOLDER receives `outcomes.json`.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from draftkiln import cache
from draftkiln.prepare import command, regenerate, server
from draftkiln.prepare.answers import Job
from draftkiln.prepare.answerstore import Prompt, Store
from draftkiln.prepare.completions import Endpoint
from draftkiln.prepare.outcome import Outcome
from draftkiln.prepare.samples import Limits
from draftkiln.recipe.load import loads
from draftkiln.recipe.model import Answers, MakeTarget
from draftkiln.stagelog import Terminal
from draftkiln.target.language import continuation
from draftkiln.target.resolve import ensure

PROMPTS = [Prompt(number, f"made:{number}", [259, *range(number, number + 9)]) for number in range(7)]
TOO_LONG = Prompt(7, "made:7", [259] * 4000)
"""More tokens than the server takes: refused by it, and counted."""
LENGTH = 12


def job(store: Store) -> Job:
    """Greedy answers, three requests in flight."""
    settings = Answers(max_tokens=LENGTH, concurrency=3, retries=1)
    return Job(settings, Limits(64), store, Terminal(sys.stdout))


async def ask(made: Job, port: int) -> None:
    """Ask for what is missing, and for the prompt that the server refuses."""
    await made.ask_all([*made.missing(PROMPTS), TOO_LONG], Endpoint.of_port(port))


RECIPE = """
schema_version: 1
name: regenerate
stacks: {{extract: a, train: b, evaluate: b}}
target: {{source: {{make: small}}}}
layers: {{aux: [2, 4, 5]}}
data:
  source: {{path: {path}}}
  max_tokens: 64
  answers: {{max_tokens: 12, concurrency: 3, retries: 0}}
  max_refused: 0.5
  held_out: 1
train: {{draft: {{num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 64}}}}
evaluate: {{prompts: 1}}
"""
QUESTIONS = ["bara base bati", "dera dese deti", "fira fise fiti"]


def regenerated(folder: Path, target: Path, url: str) -> dict[str, Any]:
    """Have conversations written by the server at `url`, twice."""
    file = folder / "questions.jsonl"
    rows = [[{"role": "user", "content": text}] for text in [*QUESTIONS, "bara " * 80]]
    file.write_text("".join(json.dumps({"messages": turns}) + "\n" for turns in rows))
    recipe = loads(RECIPE.format(path=file), "r.yaml")
    context: Any = SimpleNamespace(recipe=recipe, target=target)
    template = command.load_template(context)
    out, endpoint = folder / "regenerate", regenerate.named_endpoint(url)
    out.mkdir()
    reports = [regenerate.regenerate(context, Terminal(sys.stdout), out, endpoint) for _ in range(2)]
    lines = [json.loads(line) for line in (out / regenerate.CONVERSATIONS).read_text().splitlines()]
    asked = [template.ids([{"role": "user", "content": text}], generation_prompt=True) for text in QUESTIONS]
    return {
        "model": endpoint.model,
        "answers": [line["messages"][-1]["content"] for line in lines],
        "expected": [template.tokenizer.decode(continuation(ids, 12)) for ids in asked],
        "asked": [report["asked_now"] for report in reports],
        "refused": reports[1]["refused_by_reason"],
        "sampling": reports[1]["sampling"],
    }


def main() -> None:
    """Write the outcomes."""
    folder = Path(sys.argv[1])
    file = folder / "answers.jsonl"
    target = ensure(MakeTarget(make="small"), cache.root())
    outcomes: dict[str, Any] = {}
    began = time.monotonic()
    with server.running(target, folder / "server.log", max_model_len=64, max_num_seqs=3) as port:
        outcomes["start_s"] = time.monotonic() - began
        first = job(Store(file))
        asyncio.run(ask(first, port))
        first.store.close()
        file.write_bytes(file.read_bytes()[:-5])
        second = job(Store(file))
        outcomes["missing"] = len(second.missing(PROMPTS))
        asyncio.run(ask(second, port))
        second.store.close()
        outcomes["regenerated"] = regenerated(folder, target, f"http://{server.HOST}:{port}/v1")
    outcome = Outcome()
    second.into_samples([*PROMPTS, TOO_LONG], outcome)
    outcomes |= {
        "asked": [first.done, second.done],
        "failed": second.failed,
        "samples": [sample.input_ids for sample in outcome.samples],
        "expected": [[*prompt.ids, *continuation(prompt.ids, LENGTH)] for prompt in PROMPTS],
        "masks": [sample.loss_mask for sample in outcome.samples],
        "lines": len(file.read_bytes().splitlines()),
    }
    (folder / "outcomes.json").write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main()
