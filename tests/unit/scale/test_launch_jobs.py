"""Jobs made from a recipe: the committed ones are what the command prints, and clusters would take them."""

import re
import shlex
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest
import yaml

from draftkiln import cli
from draftkiln.extract.shards import Shard

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted([*ROOT.glob("slurm/*"), *ROOT.glob("kubernetes/*")])
SCRIPTS = [path for path in EXAMPLES if path.suffix == ".sbatch"]
MANIFESTS = [path for path in EXAMPLES if path.suffix == ".yaml"]
KUBERNETES = "1.33"
OPTIONS = {
    "array": r"0-\d+",
    "cpus-per-task": r"\d+",
    "gpus-per-node": r"\d+",
    "job-name": r"[\w.-]+",
    "nodes": r"\d+",
    "ntasks-per-node": "1",
    "open-mode": "append",
    "output": r"[\w.%-]+",
    "requeue": "",
    "signal": r"B:TERM@\d+",
    "time": r"\d+-\d\d:\d\d:\d\d",
}
"""Options of sbatch that jobs use, and what their values look like."""


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def printed(words, capsys):
    code = cli.main(words)
    output = capsys.readouterr()
    assert code == 0, output.err
    return output.out


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_committed_job_is_what_its_own_first_line_says_how_to_make(path, capsys):
    text = path.read_text()
    words = shlex.split(re.search(r"^# Made by: draftkiln (.*)$", text, re.MULTILINE)[1])
    assert printed(words, capsys) == text


def test_there_is_a_job_of_each_kind():
    assert len(SCRIPTS) == 3
    assert len(MANIFESTS) == 2


def directives(text):
    found = {}
    for line in text.splitlines():
        if line.startswith("#SBATCH "):
            name, _, value = line.removeprefix("#SBATCH --").partition("=")
            assert name not in found
            found[name] = value
    return found


def check_script(text, folder):
    lines = text.splitlines()
    assert lines[0] == "#!/usr/bin/env bash"
    last = max(number for number, line in enumerate(lines) if line.startswith("#SBATCH"))
    # Slurm reads options before the first command only.
    assert all(line.startswith("#") for line in lines[:last])
    for name, value in directives(text).items():
        assert re.fullmatch(OPTIONS[name], value), name
    file = folder / "job.sbatch"
    file.write_text(text)
    subprocess.run(["bash", "-n", file], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", file], check=True)


@pytest.mark.parametrize("form", ["slurm", "ray"])
@pytest.mark.parametrize("hosts", ["1", "3"])
def test_a_script_is_one_that_slurm_and_bash_take(form, hosts, tmp_path, capsys):
    recipe = ["--recipe", "recipes/tiny-cpu.yaml", "--run", "my runs/it's"]
    text = printed(["launch", "--print", form, *recipe, "--hosts", hosts], capsys)
    check_script(text, tmp_path)
    assert directives(text)["cpus-per-task"] == "1"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_committed_script_is_one_that_slurm_and_bash_take(path, tmp_path):
    check_script(path.read_text(), tmp_path)


def test_the_tasks_of_an_array_are_the_shards_of_the_data(tmp_path, capsys):
    words = ["launch", "--print", "slurm", "--recipe", "recipes/tiny-cpu.yaml", "--hosts", "3", "--run", "runs/a b"]
    text = printed(words, capsys)
    stand_in = tmp_path / "draftkiln"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    (tmp_path / "runs" / "a b" / "prepare").mkdir(parents=True)
    (tmp_path / "runs" / "a b" / "run.json").write_text("{}")
    assert directives(text)["array"] == "0-2"
    shards = []
    for task in range(3):
        environment = {
            "PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_SUBMIT_DIR": str(tmp_path), "SLURM_ARRAY_TASK_ID": str(task)
        }  # fmt: skip
        done = subprocess.run(["bash"], input=text, env=environment, capture_output=True, text=True, check=True)
        said = done.stdout.splitlines()
        shards.append(said[said.index("--shard") + 1])
        assert said[said.index("--run") + 1] == f"runs/a b.parts/{task + 1}"
        assert (tmp_path / f"runs/a b.parts/{task + 1}" / "prepare").is_dir()
    assert shards == [str(Shard(number, 3)) for number in (1, 2, 3)]


def check_manifest(text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kubernetes_validate
    documents = list(yaml.safe_load_all(text))
    for document in documents:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    return documents


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_committed_manifest_holds_against_the_schema_of_kubernetes(path):
    check_manifest(path.read_text())


def test_a_manifest_carries_its_recipe_and_an_index_a_shard(capsys):
    text = printed(["launch", "--print", "k8s", "--recipe", "recipes/tiny-cpu.yaml", "--hosts", "3"], capsys)
    recipe, job = check_manifest(text)
    assert yaml.safe_load(recipe["data"]["recipe.yaml"]) == yaml.safe_load(Path("recipes/tiny-cpu.yaml").read_text())
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 3
    pod = job["spec"]["template"]["spec"]
    script = pod["containers"][0]["command"][2].replace("exec draftkiln", "echo").replace("cp -r", ": ")
    script = script.replace("mkdir", ": ")
    said = [
        subprocess.run(["sh", "-ec", script], env={"JOB_COMPLETION_INDEX": str(index)}, capture_output=True, text=True,
                       check=True).stdout
        for index in range(3)
    ]  # fmt: skip
    assert ["--shard 1/3" in said[0], "--shard 2/3" in said[1], "--shard 3/3" in said[2]] == [True] * 3
    assert pod["volumes"][1]["configMap"]["name"] == recipe["metadata"]["name"]
    assert pod["containers"][0]["resources"]["limits"] == {"cpu": "1"}


def test_a_schema_violation_is_found(capsys):
    text = printed(["launch", "--print", "k8s", "--recipe", "recipes/tiny-cpu.yaml"], capsys)
    import kubernetes_validate

    with pytest.raises(kubernetes_validate.ValidationError):
        check_manifest(text.replace("completions: 4", "completions: four"))
    with pytest.raises(kubernetes_validate.ValidationError):
        check_manifest(text.replace("completionMode:", "completionMood:"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--hosts", "0"], "--hosts must be 1 or more"),
        (["--time", "soon"], "--time soon is no time limit"),
        (["--print", "ray", "--stage", "train"], "Ray spreads extraction alone"),
    ],
)
def test_what_makes_no_job_is_refused(words, said, capsys):
    assert cli.main(["launch", "--print", "slurm", "--recipe", "recipes/tiny-cpu.yaml", *words]) == 2
    assert said in capsys.readouterr().err
