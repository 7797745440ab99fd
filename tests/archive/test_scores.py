"""Scores of a benchmark, against values computed by hand; its figures can be drawn of anything."""

import math
import statistics
from pathlib import Path
from typing import Any

import numpy
import pytest

from kbevolve.archive.report.bench_figures import fast_p_curve, headroom, save_bench_figures, speedup_bars
from kbevolve.archive.report.scores import ProblemResult, fast_p, interval, pass_at_k, score, scores


def result(name: str, speedup: float | None = None, level: str = "1", **facts: Any) -> ProblemResult:
    kernel: dict[str, Any] = {"kernel": "k", "speedup": speedup, "over_default": speedup} if speedup else {}
    return ProblemResult(problem=f"L{level}/{name}", level=level, title=name, **{**kernel, **facts})


SIX = [
    result("a", 4.0, over_best=2.0, precision_class="fp32", floor_share=0.5, eager_floor_share=0.125, evaluations=10),
    result("b", 1.0, over_best=0.5, precision_class="fp32", floor_share=0.25, eager_floor_share=0.25, evaluations=10),
    result("c", 0.5, over_best=0.5, precision_class="tf32", level="2", evaluations=5, dollars=0.5),
    result("d", failure="wrong", level="2", evaluations=5, tokens=7),
    result("e", not_judged="degenerate: zeros pass", flaws=("degenerate",), level="2"),
    result("f", 2.5, over_best=2.0, flaws=("soft",), level="2"),
]


def test_fast_p_counts_all_problems_and_only_what_is_faster_than_p() -> None:
    speedups = [4.0, 1.0, 0.5, None]
    assert [fast_p(speedups, p) for p in (0.0, 0.5, 1.0, 3.9, 4.0)] == [0.75, 0.5, 0.25, 0.25, 0.0]
    assert fast_p([None], 0.0) == 0.0


def test_pass_at_k_is_the_chance_that_one_of_k_is_correct() -> None:
    assert pass_at_k(4, 1, 1) == 0.25
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5), "3 of the 6 pairs hold the correct one"
    assert [pass_at_k(4, 3, 2), pass_at_k(2, 1, 5), pass_at_k(3, 0, 2), pass_at_k(0, 0, 1)] == [1.0, 1.0, 0.0, 0.0]
    two = [result("a", 2.0, evaluations=4, correct=1), result("b", evaluations=4), result("c", not_judged="random")]
    found = scores(two, pass_at=(2, 1))["all"]
    assert (found["pass_1"], found["pass_2"]) == (0.125, 0.25)
    assert "pass_1" not in scores(two)["all"]


def test_the_score_of_all_and_of_the_sound_problems() -> None:
    found = scores(SIX, [0.8])
    every, sound = found["all"], found["without_flawed"]
    assert (every["n"], every["correct"], every["not_judged"]) == (5, 4, 1)
    assert [every[f"fast_{p}"] for p in ("0", "0.8", "1", "2")] == [0.8, 0.6, 0.4, 0.4]
    assert [every[f"fast_{p}_best"] for p in ("0", "0.8", "1", "2")] == [0.8, 0.4, 0.4, 0.0]
    assert every["geomean_eager"] == pytest.approx((4 * 1 * 0.5 * 2.5) ** 0.25)
    assert every["geomean_best"] == pytest.approx(1.0)
    assert every["median_eager"] == 1.75
    assert every["precision_classes"] == {"fp32": 2, "tf32": 1, "unknown": 1}
    assert every["floor_share"] == 0.375
    assert (every["evaluations"], every["tokens"], every["dollars"]) == (30, 7, 0.5)
    assert (sound["n"], sound["correct"], sound["not_judged"], sound["fast_1"]) == (4, 3, 0, 0.25)
    assert list(found["levels"]) == ["1", "2"]
    assert (found["levels"]["1"]["n"], found["levels"]["1"]["fast_1"]) == (2, 0.5)
    assert found["levels"]["1"].keys() == found["levels"]["2"].keys() == every.keys()


def test_a_speedup_that_was_not_measured_makes_no_share_smaller() -> None:
    found = score([result("a", 4.0), result("b", 2.0, over_best=1.5)])
    assert (found["fast_1"], found["fast_1_best"], found["geomean_best"]) == (1.0, None, None)


def test_the_score_of_nothing_is_unknown() -> None:
    for found in (score([]), score(SIX[4:5])):
        assert (found["n"], found["correct"], found["fast_0"], found["geomean_eager"]) == (0, 0, None, None)
    assert score(SIX[3:4])["fast_0"] == 0.0
    assert score([result("a", 2.0, dollars=None)])["dollars"] is None


def test_the_bootstrap_interval_covers_what_it_should() -> None:
    values = [math.exp(x) for x in numpy.random.default_rng(5).normal(0.5, 0.3, size=200)]
    low, high = interval(values, numpy.mean)
    assert low is not None
    assert high is not None
    # The standard error of the mean of 200 logarithms of deviation 0.3 is 0.0212; 95 % are 1.96 of them either way.
    assert math.log(high / low) == pytest.approx(2 * 1.96 * statistics.stdev(map(math.log, values)) / 200**0.5, rel=0.1)
    assert low < statistics.geometric_mean(values) < high
    assert interval(values, numpy.mean) == (low, high), "the same in every call"
    assert interval([1.0, 2.0], numpy.mean) == (None, None)
    assert interval([2.0, 2.0, 2.0], numpy.median) == pytest.approx((2.0, 2.0))


def texts(figure: Any) -> str:
    (axes,) = figure.axes
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    return "\n".join(
        [text.get_text() for text in figure.texts] + legend + [t.get_text() for t in axes.get_xticklabels()]
    )


def test_the_figures_say_what_was_found() -> None:
    judged = [one for one in SIX if not one.not_judged]
    curve, bars, room = (draw(judged, details="a suite") for draw in (fast_p_curve, speedup_bars, headroom))
    assert "40 % of 5 problems faster than eager, 80 % correct\na suite" in texts(curve)
    assert "over the best baseline: fast₁ 40 %" in texts(curve)
    assert "default flags" not in texts(curve), "equal to eager, so it is not drawn again"
    assert "geometric mean 1.50× over eager of 4 correct kernels" in texts(bars)
    assert texts(bars).splitlines()[-5:] == ["a", "f", "b", "c", "d"], "the fastest first"
    assert texts(room).startswith("median share of the floor 38 %")
    assert texts(room).endswith("eager\na\nb")


@pytest.mark.parametrize("results", [SIX, SIX[3:4], SIX[:1], [result(f"p{i}", 0.5 + i / 40) for i in range(60)]])
def test_figures_of_few_and_of_many(results: list[ProblemResult], tmp_path: Path) -> None:
    files = save_bench_figures(results, tmp_path, details="a suite")
    assert {"fast_p.png", "speedups.png"} <= {file.name for file in files}
    assert all(file.stat().st_size > 1000 for file in files)


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    assert save_bench_figures(SIX[4:5], tmp_path, details="") == []
