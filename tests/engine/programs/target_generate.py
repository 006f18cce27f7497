"""Serve a made target with this environment's vLLM and write what it answers: MODEL OUTPUT."""

import json
import sys
from pathlib import Path


def main() -> None:
    from vllm import LLM, SamplingParams

    prompts = json.loads(sys.stdin.read())
    llm = LLM(sys.argv[1], trust_remote_code=True, dtype="bfloat16", enforce_eager=True, max_model_len=512, seed=0)
    settings = SamplingParams(temperature=0, max_tokens=48, ignore_eos=True, logprobs=2)
    answers = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], settings, use_tqdm=False)
    margins = []
    for answer in answers:
        for entry in answer.outputs[0].logprobs:
            best, second = sorted((value.logprob for value in entry.values()), reverse=True)[:2]
            margins.append(best - second)
    written = {
        "tokens": [list(answer.outputs[0].token_ids) for answer in answers],
        "text": answers[0].outputs[0].text,
        "margin": min(margins),
    }
    Path(sys.argv[2]).write_text(json.dumps(written))


if __name__ == "__main__":
    main()
