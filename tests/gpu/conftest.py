import pytest


@pytest.fixture(scope="session", autouse=True)
def gpu():
    """The tests of this folder need a GPU that torch sees."""
    torch = pytest.importorskip("torch", reason="torch is not installed here: run them on the GPU stack")
    if not torch.cuda.is_available():
        pytest.skip("no GPU is visible to torch")
