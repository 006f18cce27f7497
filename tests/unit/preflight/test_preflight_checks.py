import json
from pathlib import Path

import pytest
import yaml

from draftkiln.preflight import capability, driver, host_checks, samples, target_checks
from draftkiln.preflight.host import Gpu, Host, parse_nvidia_smi
from draftkiln.recipe.model import Recipe
from draftkiln.target import facts

ROOT = Path(__file__).parents[3]
GB = 10**9
BLACKWELL = Gpu("NVIDIA B200", 183 * GB, 182 * GB, (10, 0))


def recipe(name="kimi-k2.5-int4-tp8", **changes):
    content = yaml.safe_load((ROOT / "recipes" / f"{name}.yaml").read_text())
    for path, value in changes.items():
        section, key = path.split("__")
        content[section][key] = value
    return Recipe.model_validate(content)


def host(**changes):
    given = {
        "gpus": (BLACKWELL,) * 8,
        "nvidia_driver": "570.133.20",
        "shm_bytes": 64 * GB,
        "disk_free": 100 * GB,
        "disk_path": Path("/runs"),
        "cores": 64,
    }
    return Host(**given | changes)


@pytest.fixture
def target(tmp_path):
    """A target directory whose config.json and tokenizer files the test gives."""

    def write(config, tokenizer=None, added=None, tokens=None):
        (tmp_path / "config.json").write_text(json.dumps(config))
        if tokenizer is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
        if added is not None:
            (tmp_path / "tokenizer.json").write_text(json.dumps({"added_tokens": added, **(tokens or {})}))
        return facts.read(tmp_path)

    return write


TEXT = {"num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 64, "vocab_size": 163840}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": {**TEXT, "quantization_config": {"quant_method": "compressed-tensors"}},
}
FLAT = {"model_type": "deepseek_v3", **TEXT}
BOTH = {"model_type": "kimi_k25", "num_hidden_layers": 27, "hidden_size": 1152, "text_config": TEXT}


@pytest.mark.parametrize("config", [FLAT, KIMI, BOTH])
def test_case_24_layers_and_sizes_are_the_text_part_s(target, config):
    found = target(config)
    assert target_checks.check_layers(recipe(), found).status == "pass"
    assert target_checks.check_layers(recipe(layers__aux=[2, 30, 60]), found).status == "pass"
    wrong = target_checks.check_layers(recipe(layers__aux=[2, 30, 61]), found)
    assert (wrong.status, "61" in wrong.reason) == ("fail", True)
    disk = host_checks.check_disk(recipe(), found, 632, host())
    assert "632 samples x 512 tokens x 4 slots x 7168 x 2 bytes" in disk.reason


@pytest.mark.parametrize(
    ("free", "status"), [(100 * GB, "pass"), (20 * GB, "warn"), (18 * GB, "fail")]
)  # 632 samples take 18.55 GB
def test_the_disk_estimate_is_held_against_what_is_free(target, free, status):
    assert host_checks.check_disk(recipe(), target(KIMI), 632, host(disk_free=free)).status == status


def test_the_estimate_of_a_full_sample_is_the_published_one():
    assert host_checks.state_bytes(1, 512, 4, 7168) == 29_360_128


def test_data_that_cannot_be_counted_is_unknown_not_fine(target):
    assert host_checks.check_disk(recipe(), target(KIMI), None, host()).status == "unknown"


@pytest.mark.parametrize(
    ("text", "limit", "count"),
    [("a\n" * 100, None, 60), ("a\n" * 100 + "a", None, 61), ("a\n" * 100, 10, 10), ("a\n" * 30, None, 0)],
)
def test_samples_are_counted_without_the_held_out_prompts(tmp_path, text, limit, count):
    (tmp_path / "data.jsonl").write_text(text)
    data = recipe(data__source={"path": str(tmp_path / "data.jsonl")}, data__limit=limit).data
    assert samples.count(data) == count
    assert samples.count(recipe(data__source={"path": str(tmp_path / "none")}).data) is None
    assert samples.count(recipe("tiny-cpu").data) == 16


