import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.throughput import lines, report, theirs
from benchmarks.throughput.agreement import recipe_pace, speedup_differences, unexpected, verdict_differences
from benchmarks.throughput.child import Child
from benchmarks.throughput.mix import children, small_children
from benchmarks.throughput.problems import problems
from kbevolve.evaluators.device.devices import find_device

SMALL = {child.name: child for child in small_children()}


def judged(child: Child, **facts: Any) -> dict[str, Any]:
    """A line of ours that agrees with the manifest."""
    return {
        "child": child.name,
        "verdict": child.verdict.name,
        "message": "",
        "seconds": 1.0,
        "phases": {"trials": 0.5},
        "speedup": None,
        "speedup_low": None,
        "speedup_high": None,
        "time_ms": None,
        "tags": ["clearly-slow"],
        **facts,
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("softmax-torch-1", "correct"),
        ("softmax-torch-2", "incorrect"),
        ("matmul-fast-3", "failed"),  # its process dies
    ],
)
def test_the_recipe_tells_right_from_wrong(name: str, outcome: str) -> None:
    child = SMALL[name]
    problem = problems(small=True)[child.problem]
    found = theirs.evaluate(child, problem, find_device("cpu"), seconds=60)
    assert found["outcome"] == outcome == child.outcome.value, found
    assert (found.get("speedup") is not None) == (outcome == "correct")
    if outcome == "correct":
        assert found["speedup"] == pytest.approx(found["reference_ms"] / found["time_ms"])
        assert found["seconds"] > sum(found["phases"].values()) > 0


@pytest.mark.slow
def test_what_was_evaluated_is_not_evaluated_again(tmp_path: Path) -> None:
    out = tmp_path / "recipe.jsonl"
    lines.append(out, {"child": "softmax-torch-1", "outcome": "correct", "seconds": 1.0})
    with out.open("a") as file:
        file.write('{"child": "softmax-torch-2", "out')  # cut short by the end of an earlier call
        file.write("\n")
    mix = [SMALL["softmax-torch-1"], SMALL["softmax-torch-3"]]
    device, known = find_device("cpu"), problems(small=True)
    assert theirs.evaluate_all(mix, known, device, out, seconds=0.0) == 1
    assert theirs.evaluate_all(mix, known, device, out, seconds=60.0) == 0
    assert [line["child"] for line in lines.read(out)] == ["softmax-torch-1", "softmax-torch-3"]


def test_what_was_not_evaluated_costs_what_its_stratum_costs() -> None:
    mix = children()
    first = {}
    for child in mix:
        first.setdefault((child.kind, child.fate), child)
    seconds = {child.name: 10.0 * (number + 1) for number, child in enumerate(first.values())}
    pace = recipe_pace(mix, [{"child": name, "seconds": spent} for name, spent in seconds.items()])
    expected = sum(
        seconds[first[child.kind, child.fate].name] for child in mix
    )  # each child costs what the one of its stratum cost
    assert (pace.measured, pace.children, pace.seconds) == (12, 60, expected)
    assert pace.per_hour == pytest.approx(3600 * 60 / expected)


def test_differences_are_found_and_explained() -> None:
    mix = children()
    right, wrong, failing = (
        next(child for child in mix if child.outcome.value == outcome) for outcome in ("correct", "incorrect", "failed")
    )
    ours = [
        judged(right, verdict="REFUSED", message="not accepted: something"),
        judged(wrong),
        judged(failing),
    ]
    theirs_said = [
        {"child": child.name, "outcome": child.outcome.value, "note": "a note"} for child in (right, wrong, failing)
    ]
    compared, differences = verdict_differences(mix, ours, theirs_said)
    assert compared == 3
    assert [row["child"] for row in differences] == [right.name]
    assert "not accepted: something" in differences[0]["reason"]
    assert "a note" in differences[0]["reason"]
    assert [row["child"] for row in unexpected(mix, ours)] == [right.name]


def test_a_slow_child_that_is_not_slow_is_unexpected() -> None:
    mix = children()
    slow = next(child for child in mix if child.fate.value == "slow")
    assert not unexpected(mix, [judged(slow)])
    assert unexpected(mix, [judged(slow, tags=[])])


def test_speedups_are_compared_child_by_child() -> None:
    one, other, third = children()[:3]
    ours = [
        judged(one, speedup=2.0, speedup_low=1.9, speedup_high=2.1, time_ms=1.0, tags=[]),
        judged(other, speedup=1.0, speedup_low=0.9, speedup_high=1.1, time_ms=1.0),
        judged(third),
    ]
    rows = speedup_differences(
        ours, [{"child": one.name, "speedup": 2.02}, {"child": other.name, "speedup": 0.9}, {"child": third.name}]
    )
    assert [(row["child"], round(row["difference"], 3)) for row in rows] == [(other.name, -0.1), (one.name, 0.01)]


def test_the_report_renders_both_sides(tmp_path: Path) -> None:
    mix = children()
    for child in mix:
        correct = child.outcome.value == "correct"
        numbers = {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1, "time_ms": 1.0} if correct else {}
        lines.append(tmp_path / report.OURS, judged(child, **numbers))
        lines.append(
            tmp_path / report.THEIRS,
            {
                "child": child.name,
                "outcome": child.outcome.value,
                "seconds": 60.0,
                "phases": {"build": 50.0},
                **({"speedup": 2.1} if correct else {}),
            },
        )
    run = {
        "run": "a device",
        "width": 4,
        "times": 1,
        "start_seconds": 5.0,
        "preparing_seconds": {"L1/matmul": 35.0},
        "judging_seconds": {"L1/matmul": 80.0},
        "busy_share": 0.5,
    }
    lines.append(tmp_path / report.OURS, run)
    found = json.loads(json.dumps(report.figures(mix, tmp_path)))
    assert found["children_per_hour"] == 60 / 80 * 3600
    assert found["children_per_hour_with_preparation"] == 60 / 120 * 3600
    assert found["recipe"]["children_per_hour"] == 60.0
    assert found["ratio"] == 45.0
    assert found["ratio_with_preparation"] == 30.0
    assert found["verdicts"] == {"compared": 60, "identical": 60, "differences": []}
    assert found["speedups"]["compared"] == 36
    assert found["speedups"]["within_2_percent"] == 0
    text = report.markdown(found)
    assert "| ratio | 45.0x |" in text
    assert "60 of 60 are identical" in text
    assert "+5.0 %" in text
    assert "| GPU busy | 50 % |" in text
