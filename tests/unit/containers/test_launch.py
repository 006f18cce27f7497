import itertools
import pathlib
from pathlib import Path

import pytest
from packaging.version import Version

from draftkiln.containers import launch
from draftkiln.containers.engine import Engine, Kind
from draftkiln.containers.launch import Gpus, Launch, Mount, run_line
from draftkiln.errors import ContainerError, UsageError

PODMAN = Engine(Kind.PODMAN, "podman", Version("4.3.1"))
DOCKER = Engine(Kind.DOCKER, "docker", Version("24.0.7"))
IMAGE = "localhost/draftkiln/stack"


def line(engine, **wishes):
    return run_line(engine, Launch(IMAGE, ("extract",), **wishes))


def pairs(words):
    return list(itertools.pairwise(words))


@pytest.mark.parametrize("gpus", [Gpus(), Gpus(count=8), Gpus(ids=("0", "3"))])
def test_case_32_podman_never_gets_the_flag_that_it_ignores(gpus):
    words = line(PODMAN, gpus=gpus)
    assert not [word for word in words if word.startswith("--gpus")]
    assert [word for word in words if word.startswith("nvidia.com/gpu=")]


def test_case_32_count_and_ids_map_to_both_forms():
    assert ("--device", "nvidia.com/gpu=all") in pairs(line(PODMAN, gpus=Gpus()))
    two = [word for word in line(PODMAN, gpus=Gpus(count=2)) if word.startswith("nvidia.com")]
    assert two == ["nvidia.com/gpu=0", "nvidia.com/gpu=1"]
    assert ("--gpus", "all") in pairs(line(DOCKER, gpus=Gpus()))
    assert ("--gpus", "8") in pairs(line(DOCKER, gpus=Gpus(count=8)))
    assert ("--gpus", '"device=0,3"') in pairs(line(DOCKER, gpus=Gpus(ids=("0", "3"))))


def test_docker_takes_cdi_by_option_from_the_version_that_has_it():
    with pytest.raises(ContainerError, match="CDI"):
        line(DOCKER, gpus=Gpus(), gpu_form="cdi")
    newer = Engine(Kind.DOCKER, "docker", Version("25.0.1"))
    assert ("--device", "nvidia.com/gpu=all") in pairs(line(newer, gpus=Gpus(), gpu_form="cdi"))


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_case_32_without_gpus_nothing_is_asked_for(engine):
    words = line(engine)
    assert "--gpus" not in words
    assert not [word for word in words if "nvidia" in word]


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_case_33_shared_memory_once_and_only_for_several_workers(engine):
    words = line(engine, workers=8)
    assert words.count("--shm-size") == 1
    assert "--ipc" not in words
    assert "--shm-size" not in line(engine, workers=1)
    assert ("--shm-size", "64g") in pairs(line(engine, workers=8, shared_memory="64g"))


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_case_33_the_hosts_shared_memory_excludes_a_size(engine):
    words = line(engine, workers=8, shared_memory="host")
    assert ("--ipc", "host") in pairs(words)
    assert "--shm-size" not in words


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_case_34_the_entrypoint_is_ours_whatever_the_base_says(engine):
    words = line(engine)
    assert ("--entrypoint", "draftkiln") in pairs(words)
    assert words[-2:] == [IMAGE, "extract"]


@pytest.mark.parametrize("engine", [PODMAN, DOCKER])
def test_containers_are_confined(engine):
    words = line(engine)
    assert ("--network", "none") in pairs(words)
    assert ("--cap-drop", "all") in pairs(words)
    assert ("--security-opt", "no-new-privileges") in pairs(words)
    assert "--read-only" in words
    assert not {"-i", "-t", "-it", "--interactive", "--tty", "--privileged"} & set(words)


