import importlib.util
import shutil

import pytest

from draftkiln import checkout
from draftkiln.containers import engine
from draftkiln.containers.engine import Kind
from draftkiln.errors import ContainerError, ExitCode, SystemMissingError


def test_podman_installed_as_docker_is_told_by_its_answer(stub):
    stub("docker", kind="podman")
    assert engine.ask("docker").kind is Kind.PODMAN


def test_facts_come_from_the_engine(stub):
    stub("podman", rootless=True, selinux=True)
    found = engine.find()
    assert (found.kind, found.rootless, found.selinux) == (Kind.PODMAN, True, True)


def test_case_32_podman_before_cdi_is_refused_with_the_reason(stub):
    stub("podman", version="3.4.4")
    with pytest.raises(ContainerError, match=r"podman 3\.4\.4 is too old") as caught:
        engine.ask("podman")
    assert "CDI" in caught.value.why
    assert caught.value.code is ExitCode.CONTAINER


def test_old_docker_is_refused(stub):
    stub("docker", version="19.03.8")
    with pytest.raises(ContainerError, match="too old"):
        engine.ask("docker")


def test_an_engine_that_cannot_be_used_gives_way_to_one_that_can(stub):
    stub("podman", version="3.0.1")
    stub("docker")
    assert engine.find().kind is Kind.DOCKER


def test_no_engine_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("DRAFTKILN_ENGINE", raising=False)
    with pytest.raises(SystemMissingError, match="no container engine") as caught:
        engine.find()
    assert "podman" in caught.value.fix
    assert caught.value.code is ExitCode.SYSTEM


def test_a_chosen_engine_that_is_absent_is_not_replaced_by_another(stub, monkeypatch):
    stub("podman")
    monkeypatch.setenv("DRAFTKILN_ENGINE", "docker-of-my-own")
    with pytest.raises(SystemMissingError, match="docker-of-my-own"):
        engine.find()


def test_a_program_that_is_no_engine_is_refused():
    with pytest.raises(ContainerError, match="not a container engine"):
        engine.ask(shutil.which("ls"))


def test_settings_for_podman_without_systemd_are_ours_unless_chosen(monkeypatch, stub):
    stub("podman")
    monkeypatch.setattr(engine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(engine.Path, "exists", lambda _self: False)
    monkeypatch.delenv("CONTAINERS_CONF", raising=False)
    assert engine.ask("podman").environment["CONTAINERS_CONF"].endswith("containers/containers.conf")
    monkeypatch.setenv("CONTAINERS_CONF", "/mine")
    assert "CONTAINERS_CONF" not in engine.ask("podman").environment


@pytest.fixture
def bootstrap():
    spec = importlib.util.spec_from_file_location("bootstrap", checkout.root() / "bootstrap.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_bootstrap_installs_what_images_and_their_tests_need(bootstrap, monkeypatch, tmp_path):
    assert bootstrap.IMAGE_PROGRAMS == engine.PACKAGES
    assert bootstrap.image_packages(["nox", "-s", "tests"]) == []
    assert bootstrap.browser_packages(["nox", "-s", "tests"]) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    assert {"podman", "mmdebstrap"} <= set(bootstrap.image_packages(["nox", "-s", "build"]))
    assert {"podman", "mmdebstrap", "docker-registry"} <= set(bootstrap.image_packages(["nox", "-s", "ci"]))


def test_bootstrap_tells_what_tests_of_images_lack_before_they_run_for_half_an_hour(bootstrap, monkeypatch, capsys):
    monkeypatch.setattr(bootstrap, "missing_packages", lambda _python: [])
    monkeypatch.setattr(bootstrap, "image_packages", lambda _arguments: ["podman", "runc"])
    with pytest.raises(SystemExit) as caught:
        bootstrap.main(["nox", "-s", "ci"])
    assert caught.value.code == ExitCode.SYSTEM
    assert "sudo apt-get install -y podman runc" in capsys.readouterr().err


@pytest.mark.parametrize(("programs", "why"), [(["apt-get"], "sudo is missing"), (["sudo"], "no apt-get")])
def test_bootstrap_that_may_not_install_says_what_an_administrator_has_to(
    bootstrap, monkeypatch, tmp_path, capsys, programs, why
):
    for name in programs:
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(bootstrap.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit) as caught:
        bootstrap.apt(["podman", "runc"])
    assert caught.value.code == ExitCode.SYSTEM
    said = capsys.readouterr().err
    assert why in said
    assert "apt-get install -y podman runc" in said