@pytest.mark.parametrize(
    ("size", "shm", "status"),
    [(1, 64 << 20, "pass"), (8, 64 << 20, "fail"), (8, 1 << 30, "pass"), (8, None, "unknown")],
)
def test_case_33_shared_memory_is_needed_by_tensor_parallel_workers_only(size, shm, status):
    asked = recipe(target__tensor_parallel_size=size)
    assert host_checks.check_shared_memory(asked, host(shm_bytes=shm)).status == status


def test_case_36_a_host_without_gpus_is_cpu_mode():
    nothing = host(gpus=(), nvidia_driver=None, cores=2)
    found = host_checks.check_devices(recipe("tiny-cpu"), "cpu", nothing)
    assert (found.status, found.reason) == ("pass", "CPU mode, 2 cores")
    assert host_checks.check_devices(recipe(), "cpu", nothing).status == "fail"
    missing = host_checks.check_devices(recipe(), "cuda", nothing)
    assert (missing.status, missing.reason) == ("fail", "CPU mode: the stack needs 8 GPUs, none is visible")
    assert driver.check(None, None, quantized=True).status == "pass"


def test_gpus_are_counted_and_their_memory_is_held_against_the_weights(target):
    found = target(KIMI)
    assert host_checks.check_devices(recipe(), "cuda", host()).status == "pass"
    assert host_checks.check_devices(recipe(), "cuda", host(gpus=(BLACKWELL,) * 4)).status == "fail"
    heavy = found.__class__(**{**found.__dict__, "weight_bytes": 595 * GB})
    assert host_checks.check_memory(recipe(), heavy, "cuda", host()).status == "pass"
    assert host_checks.check_memory(recipe(), heavy, "cuda", host(gpus=(BLACKWELL,) * 2)).status == "pass"
    small = Gpu("small", 80 * GB, 80 * GB, (9, 0))
    assert host_checks.check_memory(recipe(), heavy, "cuda", host(gpus=(small,) * 8)).status == "fail"
    busy = Gpu("busy", 183 * GB, 20 * GB, (10, 0))
    assert "another process" in host_checks.check_memory(recipe(), heavy, "cuda", host(gpus=(busy,) * 8)).reason


@pytest.mark.parametrize(
    ("model", "quantization", "gpu", "answer"),
    [
        ("kimi_k25", "compressed-tensors", (10, 0), "ok"),
        ("kimi_k25", "compressed-tensors", (9, 0), "ok"),
        ("kimi_k25", "compressed-tensors", (12, 1), "refuse"),
        ("kimi_k25", "compressed-tensors", (12, 0), "unknown"),
        ("deepseek_v32", "fp8", (12, 0), "refuse"),
        ("llama", None, (12, 0), "ok"),
        ("llama", None, (7, 5), "refuse"),
        ("llama", "gguf", (9, 0), "unknown"),
        ("llama", None, (13, 0), "unknown"),
    ],
)
def test_case_67_the_table_answers_or_says_that_it_cannot(model, quantization, gpu, answer):
    assert capability.answer(model, quantization, gpu)[0] == answer


def test_case_67_preflight_refuses_a_gpu_without_kernels(target):
    spark = Gpu("NVIDIA GB10", 120 * GB, 119 * GB, (12, 1))
    found = host_checks.check_kernels(target(KIMI), "kimi_k25", "cuda", host(gpus=(spark,)))
    assert (found.status, "12.1" in found.reason) == ("fail", True)
    assert host_checks.check_kernels(target(KIMI), "kimi_k25", "cuda", host()).status == "pass"
    assert host_checks.check_kernels(target(KIMI), "kimi_k25", "cpu", host(gpus=())).status == "pass"


def test_without_a_gpu_in_sight_nothing_is_said_of_a_gpu_stack(target):
    found = target(KIMI)
    assert host_checks.check_kernels(found, "kimi_k25", "cuda", host(gpus=())).status == "unknown"
    assert host_checks.check_memory(recipe(), found, "cuda", host(gpus=())).status == "unknown"
    assert host_checks.check_memory(recipe(), found, "cpu", host(gpus=())).status == "pass"


