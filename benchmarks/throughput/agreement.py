"""What the two evaluators have in common, and what not: verdicts, speedups, children an hour."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.throughput.child import OUTCOMES, Child, Fate
from benchmarks.throughput.mix import stratum
from kbevolve.archive.records import Verdict

#: Speedups that differ by more than this are listed.
CLOSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast children are judged."""

    #: Children whose seconds are known, and children that the figure is for.
    measured: int
    children: int
    #: Seconds for all `children`; extrapolated where they are more than `measured`.
    seconds: float

    @property
    def per_hour(self) -> float:
        """Children an hour."""
        return 3600 * self.children / self.seconds if self.seconds else 0.0


def recipe_pace(mix: Sequence[Child], theirs: Sequence[Mapping[str, Any]]) -> Pace:
    """The recipe's pace on the whole mix, from those children that were evaluated.

    A child that was not costs what the evaluated ones of its kind and fate cost in the mean, or, where there is none,
    those of its kind; what a child costs there is its build and its calls, which kind and fate decide.
    """
    spent = {line["child"]: line["seconds"] for line in theirs}
    by_stratum, by_kind = defaultdict(list), defaultdict(list)
    for child in mix:
        if child.name in spent:
            by_stratum[stratum(child)].append(spent[child.name])
            by_kind[child.kind].append(spent[child.name])
    seconds = 0.0
    counted = 0
    for child in mix:
        known = [spent[child.name]] if child.name in spent else by_stratum[stratum(child)] or by_kind[child.kind]
        if known:
            seconds += statistics.fmean(known)
            counted += 1
    return Pace(measured=len(spent), children=counted, seconds=seconds)


def verdict_differences(
    mix: Sequence[Child], ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]
) -> tuple[int, list[dict[str, Any]]]:
    """How many verdicts were compared, and those that differ, each with what either side says."""
    judged = {line["child"]: line for line in ours}
    compared, differences = 0, []
    for line in theirs:
        mine = judged.get(line["child"])
        if mine is None:
            continue
        compared += 1
        outcome = OUTCOMES.get(Verdict[mine["verdict"]])
        if outcome is None or outcome.value != line["outcome"]:
            reason = f"ours: {mine['message'] or 'nothing to say'}; recipe: {line.get('note') or 'nothing to say'}"
            differences.append(
                {"child": line["child"], "ours": mine["verdict"], "recipe": line["outcome"], "reason": reason}
            )
    return compared, differences


def unexpected(mix: Sequence[Child], ours: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Children that did not get the verdict of the manifest, or are not as slow as they were made to be."""
    expected = {child.name: child for child in mix}
    found = []
    for line in ours:
        child = expected.get(line["child"])
        if child is None:
            continue
        right = line["verdict"] == child.verdict.name
        slow = child.fate is not Fate.SLOW or "clearly-slow" in line["tags"]
        if not right or not slow:
            found.append(
                {
                    "child": child.name,
                    "expected": child.verdict.name + (" and slow" if child.fate is Fate.SLOW else ""),
                    "ours": line["verdict"],
                    "message": line["message"],
                }
            )
    return found


def speedup_differences(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Both speedups of every child that both find correct, the largest difference first.

    Ours is the median of paired rounds; theirs the mean of 100 calls of the reference over that of the child.
    """
    judged = {line["child"]: line for line in ours if line["speedup"] is not None}
    found = []
    for line in theirs:
        mine = judged.get(line["child"])
        if mine is None or line.get("speedup") is None:
            continue
        found.append(
            {
                "child": line["child"],
                "ours": mine["speedup"],
                "low": mine["speedup_low"],
                "high": mine["speedup_high"],
                "recipe": line["speedup"],
                "difference": line["speedup"] / mine["speedup"] - 1,
                "time_ms": mine["time_ms"],
                "clearly_slow": "clearly-slow" in mine["tags"],
            }
        )
    return sorted(found, key=lambda row: -abs(row["difference"]))
