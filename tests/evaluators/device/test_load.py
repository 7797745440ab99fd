"""A busy machine is named, a quiet one is not."""

import os

import pytest

from kbevolve.evaluators.device.load import load_warning


def test_more_programs_than_cores_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(os, "getloadavg", lambda: (9.04, 1.0, 1.0))
    assert "load 9.0 on 2 cores" in load_warning()
    monkeypatch.setattr(os, "getloadavg", lambda: (1.9, 9.0, 9.0))
    assert load_warning() == ""
