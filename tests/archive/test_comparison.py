"""Strategies at one budget as numbers: what was reached when, with honest intervals, and what it cost."""

import math
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Kernel, Operator, Run, Verdict
from kbevolve.archive.report.comparison import Track, against, average, checkpoints, reached, track
from kbevolve.archive.report.comparison_figure import save_comparison
from kbevolve.archive.report.curves import curve
from kbevolve.configs.errors import UsageError

RUN = Run(id="r", problem_name="L1/x", problem="p", device="cpu/x", seed=3, settings="{}")


def tracked(*lows: float, seed: int = 0, strategy: str = "s", **facts: Any) -> Track:
    fields: dict[str, Any] = {
        "published": lows[-1], "confirmed": True, "children": 4, "judged": 4, "correct": 3, "duplicates": 1,
        "tokens": {}, "device_seconds": 2.0,
    }  # fmt: skip
    return Track(run=f"{strategy}-{seed}", strategy=strategy, seed=seed, best=lows, **fields | facts)


def bred(number: int, low: float | None, **facts: Any) -> tuple[Birth, Evaluation]:
    kernel = Kernel.from_source(f"class ModelNew: number = {number}\n").id
    fields: dict[str, Any] = {
        "generation": number, "island": 0, "slot": 0, "operator": Operator.MUTATE, "state": BirthState.CREATED,
        "kernel": kernel, "model": "m", "prompt_tokens": 10, "completion_tokens": 5,
    }  # fmt: skip
    found: dict[str, Any] = {"kernel": kernel, "problem": "p", "device": "cpu/x", "precision": "fp32"}
    found["phases"] = {"build": 9.0, "timing": 0.5, "trials": 0.25}
    if low is None:
        evaluation = grouped(Evaluation, **found, verdict=Verdict.WRONG)
    else:
        evaluation = grouped(
            Evaluation, **found, verdict=Verdict.CORRECT, speedup=low + 0.1, speedup_low=low, speedup_high=low + 0.2
        )
    return Birth(run="r", **fields | facts), evaluation


def test_a_track_counts_what_a_run_had_shown_and_what_it_cost() -> None:
    pairs = [
        bred(0, 0.5, operator=Operator.SEED, model="", prompt_tokens=0, completion_tokens=0),
        bred(1, None),
        bred(2, 2.0),
        bred(2, 2.0, generation=3, state=BirthState.DUPLICATE),
        bred(4, 1.5),
    ]
    births = [birth for birth, _ in pairs]
    found = {evaluation.kernel: evaluation for _, evaluation in pairs}
    one = track(curve(RUN, births, found, {}), births, strategy="greedy")
    assert one.best == (0.5, 0.5, 2.0, 2.0)
    assert (one.strategy, one.seed, one.published, one.confirmed) == ("greedy", 3, 2.1, False)
    assert (one.evaluations, one.children, one.judged, one.correct, one.duplicates) == (4, 4, 3, 2, 1)
    assert one.tokens == {"m": (40, 20)}
    assert one.device_seconds == pytest.approx(4 * 0.75)


def test_nothing_is_reached_before_anything_is_correct() -> None:
    births, found = zip(bred(0, None), bred(1, 1.2), strict=True)
    one = track(curve(RUN, births, {each.kernel: each for each in found}, {}), births, strategy="s")
    assert one.best == (None, 1.2)
    assert one.at(1) is None
    assert reached([one, tracked(1.0, 1.0)], 1) is None


def test_a_run_that_ended_early_keeps_what_it_had() -> None:
    assert [tracked(1.0, 2.0).at(count) for count in (1, 2, 50)] == [1.0, 2.0, 2.0]


def test_speedups_are_averaged_as_factors_with_students_interval() -> None:
    found = average([1.0, 2.0, 4.0])
    assert found is not None
    assert found.mean == pytest.approx(2.0)
    assert found.low is not None
    assert found.high is not None
    half = 4.303 * math.log(2) / math.sqrt(3)
    assert (math.log(found.low), math.log(found.high)) == pytest.approx((math.log(2) - half, math.log(2) + half))
    few = average([1.0, 4.0])
    assert few is not None
    assert (few.mean, few.low, few.high) == (pytest.approx(2.0), None, None)
    assert average([]) is None
    many = average([1.0, 2.0] * 40)
    assert many is not None
    assert many.low is not None
    assert many.low < math.sqrt(2) < (many.high or 0.0)


def test_strategies_are_compared_seed_by_seed() -> None:
    ours = [tracked(2.0, seed=0), tracked(20.0, seed=1), tracked(7.0, seed=2)]
    others = [tracked(1.0, seed=0), tracked(10.0, seed=1), tracked(3.5, seed=2), tracked(9.0, seed=3)]
    found = against(ours, others, 1)
    assert found is not None
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0)), "the seeds differ, the ratio does not"
    assert against(ours, [], 1) is None


@pytest.mark.parametrize(("budget", "expected"), [(60, (15, 30, 60)), (300, (75, 150, 300)), (1, (1,)), (3, (1, 3))])
def test_a_comparison_is_read_at_a_quarter_a_half_and_the_end(budget: int, expected: tuple[int, ...]) -> None:
    assert checkpoints(budget) == expected


def test_a_figure_names_every_strategy_and_its_interval(tmp_path: Path) -> None:
    found = {
        "greedy": [tracked(0.9, 1.5, 2.0, seed=seed) for seed in range(3)],
        "best-of-n": [tracked(0.9, 1.1 + seed / 10, seed=seed) for seed in range(3)],
        "refine": [tracked(None, None)],  # type: ignore[arg-type]
    }
    file = tmp_path / "c.svg"
    save_comparison(found, file, problem="L1/x", device="a device", budget=3)
    text = file.read_text()
    assert "L1/x: greedy 2.00×, best-of-n 1.20×" in text
    assert "2.00×, 2.00× to 2.00×" in text
    assert "a device, 3 seeds, 3 evaluations each" in text
    assert ">refine<" not in text, "it has nothing to show"
    again = tmp_path / "d.svg"
    save_comparison(found, again, problem="L1/x", device="a device", budget=3)
    assert again.read_bytes() == file.read_bytes()
    with pytest.raises(UsageError, match="cannot draw"):
        save_comparison(found, tmp_path / "c.gif", problem="L1/x", device="a device", budget=3)


def test_a_comparison_without_anything_correct_is_drawn_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "c.svg"
    save_comparison({"greedy": [tracked(None)]}, file, problem="L1/x", device="d", budget=1)  # type: ignore[arg-type]
    assert "nothing correct yet" in file.read_text()
