"""A benchmark's children as a run in an archive, for the commands that read one."""

from collections.abc import Iterable
from datetime import UTC, datetime

from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import Device


def open_run(archive: Archive, problem: Problem, device: Device, *, name: str, began: datetime | None = None) -> Run:
    """A run of that name with this problem, remembered; `began` when its first child was judged before now."""
    run = Run(
        id=name,
        problem_name=problem.name,
        problem=problem.id,
        device=device.fingerprint,
        seed=0,
        settings="{}",
        created=(began or datetime.now(UTC)).isoformat(timespec="milliseconds"),
    )
    archive.add_problem(problem)
    archive.add_run(run)
    return run


def add_birth(archive: Archive, run: Run, kernel: Kernel, *, number: int, note: str) -> None:
    """Record a child as an attempt, before it is judged."""
    birth = Birth(
        run=run.id,
        generation=0,
        island=0,
        slot=number,
        operator=Operator.SEED,
        state=BirthState.CREATED,
        kernel=kernel.id,
        note=note,
    )
    archive.add_birth(birth, kernel=kernel)


def add_all(archive: Archive, run: Run, judged: Iterable[tuple[str, Kernel, Evaluation]]) -> None:
    """Remember children by name, each with its evaluation."""
    for number, (name, kernel, found) in enumerate(judged):
        add_birth(archive, run, kernel, number=number, note=name)
        archive.add_evaluation(found)
