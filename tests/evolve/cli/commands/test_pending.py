"""`kbevolve pending`: a folder with everything that a machine without the archive needs."""

import dataclasses
from pathlib import Path
from typing import Any

from kbevolve.archive.records import Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evolve.runs.batch import read_batch


def waiting_kernels(sample: Any) -> list[Kernel]:
    """Two more kernels of the sample's run without a verdict, one of them created twice."""
    kernels = [Kernel.from_source(f"class ModelNew: number = {number}\r\n# ü\n") for number in range(2)]
    with Archive(sample.path) as archive:
        for generation, kernel in ((200, kernels[1]), (101, kernels[0]), (201, kernels[0])):
            birth = dataclasses.replace(sample.births[0], generation=generation, kernel=kernel.id)
            archive.add_birth(birth, kernel=kernel)
    return kernels


def test_pending_kernels_are_written_with_everything_that_a_batch_needs(
    kbevolve: Any, small_archive: Any, tmp_path: Path
) -> None:
    first, second = waiting_kernels(small_archive)
    folder = tmp_path / "new" / "pending"
    outcome = kbevolve("pending", folder, "--archive", small_archive.path)
    assert outcome.code == 0, outcome.err
    files = sorted(path.name for path in folder.iterdir())
    assert files == [f"g0101-i00-s0-{first.id}.py", f"g0200-i00-s0-{second.id}.py", "problem.py", "settings.yaml"]
    problem = find_problem(str(folder / "problem.py"))
    assert problem.id == small_archive.problem.id
    batch = read_batch(folder, problem=problem)
    assert [kernel.id for kernel in batch.kernels.values()] == [first.id, second.id]
    settings = Settings.load(file=folder / "settings.yaml")
    assert settings.evaluation == EvaluationSettings(precision="fp32")
    assert f"--batch {folder} --problem {folder}/problem.py --config {folder}/settings.yaml" in outcome.out
    assert f"kbevolve import results.jsonl --run {small_archive.run.id} --archive {small_archive.path}" in outcome.out


def test_the_folder_must_be_empty(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    none = kbevolve("pending", tmp_path / "pending", "--archive", small_archive.path)
    assert none.code == 0
    assert f"Every kernel of run {small_archive.run.id} has a verdict; nothing written." in none.out
    assert not (tmp_path / "pending").exists()
    waiting_kernels(small_archive)
    (tmp_path / "pending").mkdir()
    (tmp_path / "pending" / "notes.txt").write_text("mine")
    full = kbevolve("pending", tmp_path / "pending", "--archive", small_archive.path)
    assert full.code == 2
    assert "is not empty, and pending kernels of two runs must not mix" in full.err
    assert [path.name for path in (tmp_path / "pending").iterdir()] == ["notes.txt"]
