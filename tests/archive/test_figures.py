"""Curves are right to the number; figures hold what they should and can be drawn of anything."""

import dataclasses
from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Birth, Operator, Verdict
from kbevolve.archive.report.curves import Curve, curve
from kbevolve.archive.report.figures import best_so_far, save_best_so_far
from kbevolve.archive.report.measures import MEASURES, measured
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.configs.prices import Price, Prices
from tests.small_archive import confirmation


def curve_of(sample: Any) -> Curve:
    with Archive(sample.path) as archive:
        ideas = archive.runs.ideas(sample.run.id)
    return curve(sample.run, sample.births, sample.evaluations, ideas)


def texts(figure: Figure) -> str:
    found = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        found += [text.get_text() for text in axes.texts]
        found += [label.get_text() for label in (*axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label)]
        if axes.get_legend() is not None:
            found += [text.get_text() for text in axes.get_legend().get_texts()]
    return "\n".join(found)


def test_the_curve_counts_each_child_once_and_starting_kernels_not(small_archive: Any) -> None:
    drawn = curve_of(small_archive)
    seeds = [point for point in drawn.points if point.birth.operator is Operator.SEED]
    assert [point.count for point in seeds] == [0, 0, 0]
    children = [point.count for point in drawn.points if point.birth.operator is not Operator.SEED]
    assert children == list(range(1, len(small_archive.evaluations) - 3 + 1))
    assert drawn.children == children[-1]
    assert {point.evaluation.kernel for point in drawn.points} == set(small_archive.evaluations)


def test_the_steps_are_the_running_maximum_of_what_was_shown(small_archive: Any) -> None:
    drawn = curve_of(small_archive)
    best, expected = 0.0, []
    for point in drawn.points:
        low = point.evaluation.timing.speedup_low
        if point.evaluation.verdict is Verdict.CORRECT and low is not None and low > best:
            best = low
            expected.append(point.evaluation.kernel)
    assert [step.point.evaluation.kernel for step in drawn.steps] == expected
    assert drawn.best is not None
    assert drawn.best.kernel == small_archive.best
    assert drawn.steps[0].gain is None
    for before, after in zip(drawn.steps, drawn.steps[1:], strict=False):
        assert after.gain == after.point.evaluation.timing.speedup / before.point.evaluation.timing.speedup
    assert {step.words for step in drawn.steps} & {"Keep a block of C in registers", "Unroll the inner loop"}


def test_a_birth_that_is_not_judged_yet_is_left_out(small_archive: Any) -> None:
    run = small_archive.run
    evaluations = dict(list(small_archive.evaluations.items())[:5])
    drawn = curve(run, small_archive.births, evaluations, {})
    assert len(drawn.points) == 5
    assert curve(run, [], {}, {}) == Curve(run=run, points=(), steps=())


def test_the_figure_of_one_run_says_what_happened(small_archive: Any) -> None:
    drawn = curve_of(small_archive)
    figure = best_so_far([drawn], device="A Test Processor")
    words = texts(figure)
    assert drawn.best is not None
    for part in (
        f"L1/matmul: {drawn.best.timing.speedup:#.3g}× the speed of eager",
        "A Test Processor, 2026-11-21",
        f"{drawn.children} children on 3 islands",
        small_archive.run.id,
        "island 0", "island 2",
        "steps of the best",
        "children evaluated", "speedup over eager", "eager",
    ):  # fmt: skip
        assert part in words
    failures = [one.verdict for one in small_archive.evaluations.values() if one.verdict is not Verdict.CORRECT]
    for verdict in set(failures):
        assert f"{verdict.name.lower().replace('_', ' ')} ({failures.count(verdict)})" in words
    stair = max((line for line in figure.axes[0].lines), key=lambda line: len(line.get_xdata()))
    assert list(stair.get_ydata())[-1] == drawn.best.timing.speedup
    assert figure.axes[0].get_yscale() == "log"


@pytest.mark.parametrize("by", list(MEASURES))
def test_the_best_is_drawn_over_what_it_had_cost(small_archive: Any, by: str, tmp_path: Path) -> None:
    price = Price(prompt=10, completion=100)
    began = datetime.fromisoformat(small_archive.run.created).timestamp()
    judged = {
        name: changed(one, started_at=began + 60 * number, seconds=30.0, phases={"timing": 6.0})
        for number, (name, one) in enumerate(small_archive.evaluations.items())
    }
    of_children = curve(small_archive.run, small_archive.births, judged, {})
    over = measured(of_children, small_archive.births, by, Prices(lists=({"test-*": price},)))
    places = [point.count for point in over.points]
    if by != "children":
        assert places == sorted(places), "what was spent never falls"
    assert over.extent == max(places) > 0
    spent = [(birth.prompt_tokens, birth.completion_tokens) for birth in small_archive.births]
    last = max(small_archive.births.index(point.birth) for point in over.points)
    if by == "tokens":
        assert over.extent == sum(map(sum, spent[: last + 1]))
    if by == "dollars":
        assert over.extent == pytest.approx(sum(price.dollars(*one) for one in spent[: last + 1]))
    if by == "device-time":
        assert over.extent == pytest.approx(len(judged) / 10)
    if by == "time":
        assert over.extent == pytest.approx(len(judged) - 0.5)
    figure = best_so_far([over], device="cpu", by=by)
    assert MEASURES[by] in texts(figure)
    assert f"{over.children} children on 3 islands" in texts(figure)
    assert len([line for line in figure.axes[0].lines if line.get_linewidth() == 0.9]) == 3, "the best of each island"
    save_best_so_far([over], tmp_path / "x.png", device="cpu", by=by)


