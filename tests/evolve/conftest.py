"""Fixtures of the proposer's tests."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def no_other_process_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run says does not depend on the tests beside it."""
    monkeypatch.setattr("kbevolve.evaluators.device.lock.is_taken", lambda device: False)


@pytest.fixture(autouse=True)
def no_process_is_started_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these tests replace the judge, and would import torch for nothing."""
    monkeypatch.setattr("kbevolve.evaluators.sandbox.launch.open_fork_server_early", lambda device_type: None)


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A scripted OpenAI-compatible endpoint on 127.0.0.1 (`loopback.Loopback`), seen without any proxy."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with _loopback().Loopback() as server:
        yield server


def _loopback() -> Any:
    # By path: the tests are no package, and must run from a bare `pytest`, too.
    name = "kbevolve_tests_loopback"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("loopback.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]
