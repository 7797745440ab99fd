"""Few processes of a machine start on a GPU's driver at once."""

import tempfile
import threading
import time
from pathlib import Path

import pytest

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device import lock


@pytest.fixture(autouse=True)
def two_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(lock, "_TURNS", {"attach": 2, "context": 1})


def test_no_more_have_a_turn_than_there_are() -> None:
    now, most, guard = [0], [0], threading.Lock()

    def start() -> None:
        with lock.start_turn("attach", threading.Event()):
            with guard:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.03)
            with guard:
                now[0] -= 1

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [2]


def test_each_stage_has_turns_of_its_own() -> None:
    never = threading.Event()
    with lock.start_turn("context", never), lock.start_turn("attach", never), lock.start_turn("attach", never):
        pass


def test_a_pool_that_ends_waits_for_no_turn() -> None:
    ended = threading.Event()
    with lock.start_turn("context", ended):
        threading.Timer(0.05, ended.set).start()
        with pytest.raises(EvaluatorError, match="closed"), lock.start_turn("context", ended):
            raise AssertionError("there was no turn left")
