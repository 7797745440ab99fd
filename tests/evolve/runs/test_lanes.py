"""Problems side by side in processes of their own: each once, and how they end."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kbevolve.configs.errors import ArchiveError, EvaluatorError
from kbevolve.evaluators.device.devices import Device, find_device
from kbevolve.evolve.runs import lanes
from kbevolve.evolve.runs.lanes import work_side_by_side
from tests.waiting import until

CPU = find_device("cpu")


@dataclass(frozen=True, slots=True)
class Logged:
    """Writes who worked on what, and does what a name says."""

    folder: Path

    @contextmanager
    def __call__(self, device: Device, say: Callable[[str], None]) -> Iterator[Callable[[str], str]]:
        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, interrupt)

        def work(name: str) -> str:
            with (self.folder / "log").open("a") as file:
                file.write(f"{name} {os.getpid()}\n")
            time.sleep(0.3)
            while name == "both" and len(list(self.folder.glob("opened *"))) < 2:
                time.sleep(0.05)
            if name == "slow":
                time.sleep(60.0)
            if name == "dead":
                os._exit(3)
            if name == "archive":
                raise ArchiveError("the disk is full")
            say(f"worked on {name}")
            return "it is too large" if name == "large" else ""

        (self.folder / f"opened {os.getpid()}").touch()
        try:
            yield work
        finally:
            (self.folder / f"closing {os.getpid()}").touch()
            time.sleep(0.3)
            (self.folder / f"closed {os.getpid()}").touch()


def run(folder: Path, *names: str) -> tuple[dict[str, str], list[str]]:
    found: dict[str, str] = {}
    lines: list[str] = []
    work_side_by_side(names, [CPU, CPU], Logged(folder), say=lines.append, done=found.__setitem__)
    return found, lines


def logged(folder: Path) -> list[tuple[str, str]]:
    return [tuple(line.split()) for line in (folder / "log").read_text().splitlines()]  # type: ignore[misc]


@pytest.mark.slow
def test_each_problem_is_done_once_and_both_processes_work(tmp_path: Path) -> None:
    names = ["both", "b", "large", "c", "d", "e"]
    found, lines = run(tmp_path, *names)
    assert found == {name: "it is too large" if name == "large" else "" for name in names}
    assert sorted(lines) == sorted(f"worked on {name}" for name in names)
    assert sorted(name for name, _ in logged(tmp_path)) == sorted(names)
    workers = {worker for _, worker in logged(tmp_path)}
    assert len(workers) == 2
    assert all((tmp_path / f"closed {worker}").exists() for worker in workers)


@pytest.mark.slow
def test_an_error_that_no_other_problem_would_mend_ends_all(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ArchiveError, match="the disk is full"):
        run(tmp_path, "slow", "archive", "never")
    assert time.monotonic() - started < 50.0
    assert "never" not in dict(logged(tmp_path))
    assert len(list(tmp_path.glob("closed *"))) == 2, "the other one ended in order"


@pytest.mark.slow
def test_a_process_that_dies_costs_its_problem_alone(tmp_path: Path) -> None:
    found, _ = run(tmp_path, "dead", "a", "b", "c")
    assert found == {"dead": "the process of cpu died with exit code 3", "a": "", "b": "", "c": ""}


@pytest.mark.slow
def test_where_all_processes_died_that_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EvaluatorError, match="cpu died with exit code 3; the process of cpu died"):
        run(tmp_path, "dead", "dead", "never")
    assert "never" not in dict(logged(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_all_in_order(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> None:
        until(lambda: (tmp_path / "log").exists() and len(logged(tmp_path)) == 2)
        os.kill(os.getpid(), number)
        until(lambda: any(tmp_path.glob("closing *")))
        os.kill(os.getpid(), number)  # `timeout` signals the process and then its group

    monkeypatch.setattr(lanes, "_ONE_INTERRUPTION_SECONDS", 20.0)
    before = signal.signal(number, signal.default_int_handler)  # SIGTERM is as Ctrl-C; background jobs ignore SIGINT
    try:
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, "slow", "slow", "never")
        interrupter.join()
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    assert len(list(tmp_path.glob("closed *"))) == 2
