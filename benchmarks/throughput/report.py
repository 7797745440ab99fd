"""The figures of the benchmark from its files, as one object of JSON and as Markdown."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.throughput import lines
from benchmarks.throughput.agreement import (
    CLOSE,
    Pace,
    recipe_pace,
    speedup_differences,
    unexpected,
    verdict_differences,
)
from benchmarks.throughput.child import Child

#: Files of one measurement in its folder.
OURS, THEIRS = "ours.jsonl", "recipe.jsonl"


def figures(mix: Sequence[Child], folder: Path) -> dict[str, Any]:
    """Everything that was found out, from whatever stages were run so far."""
    lines_of_ours = lines.read(folder / OURS)
    ours = [line for line in lines_of_ours if "child" in line]
    run = next((line for line in lines_of_ours if "run" in line), None)
    theirs = [line for line in lines.read(folder / THEIRS) if line.get("child") in {child.name for child in mix}]
    found: dict[str, Any] = {"children": len(mix)}
    if run is not None:
        found |= _our_pace(len(ours), run)
        found["phases"] = phase_means(mix, ours)
        found["unexpected"] = unexpected(mix, ours)
    if theirs:
        pace = recipe_pace(mix, theirs)
        found["recipe"] = {
            "measured": pace.measured,
            "children": pace.children,
            "extrapolated": pace.measured < pace.children,
            "seconds": round(pace.seconds, 1),
            "children_per_hour": round(pace.per_hour, 1),
            "phases": phase_means(mix, theirs),
        }
        compared, differences = verdict_differences(mix, ours, theirs)
        speedups = speedup_differences(ours, theirs)
        found["verdicts"] = {"compared": compared, "identical": compared - len(differences), "differences": differences}
        found["speedups"] = {
            "compared": len(speedups),
            "within_2_percent": sum(abs(row["difference"]) <= CLOSE for row in speedups),
            # A clearly slow child's timing ends after three rounds, with a wider interval.
            "timed_in_full": sum(not row["clearly_slow"] for row in speedups),
            "in_full_within_2_percent": sum(
                abs(row["difference"]) <= CLOSE and not row["clearly_slow"] for row in speedups
            ),
            "rows": speedups,
        }
        if run is not None and len(ours) == pace.children * run["times"]:
            found["ratio"] = round(found["children_per_hour"] / pace.per_hour, 1)
            found["ratio_with_preparation"] = round(found["children_per_hour_with_preparation"] / pace.per_hour, 1)
    return found


def _our_pace(count: int, run: Mapping[str, Any]) -> dict[str, Any]:
    judging, preparing = sum(run["judging_seconds"].values()), sum(run["preparing_seconds"].values())
    start = run["start_seconds"]
    return {
        "device": run["run"],
        "width": run["width"],
        "times": run["times"],
        "start_seconds": round(start, 1),
        "preparing_seconds": round(preparing, 1),
        "judging_seconds": round(judging, 1),
        "children_per_hour": round(Pace(measured=count, children=count, seconds=judging).per_hour),
        "children_per_hour_with_preparation": round(
            Pace(measured=count, children=count, seconds=start + preparing + judging).per_hour
        ),
        "busy_share": None if run["busy_share"] is None else round(run["busy_share"], 3),
    }


def phase_means(mix: Iterable[Child], found: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Kind and fate -> mean seconds a child by phase, and in all ("total")."""
    children = {child.name: child for child in mix}
    seconds: dict[str, list[Mapping[str, float]]] = defaultdict(list)
    for line in found:
        child = children.get(line["child"])
        if child is not None:
            seconds[f"{child.kind}, {child.fate}"].append({**line["phases"], "total": line["seconds"]})
    means = {}
    for name, rows in seconds.items():
        phases = dict.fromkeys(phase for row in rows for phase in row if phase != "total") | {"total": None}
        means[name] = {phase: round(statistics.fmean(row.get(phase, 0.0) for row in rows), 3) for phase in phases}
    return means


def markdown(found: Mapping[str, Any]) -> str:
    """The same figures as tables."""
    parts = [_pace_table(found)]
    for title, means in (
        ("Seconds a child by phase, ours", found.get("phases")),
        ("Seconds a child by phase, the recipe", found.get("recipe", {}).get("phases")),
    ):
        if means:
            phases = list(dict.fromkeys(phase for row in means.values() for phase in row if phase != "total"))
            rows = [[name, *(row.get(phase, 0.0) for phase in (*phases, "total"))] for name, row in means.items()]
            parts.append(f"**{title}**\n\n" + _table(["kind, fate", *phases, "total"], rows))
    if "verdicts" in found:
        verdicts = found["verdicts"]
        parts.append(f"Verdicts: {verdicts['identical']} of {verdicts['compared']} are identical.")
        if verdicts["differences"]:
            rows = [[row["child"], row["ours"], row["recipe"], _cell(row["reason"])] for row in verdicts["differences"]]
            parts.append(_table(["child", "ours", "recipe", "reason"], rows))
        speedups = found["speedups"]
        parts.append(
            f"Speedups of correct children: {speedups['within_2_percent']} of {speedups['compared']} within 2 %; "
            f"of those that were timed in full {speedups['in_full_within_2_percent']} of {speedups['timed_in_full']}."
        )
        rows = [
            [
                row["child"],
                f"{row['time_ms']:.3f} ms",
                f"{row['ours']:.3f} [{row['low']:.3f}, {row['high']:.3f}]",
                f"{row['recipe']:.3f}",
                f"{100 * row['difference']:+.1f} %",
                "cut short" if row["clearly_slow"] else "",
            ]
            for row in speedups["rows"]
        ]
        parts.append(_table(["child", "time", "ours", "recipe", "difference", "timing"], rows))
    if found.get("unexpected"):
        rows = [[row["child"], row["expected"], row["ours"], _cell(row["message"])] for row in found["unexpected"]]
        parts.append("**Not as the manifest has it**\n\n" + _table(["child", "expected", "ours", "message"], rows))
    return "\n\n".join(parts) + "\n"


def _pace_table(found: Mapping[str, Any]) -> str:
    rows: list[list[Any]] = []
    if "device" in found:
        rows += [
            ["device", found["device"]],
            ["kernels at once", found["width"]],
            ["passes over the mix", found["times"]],
            ["children an hour", found["children_per_hour"]],
            ["with start and preparation of the problems", found["children_per_hour_with_preparation"]],
            ["seconds to start, to prepare, to judge", " / ".join(
                str(found[name]) for name in ("start_seconds", "preparing_seconds", "judging_seconds")
            )],
            ["GPU busy", "not measured" if found["busy_share"] is None else f"{100 * found['busy_share']:.0f} %"],
        ]  # fmt: skip
    if "recipe" in found:
        recipe = found["recipe"]
        basis = f"{recipe['measured']} of {recipe['children']} children evaluated" + (
            ", the others taken as the mean of their kind and fate" if recipe["extrapolated"] else ""
        )
        rows += [["the recipe's children an hour", recipe["children_per_hour"]], ["that rests on", basis]]
    if "ratio" in found:
        rows += [["ratio", f"{found['ratio']}x"], ["ratio with preparation", f"{found['ratio_with_preparation']}x"]]
    return _table(["figure", "value"], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(head + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")[:300]
