"""An empty archive, a problem and its run."""

from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem


@pytest.fixture
def archive() -> Archive:
    return Archive(":memory:")


@pytest.fixture
def problem() -> Problem:
    return Problem(
        name="L1/matmul", source="N = 4", path=Path("a b/ü.py"), cpu_sizes={"N": 2, "X": 0.5}, summary="C = A @ B"
    )


def make_run(of: Problem, **changes: Any) -> Run:
    run = Run(
        id="matmul-20261121-083012-3f2a", problem_name="L1/matmul", problem=of.id, device="cpu/x", seed=7,
        settings='{"evaluation": {"precision": "fp32"}}', versions={"torch": "2.13.0"}, created="2026-11-21T08:30:12",
    )  # fmt: skip
    return changed(run, **changes)
