"""A made-up run directory with every file that a finished run has, in a few kilobytes."""

import json
import random

from draftkiln import durable

LAYERS = (2, 4, 5, 8)
SAMPLES = 60
NAMES = ("prepare", "extract", "validate", "train", "export", "evaluate")


def sha(text):
    return durable.sha256_json(text)


def write(run, name="made-up", *, hub=None, until="evaluate", steps=900, seed=3, word="plain", loss_shift=0.0):
    """Write a run that is finished up to and with the stage `until`; `word` stands where a file may hold any text."""
    made = _Made(run, random.Random(seed), word)
    put(run / "run.json", {"recipe": name, "schema_version": 1})
    for stage in NAMES[: NAMES.index(until) + 1]:
        getattr(made, stage)(hub=hub, steps=steps, loss_shift=loss_shift)
    return run


class _Made:
    def __init__(self, run, draw, word):
        self.run, self.draw, self.word = run, draw, word
        self.lengths = [draw.randint(40, 512) for _ in range(SAMPLES)]
        self.inputs = {}

    def finish(self, stage, inputs, results, stack="spec0.9.0-vllm0.32.0-cpu"):
        inputs = {
            "stack": stack,
            "requirements": sha(stack),
            "speculators": sha(stack + "w"),
            "target_config": sha("target"),
            **inputs,
        }
        self.inputs[stage] = inputs
        record = {
            "schema_version": 1,
            "stage": stage,
            "inputs": inputs,
            "results": {**results, "stage_seconds": 61.5, "ran_in": {"python": "3.11.2"}},
        }
        put(self.run / stage / "stage.json", {**record, "files": {f"{stage}/{self.word}": 10}})
        put_text(self.run / "logs" / f"{stage}.log", "all is well\n")

    def earlier(self, *stages):
        return {f"{stage}.record": durable.sha256_json(self.inputs[stage]) for stage in stages}

    def target(self, hub):
        source = {"hub": hub, "revision": "a" * 40} if hub else {"make": "kimi-tiny", "seed": 17}
        return {"recipe.target": {"source": source, "trust_remote_code": True, "must_be_single_token": {self.word: 1}}}

    def prepare(self, *, hub, **_):
        tokens = sum(self.lengths)
        results = {
            "dataset_sha256": sha("data"),
            "held_out_sha256": sha("held"),
            "samples": SAMPLES,
            "tokens": tokens,
            "trained_tokens": tokens // 2,
            "held_out": 16,
            "refused": 3,
        }
        data = {
            "recipe.data": {"source": {"path": self.word}},
            "tokenizer": {"tokenizer.json": sha("tok"), self.word: sha(1)},
        }
        self.finish("prepare", self.target(hub) | data, results)
        length = {"min": min(self.lengths), "median": sorted(self.lengths)[SAMPLES // 2], "max": max(self.lengths)}
        report = {
            "length": length,
            "end_of_turn": self.word,
            "mask_proved_by": "generation markers",
            "refused_by_reason": {self.word: 3},
        }
        put(self.run / "prepare" / "prepare-report.json", report)

    def extract(self, *, hub, **_):
        head = {
            "layer_ids": LAYERS,
            "hidden_size": 64,
            "dtype": "bfloat16",
            "computed_in": "float32",
            "samples": SAMPLES,
            "dataset_sha256": sha("data"),
            "stack": "spec0.3.0-vllm0.16.0-cpu",
            "norm_state": "pre-norm",
            "patched_wheel_sha256": sha("spec0.3.0-vllm0.16.0-cpuw"),
            "checksum": "xxh3_128",
            "layout": self.word,
        }
        receipts = [
            {"index": index, "rows": rows, "bytes": rows * 100, "checksum": sha([index, rows])[:32], "token_ids": "0"}
            for index, rows in enumerate(self.lengths)
        ]
        lines(self.run / "extract" / "manifest.jsonl", [head, *receipts])
        events = []
        for start, at in (("first", 1e9), ("second", 1e9 + 900)):
            events.append({"at": at, "event": "begin", "command": [start, self.word]})
            events += [
                {
                    "at": at + 30 * step,
                    "event": "progress",
                    "samples": step * 3,
                    "tokens": step * 900,
                    "tokens_per_second": 2000 + self.draw.random() * 200,
                }
                for step in range(1, 20)
            ]
            events.append({"at": at + 600, "event": "end"})
        lines(self.run / "logs" / "extract.jsonl", events)
        results = {
            "samples": SAMPLES,
            "tokens": sum(self.lengths),
            "tokens_per_second": 2011.5,
            "seconds": 43.2,
            "layer_ids": LAYERS,
            "dtype": "bfloat16",
            "engine_start_seconds": 12.0,
            "shape": [512, 4, 64],
        }
        inputs = (
            self.target(hub)
            | self.earlier("prepare")
            | {"dataset_sha256": sha("data"), "recipe.layers": {"aux": LAYERS[:3]}}
        )
        self.finish("extract", inputs, results, stack="spec0.3.0-vllm0.16.0-cpu")

    def validate(self, **_):
        checks = ["count", "order", self.word]
        agreements = [
            {
                "index": index,
                "layer": layer,
                "min_cosine": 0.99990 + self.draw.random() * 1e-5,
                "row": 7,
                "max_difference": 0.1,
                "median_cosine": 0.99999,
                "nearest": 1.0,
                "argmax": 0.995 if layer == LAYERS[-1] else None,
            }
            for index in (0, 9)
            for layer in LAYERS
        ]
        states = {
            "samples": 16,
            "rows": 4000,
            "layers": [
                {"layer": layer, "norm_min": 9.5 * layer, "norm_median": 10.25 * layer, "norm_max": 31.5 * layer}
                for layer in LAYERS
            ],
            "cosines": [[1 / (1 + abs(a - b)) for a in LAYERS] for b in LAYERS],
        }
        report = {
            "checks": checks,
            "agreements": agreements,
            "states": states,
            "answers": [{"index": 1, "row": -1, "rows": 128, "same": 128}],
        }
        put(self.run / "validate" / "report.json", report)
        results = {"checks": checks, "compared": 2, "samples": SAMPLES, "min_cosine": agreements[0]["min_cosine"]}
        self.finish("validate", self.earlier("prepare", "extract") | {"dataset_sha256": sha("data")}, results)

    def train(self, *, steps, loss_shift, **_):
        curve = []
        for step in range(1, steps + 1):
            share = step / steps
            accuracy = [round(0.8 * share, 4), round(0.5 * share**2, 4), round(0.3 * share**3, 4)]
            curve.append(
                {
                    "step": step,
                    "epoch": 0,
                    "loss": loss_shift + 1 + 9 / (1 + share * 20) + self.draw.random() * 0.2,
                    "accuracy": accuracy,
                    "learning_rate": 1e-3,
                    "seconds": step * 0.5,
                    "tokens_per_second": 500 + self.draw.random() * 50,
                }
            )
            if step % (steps // 3) == 0:
                curve.append(
                    {"step": step, "validation": True, "epoch": 0, "loss": 1.5 + 3 * (1 - share), "accuracy": accuracy}
                )
        lines(self.run / "train" / "curve.jsonl", curve)
        results = {
            "steps": steps,
            "epochs": 1,
            "tokens": steps * 1000,
            "loss_first": curve[0]["loss"],
            "loss_last": curve[-2]["loss"],
            "validation_loss": 1.5,
            "validation_accuracy": [0.79, 0.48, 0.29],
            "seconds_per_step": 0.5,
            "device": "cpu",
            "draft_vocab_size": 288,
            "checkpoint": "train/checkpoints/0",
            "checkpoint_sha256": sha("checkpoint"),
            "settings": {"lr": 1e-3, "loss_fn": self.word, "max_steps": None},
        }
        earlier = self.earlier("prepare", "extract", "validate")
        self.finish("train", earlier | {"dataset_sha256": sha("data"), "recipe.train": {"lr": 1e-3}}, results)

    def export(self, **_):
        layer = {
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "vocab_size": 288,
        }
        config = {
            "architectures": ["Eagle3Speculator"],
            "draft_vocab_size": 288,
            "norm_before_residual": False,
            "norm_before_fc": False,
            "fc_norm": False,
            "norm_output": False,
            "transformer_layer_config": layer,
        }
        put(self.run / "export" / "vllm" / "config.json", config)
        weights = {"vllm": sha("vllm"), "sglang": sha("sglang")}
        results = {"weights_sha256": weights, "parameters": 123456, "sglang_refused": None, "layer_ids": LAYERS[:3]}
        self.finish("export", self.earlier("train"), results)

    def evaluate(self, **_):
        results = {
            "acceptance_length": 2.4567,
            "acceptance_per_position": [0.8123, 0.4044, 0.24],
            "accepted": 603,
            "drafts": 413,
            "num_draft_tokens": 3,
            "prompts": 16,
            "tokens": 1024,
            "lossless": True,
            "tokens_per_second": 19.2,
            "tokens_per_second_alone": 17.8,
            "engine_start_seconds": 11.0,
        }
        sets = [
            {"set": "held-out", "sampling": {"temperature": 0.0}, **results},
            {"set": self.word, "sampling": {"temperature": 0.7}, **results, "lossless": None},
        ]
        report = {
            "schema_version": 1,
            **results,
            "draft_sha256": sha("vllm"),
            "draft_config_sha256": sha("config"),
            "prompts_sha256": sha("prompts"),
            "vllm": "0.32.0",
            "dtype": "float32",
            "divergences": [],
            "sets": sets,
            "sampling": {"temperature": 0.0, "max_tokens": 64},
        }
        put(self.run / "evaluate" / "result.json", report)
        self.finish(
            "evaluate", self.earlier("prepare", "export") | {"dataset_sha256": sha("data")}, {**results, "sets": sets}
        )


def put(file, value):
    """Without a sync to the disk: property tests write thousands."""
    put_text(file, json.dumps(value))


def put_text(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def lines(file, values):
    put_text(file, "".join(json.dumps(value) + "\n" for value in values))