def test_case_62_a_uid_without_a_name_has_name_home_and_caches():
    words = line(PODMAN, user=(12345, 54321))
    assert ("--user", "12345:54321") in pairs(words)
    given = dict(word.split("=", 1) for flag, word in pairs(words) if flag == "--env")
    assert given["USER"] == given["LOGNAME"] == "draftkiln"
    assert given["TORCHINDUCTOR_CACHE_DIR"].startswith(given["HOME"])
    scratch = [word.split(":")[0] for flag, word in pairs(words) if flag == "--tmpfs"]
    assert given["HOME"] in scratch
    assert "/tmp" in scratch


def test_case_62_rootless_podman_keeps_the_callers_id():
    rootless = Engine(Kind.PODMAN, "podman", Version("4.3.1"), rootless=True)
    assert ("--userns", "keep-id") in pairs(line(rootless))
    assert "--userns" not in line(PODMAN)


def test_case_63_selinux_labels_private_for_the_run_shared_for_the_rest():
    mounts = (
        Mount(Path("/data/run"), "/data/run", writable=True, shared=False),
        Mount(Path("/data/hub"), "/data/hub"),
    )
    confined = Engine(Kind.PODMAN, "podman", Version("4.3.1"), selinux=True)
    volumes = [word for flag, word in pairs(line(confined, mounts=mounts)) if flag == "--volume"]
    assert volumes == ["/data/run:/data/run:rw,Z", "/data/hub:/data/hub:ro,z"]
    plain = [word for flag, word in pairs(line(confined, mounts=mounts, relabel=False)) if flag == "--volume"]
    assert plain == ["/data/run:/data/run:rw", "/data/hub:/data/hub:ro"]
    assert plain == [word for flag, word in pairs(line(PODMAN, mounts=mounts)) if flag == "--volume"]


def test_a_path_that_engines_would_split_is_refused():
    with pytest.raises(UsageError, match="cannot be mounted"):
        line(PODMAN, mounts=(Mount(Path("/a:b"), "/a:b"),))


def test_case_72_several_machines_lock_memory(monkeypatch):
    words = line(DOCKER, infiniband=True)
    assert ("--ulimit", "memlock=-1:-1") in pairs(words)
    assert ("--device", "/dev/infiniband") in pairs(words)
    assert ("--cap-add", "IPC_LOCK") in pairs(words)


def test_case_72_rootless_leaves_the_limit_out_and_says_so(monkeypatch):
    rootless = Engine(Kind.PODMAN, "podman", Version("4.3.1"), rootless=True)
    monkeypatch.setattr(launch.resource, "getrlimit", lambda _which: (8 << 20, 8 << 20))
    assert "--ulimit" not in line(rootless, infiniband=True)
    assert "8 MB" in launch.memlock_warning(rootless)
    monkeypatch.setattr(launch.resource, "getrlimit", lambda _which: (8 << 20, launch.resource.RLIM_INFINITY))
    assert "--ulimit" in line(rootless, infiniband=True)
    assert launch.memlock_warning(rootless) is None


def test_root_writes_as_the_owner_of_the_run_directory(tmp_path, monkeypatch):
    class Status:
        st_uid, st_gid = 1234, 5678

    monkeypatch.setattr(launch.os, "getuid", lambda: 0)
    monkeypatch.setattr(pathlib.Path, "stat", lambda *_a, **_k: Status)
    monkeypatch.setattr(pathlib.Path, "exists", lambda _self: True)
    assert launch.caller(tmp_path) == (1234, 5678)
    monkeypatch.setattr(launch.os, "getuid", lambda: 77)
    monkeypatch.setattr(launch.os, "getgid", lambda: 88)
    assert launch.caller(tmp_path) == (77, 88)


def test_local_images_are_never_pulled():
    assert ("--pull", "never") in pairs(line(PODMAN))


@pytest.mark.parametrize("wrong", [{"count": 0}, {"count": 1, "ids": ("0",)}])
def test_a_gpu_wish_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="GPU|either"):
        Gpus(**wrong)
