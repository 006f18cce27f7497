import pytest

from draftkiln.containers import engine, publish
from draftkiln.errors import NetworkError, UsageError


@pytest.mark.parametrize("to", ["draftkiln", "draftkiln/stack:1", "registry.example.org/x@sha256:aa"])
def test_a_place_without_a_registry_is_refused(stub, to):
    stub("podman")
    with pytest.raises(UsageError, match="names no registry"):
        publish.push(engine.ask("podman"), "localhost/draftkiln/x", to)


def test_only_digests_are_mirrored():
    with pytest.raises(UsageError, match="not pinned"):
        publish.mirror("registry.example.org/vllm:nightly", "localhost:5000/vllm:x")


def test_plain_http_is_for_this_machine_alone():
    assert publish._insecure("--tls-verify=false", "127.0.0.1:5000/x") == ["--tls-verify=false"]
    assert publish._insecure("--tls-verify=false", "localhost:5000/x") == ["--tls-verify=false"]
    assert publish._insecure("--tls-verify=false", "localhost.example.org/x") == []
    assert publish._insecure("--tls-verify=false", "registry.example.org/127.0.0.1/x") == []


def test_a_registry_that_is_away_is_no_gone_pin(stub):
    stub("podman", code=125, says="dial tcp 127.0.0.1:5000: connect: connection refused")
    with pytest.raises(NetworkError):
        publish.push(engine.ask("podman"), "localhost/draftkiln/x", "localhost:5000/x:1")
