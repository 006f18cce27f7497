"""The header pass, alone and as `draftkiln validate --headers-only`: no torch, every fault by its file."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
from stub_samples import TOKENS, honest, lay, made, receipt, write

from draftkiln import cli, durable
from draftkiln.errors import ExitCode
from draftkiln.extract import manifest, samples
from draftkiln.extract.shards import Shard
from draftkiln.validate import headers

RECIPE = Path(__file__).parents[3] / "recipes" / "tiny-cpu.yaml"


def texts(folder, found, lengths=(40,)):
    return [str(problem) for problem in headers.Pass(folder, found, list(lengths)).problems()]


def test_headers_of_an_honest_sample_pass(tmp_path):
    _, found = made(tmp_path, honest())
    assert texts(tmp_path, found) == []


def test_case_5_fewer_rows_than_tokens_names_the_prefix_cache(tmp_path):
    _, found = made(tmp_path, honest())
    assert "token_ids is I64 [40], not I64 [48]" in texts(tmp_path, found, [48])[0]
    path = write(tmp_path, honest(24))
    found = manifest.Manifest(found.head, {0: receipt(path)})
    assert "shape [24, 4, 32], not [40, 4, 32] (fewer rows than tokens: a prefix cache" in texts(tmp_path, found)[0]


@pytest.mark.parametrize("size", [0, 5, 100, 6000])
def test_case_26_a_cut_file_is_found_by_its_header(tmp_path, size):
    path, found = made(tmp_path, honest())
    path.write_bytes(path.read_bytes()[:size])
    assert texts(tmp_path, found)[0].startswith("hs_0.safetensors: ")


def test_case_26_a_missing_file_is_told(tmp_path):
    path, found = made(tmp_path, honest())
    path.unlink()
    assert "hs_0.safetensors: cannot be read: " in texts(tmp_path, found)[0]


def test_one_flipped_bit_is_found_by_the_checksum_and_only_by_it(tmp_path):
    path, found = made(tmp_path, honest())
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    assert "altered after it was written" in texts(tmp_path, found)[0]
    assert list(headers.Pass(tmp_path, found, [40], checksums=False).problems()) == []


def test_case_2_states_of_another_sample_are_found_by_their_ids(tmp_path):
    _, found = made(tmp_path, honest())
    write(tmp_path, honest(), [9, *TOKENS[1:]])
    assert "its token ids are not those of its receipt" in texts(tmp_path, found)[0]


@pytest.mark.parametrize("dtype", ["F32", "F16", "F8_E4M3", "I8"])
def test_case_57_another_type_is_refused(tmp_path, dtype):
    _, found = made(tmp_path, honest())
    path = write(tmp_path, honest(), dtype=dtype)
    found = manifest.Manifest(found.head, {0: receipt(path)})
    assert f"hidden_states is {dtype}, the manifest says bfloat16" in texts(tmp_path, found)[0]


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_case_57_a_manifest_of_another_type_is_refused(tmp_path, dtype):
    _, found = made(tmp_path, honest(), dtype=dtype)
    assert f"hidden_states is BF16, the manifest says {dtype}" in texts(tmp_path, found)[0]


def test_case_50_post_norm_states_are_refused(tmp_path):
    _, found = made(tmp_path, honest(), norm_state="post-norm")
    assert "post-norm" in texts(tmp_path, found)[0]


def test_case_54_one_slot_too_few_is_refused(tmp_path):
    _, found = made(tmp_path, honest()[:, :3])
    assert "shape [40, 3, 32], not [40, 4, 32]" in texts(tmp_path, found)[0]


def test_an_unknown_layout_is_refused_and_not_guessed(tmp_path):
    _, found = made(tmp_path, honest(), layout="hidden_states[slots, tokens, hidden], token_ids[tokens]")
    assert "manifest: layout is 'hidden_states[slots, tokens, hidden]" in texts(tmp_path, found)[0]
    _, found = made(tmp_path, honest(), checksum="crc32")
    assert "manifest: checksum is 'crc32'" in texts(tmp_path, found)[0]


@pytest.mark.parametrize("more", ["hidden_states_2", "hidden_states_scales", "layer_2"])
def test_an_ambiguous_file_is_refused(tmp_path, more):
    path, found = made(tmp_path, honest())
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header, data = json.loads(path.read_bytes()[8 : 8 + length]), path.read_bytes()[8 + length :]
    header[more] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
    path = lay(tmp_path, header, data + bytes(4))
    found = manifest.Manifest(found.head, {0: receipt(path)})
    assert f"'{more}'" in texts(tmp_path, found)[0]
    assert "not hidden_states and token_ids" in texts(tmp_path, found)[0]


@pytest.mark.parametrize("header", [[], {"hidden_states": 3}, {"hidden_states": {"dtype": "BF16"}}, "x"])
def test_a_header_that_is_none_is_told_and_not_tripped_over(tmp_path, header):
    path, found = made(tmp_path, honest())
    path = lay(tmp_path, header, b"")
    found = manifest.Manifest(found.head, {0: dataclasses.replace(found.receipts[0], bytes=path.stat().st_size)})
    assert "hs_0.safetensors: cannot be read: " in texts(tmp_path, found)[0]


def test_a_missing_receipt_is_told(tmp_path):
    _, found = made(tmp_path, honest(), samples=2)
    assert any("1 samples have no receipt" in text for text in texts(tmp_path, found, [40, 40]))


def test_a_shard_is_looked_at_as_a_whole(tmp_path):
    _, found = made(tmp_path, honest(), samples=3, shard=Shard(1, 3))
    assert texts(tmp_path, found, [40, 40, 40]) == []


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run" / "extract" / samples.FOLDER
    folder.mkdir(parents=True)
    path, found = made(folder, honest())
    manifest.create(folder.parent / manifest.FILE, found.head, [receipt(path)])
    durable.write_json(tmp_path / "run" / "prepare" / "stage.json", {"inputs": {}, "results": {"samples": 1}})
    return tmp_path / "run"


def headers_only(run, *more):
    return cli.main(["validate", "--recipe", str(RECIPE), "--run", str(run), "--headers-only", *more])


def test_headers_only_says_what_it_looked_at_and_records_nothing(run, capsys):
    assert headers_only(run) == 0
    assert "headers, ids, sizes and checksums of 1 samples are good: 40 tokens, 0.00 GB" in capsys.readouterr().out
    assert not (run / "validate").exists()


def test_headers_only_names_file_and_fault_and_skips_checksums_on_request(run, capsys):
    path = run / "extract" / samples.FOLDER / samples.name(0)
    data = bytearray(path.read_bytes())
    data[1000] ^= 1
    path.write_bytes(bytes(data))
    assert headers_only(run, "--skip-checksums") == 0
    assert headers_only(run) == ExitCode.VALIDATION
    errors = capsys.readouterr().err
    assert "hs_0.safetensors: its xxh3_128 is not the one of its receipt" in errors
    assert "Traceback" not in errors


def test_case_8_other_layers_and_another_count_than_prepared_are_told(run, capsys):
    path = run / "extract" / manifest.FILE
    found = manifest.read(path)
    manifest.create(path, dataclasses.replace(found.head, layer_ids=(1, 2, 3, 8), samples=5), found.receipts.values())
    assert headers_only(run) == ExitCode.VALIDATION
    errors = capsys.readouterr().err
    assert "slots are layers [1, 2, 3, 8], layers.aux is" in errors
    assert "manifest: 5 samples, prepare made 1" in errors
    assert "4 samples have no receipt, the first is 1" in errors


def test_headers_only_needs_neither_torch_nor_numpy(run):
    program = (
        "import sys; from draftkiln import cli\n"
        f"assert cli.main({['validate', '--recipe', str(RECIPE), '--run', str(run), '--headers-only']!r}) == 0\n"
        "assert not {'torch', 'vllm', 'numpy', 'datasets'} & set(sys.modules), set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_skipping_checksums_is_refused_in_the_stage(run, capsys):
    assert cli.main(["validate", "--recipe", str(RECIPE), "--run", str(run), "--skip-checksums"]) == ExitCode.USAGE
    assert "--headers-only" in capsys.readouterr().err
