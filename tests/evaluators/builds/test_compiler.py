"""What the compilers' commands and keys depend on."""

import pytest

from kbevolve.evaluators.builds.compiler import toolchain


@pytest.mark.parametrize("variable", ["CXX", "CPATH", "LIBRARY_PATH", "NVCC_APPEND_FLAGS"])
def test_the_key_follows_the_compilers_variables(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """It was kept from the first call on, so that a variable set at that moment marked all later products."""
    monkeypatch.delenv(variable, raising=False)
    before = toolchain()
    monkeypatch.setenv(variable, "/elsewhere")
    assert toolchain() != before
    monkeypatch.delenv(variable)
    assert toolchain() == before