def test_what_was_not_spent_is_no_axis(small_archive: Any) -> None:
    free = [changed(birth, prompt_tokens=0, completion_tokens=0) for birth in small_archive.births]
    with pytest.raises(UsageError, match="has no tokens to draw over; --by children"):
        measured(curve_of(small_archive), free, "tokens", Prices())
    with pytest.raises(UsageError, match="price of model 'test-model' is unknown; draw --by tokens"):
        measured(curve_of(small_archive), small_archive.births, "dollars", Prices())


def test_the_confirmed_speedup_is_marked_beside_the_line(make_archive: Any) -> None:
    sample = make_archive()
    champion = confirmation(sample.run.id, sample.best, speedup=3.21)
    drawn = dataclasses.replace(curve_of(sample), champion=champion)
    axes = best_so_far([drawn], device="d").axes[0]
    (marker,) = (one for one in axes.containers if one.get_label() == "confirmed")
    assert list(marker.lines[0].get_ydata()) == [3.21]
    assert "95 % interval of the best" in texts(axes.figure)


def test_a_narrow_range_is_drawn_on_a_linear_axis(small_archive: Any) -> None:
    drawn = curve_of(small_archive)
    near = [
        dataclasses.replace(point, evaluation=changed(point.evaluation, speedup=1.0 + 0.01 * point.count))
        for point in drawn.points
    ]
    figure = best_so_far([dataclasses.replace(drawn, points=tuple(near))], device="d")
    assert figure.axes[0].get_yscale() == "linear"


@pytest.mark.parametrize(
    "ending", ["svg", *(pytest.param(ending, marks=pytest.mark.slow) for ending in ("png", "pdf"))]
)
@pytest.mark.slow
def test_figures_are_written_and_the_same_twice(small_archive: Any, tmp_path: Path, ending: str) -> None:
    drawn = curve_of(small_archive)
    first, second = tmp_path / f"a.{ending}", tmp_path / f"b.{ending.upper()}"
    for file in (first, second):
        save_best_so_far([drawn], file, device="d")
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size > 10_000
    if ending == "svg":
        assert "children evaluated" in first.read_text()


def test_several_runs_share_a_figure(small_archive: Any, make_archive: Any, tmp_path: Path) -> None:
    other = make_archive("other.db", run_id="second", seed=4)
    curves = [curve_of(small_archive), curve_of(other)]
    words = texts(best_so_far(curves, device="d"))
    for drawn in curves:
        assert drawn.best is not None
        assert f"{drawn.run.id}: {drawn.best.timing.speedup:#.3g}× after {drawn.children} children" in words
    assert "2 runs" in words
    save_best_so_far(curves, tmp_path / "two.png", device="d")


def test_the_headline_is_the_confirmed_number(small_archive: Any) -> None:
    plain = curve_of(small_archive)
    champion = confirmation(small_archive.run.id, small_archive.best, speedup=1.23)
    drawn = dataclasses.replace(plain, champion=champion)
    assert drawn.published == 1.23
    assert "1.23× the speed of eager (confirmed)" in texts(best_so_far([drawn], device="d"))
    assert f"{drawn.run.id}: 1.23× (confirmed) after" in texts(best_so_far([drawn, plain], device="d"))
    assert "confirmed" not in texts(best_so_far([plain], device="d"))


@pytest.mark.slow
def test_anything_can_be_drawn(small_archive: Any, make_archive: Any, tmp_path: Path) -> None:
    run = small_archive.run
    empty = Curve(run=run, points=(), steps=())
    seeds = curve(run, small_archive.births[:3], small_archive.evaluations, {})
    failed = [
        birth for birth in small_archive.births
        if birth.kernel and small_archive.evaluations[birth.kernel].verdict is not Verdict.CORRECT
    ]  # fmt: skip
    only_failures = curve(run, failed, small_archive.evaluations, {})
    crowded = curve_of(make_archive("crowded.db", islands=9, generations=3))
    for number, drawn in enumerate((empty, seeds, only_failures, crowded)):
        save_best_so_far([drawn], tmp_path / f"{number}.png", device="d")
    save_best_so_far([empty, seeds, crowded], tmp_path / "all.png", device="d")
    assert "nothing correct yet" in texts(best_so_far([only_failures], device="d"))


def test_notes_of_any_kind_can_be_drawn(small_archive: Any, tmp_path: Path) -> None:
    def noted(birth: Birth) -> Birth:
        return dataclasses.replace(
            birth, note="cost $1 \\frac{ _x^ $ 漢字 \x00\x1b[2J and\nmore words than fit in a line of the key"
        )

    drawn = curve(small_archive.run, map(noted, small_archive.births), small_archive.evaluations, {})
    save_best_so_far([drawn], tmp_path / "notes.svg", device="d $x_")
    assert "cost $1" in (tmp_path / "notes.svg").read_text()
    ElementTree.parse(tmp_path / "notes.svg")


def test_bad_places_are_one_line(small_archive: Any, tmp_path: Path) -> None:
    drawn = curve_of(small_archive)
    with pytest.raises(UsageError, match=r"cannot draw \.bmp; end it in \.png, \.svg, \.pdf"):
        save_best_so_far([drawn], tmp_path / "x.bmp", device="d")
    with pytest.raises(UsageError, match="without ending"):
        save_best_so_far([drawn], tmp_path / "x", device="d")
    with pytest.raises(ArchiveError, match="No such file or directory; name a file"):
        save_best_so_far([drawn], tmp_path / "none" / "x.png", device="d")
