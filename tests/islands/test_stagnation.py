import pytest

from kbevolve.islands.stagnation import LEAST_WINDOW, Stage, stage_of, window


@pytest.mark.parametrize(("evaluations", "patience", "expected"), [(100, 0.2, 25), (400, 0.2, 80), (400, 0.0, 0)])
def test_the_window_is_a_share_of_the_run_and_never_short(evaluations: int, patience: float, expected: int) -> None:
    assert window(evaluations, patience) == expected
    assert window(10, 0.2) == LEAST_WINDOW


def test_a_run_explores_goes_back_and_stops() -> None:
    stages = [stage_of(stalled, 25) for stalled in (0, 24, 25, 49, 50, 75, 1000)]
    assert stages == [
        Stage.SEARCHING, Stage.SEARCHING, Stage.EXPLORING, Stage.EXPLORING, Stage.BACKTRACKING, Stage.OVER, Stage.OVER,
    ]  # fmt: skip
    assert stage_of(10**6, 0) is Stage.SEARCHING