@pytest.mark.parametrize(
    ("have", "cuda", "quantized", "status"),
    [
        ("570.133.20", "12.8", True, "pass"),
        ("580.65.06", "12.8", True, "pass"),
        ("550.54.15", "12.8", False, "warn"),
        ("550.54.15", "12.8", True, "fail"),
        ("470.256.02", "12.8", False, "fail"),
        ("570.133.20", "13.0", False, "fail"),
        (None, "12.8", False, "unknown"),
        ("570.133.20", "99.9", False, "unknown"),
        (None, None, True, "pass"),
    ],
)
def test_case_66_the_driver_is_compared_with_the_cuda_of_the_wheels(have, cuda, quantized, status):
    assert driver.check(have, cuda, quantized=quantized).status == status


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error 803: system has unsupported display driver / cuda driver combination",
        "Error 804: forward compatibility was attempted on non supported HW",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ],
)
def test_case_66_the_many_texts_of_an_old_driver_have_one_hint(text):
    assert driver.hint(text) == driver.HINT
    assert driver.hint("CUDA out of memory") is None


def test_nvidia_smi_is_read_line_by_line():
    text = "0, NVIDIA B200, 183359, 182000, 10.0, 570.133.20\n1, NVIDIA B200, 183359, 182000, 10.0, 570.133.20\n"
    gpus, version = parse_nvidia_smi(text)
    assert (len(gpus), gpus[0].capability, gpus[0].memory, version) == (2, (10, 0), 183359 << 20, "570.133.20")
    assert parse_nvidia_smi("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver") is None


SLOW = {"tokenizer_class": "TikTokenTokenizer", "auto_map": {"AutoTokenizer": ["t.T", None]}}
TOKENS = {str(number): {"content": text} for text, number in {"[BOS]": 163584, "[EOS]": 163585}.items()}


def test_special_tokens_are_compared_as_far_as_files_tell(target):
    wanted = {"[BOS]": 163584, "[EOS]": 163585}
    asked = recipe(target__must_be_single_token=wanted)
    assert target_checks.check_tokenizer(asked, target(KIMI, {**SLOW, "added_tokens_decoder": TOKENS})).status == "pass"
    other = recipe(target__must_be_single_token={"[BOS]": 1})
    wrong = target_checks.check_tokenizer(other, target(KIMI, {**SLOW, "added_tokens_decoder": TOKENS}))
    assert (wrong.status, wrong.reason) == ("fail", "'[BOS]' is token 163584, the recipe says 1")
    assert target_checks.check_tokenizer(asked, target(KIMI, SLOW)).status == "unknown"


def test_remote_code_that_is_not_allowed_fails(target):
    asked = recipe(target__trust_remote_code=False, target__must_be_single_token={})
    assert target_checks.check_tokenizer(asked, target(KIMI, SLOW)).status == "fail"
    assert target_checks.check_tokenizer(asked, target(KIMI, {"tokenizer_class": "X"}, added=[])).status == "pass"


def test_heads_lengths_and_weights(target):
    found = target({**KIMI, "text_config": {**TEXT, "max_position_embeddings": 4096}})
    assert target_checks.check_parallelism(recipe(target__tensor_parallel_size=7), found).status == "fail"
    assert target_checks.check_lengths(recipe(), found).status == "pass"
    assert target_checks.check_lengths(recipe(data__max_tokens=4097), found).status == "fail"
    assert target_checks.check_lengths(recipe(extract__token_budget=256), found).status == "warn"
    assert target_checks.check_weights(recipe(), found).status == "fail"
    assert target_checks.check_weights(recipe(target__load_format="dummy"), found).status == "warn"


@pytest.mark.parametrize(("release", "status"), [("0.3.0", "pass"), ("0.4.0.1", "pass"), ("0.5.0", "fail")])
def test_case_1_a_release_without_the_generator_cannot_extract(release, status):
    assert target_checks.check_generator(release).status == status
