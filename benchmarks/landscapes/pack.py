"""Lines of measurements as one compact file in the documented format, and what such a file holds."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.landscapes.spaces import Space
from kbevolve.evolve.simulation.landscape import ProgramFailure
from kbevolve.evolve.simulation.measured import FORMAT, MeasuredLandscape

#: Digits that are kept of a time; the least noise is some tenths of a percent.
DIGITS = 4


def packed(found: Sequence[Mapping[str, Any]], space: Space, *, about: str) -> str:
    """The file of a space's lines, one configuration a line.

    A timing is a round's ratio times the reference's median over all lines. The declared configuration comes first:
    a search starts there.
    """
    known = {tuple(line["configuration"].values()): line for line in found}
    ordered = [line for one in space.configurations() if (line := known.get(tuple(one.values()))) is not None]
    times = [line["reference_ms"] for line in ordered if line["ratios"]]
    if not times:
        raise SystemExit(f"none of {len(ordered)} configurations of {space.name} was timed; measure more first")
    reference = _rounded(statistics.median(times))
    head = {
        "format": FORMAT,
        "name": space.name,
        "about": about,
        "unit": "ms",
        "reference_ms": reference,
        "niche": list(space.niche),
        "parameters": [[name, [_plain(value) for value in values]] for name, values in space.values.items()],
    }
    entries = [
        [[_plain(value) for value in line["configuration"].values()], _result(line, reference)] for line in ordered
    ]
    rows = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    values = ",\n".join(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in entries)
    return "{" + ",\n".join(rows) + ',\n"values": [\n' + values + "\n]}\n"


def summary(landscape: MeasuredLandscape) -> dict[str, Any]:
    """What a landscape holds: sizes, times, and how far timings of one configuration lie apart."""
    timed = {program: result for program, result in landscape.results.items() if not isinstance(result, ProgramFailure)}
    speedups = sorted(math.exp(landscape.true_value(program) or 0.0) for program in timed)
    spreads = sorted(statistics.stdev(map(math.log, times)) for times in timed.values() if len(times) > 1)
    best = max(timed, key=lambda program: landscape.true_value(program) or -math.inf)
    return {
        "name": landscape.name,
        "configurations": len(landscape.results),
        "errors": round(1 - len(timed) / len(landscape.results), 4),
        "reference_ms": landscape.reference_ms,
        "best": landscape.values(best),
        "best_speedup": round(speedups[-1], 4),
        "median_speedup": round(statistics.median(speedups), 4),
        "start_speedup": round(math.exp(landscape.true_value(landscape.start()[0]) or 0.0), 4),
        "within_2_percent_of_best": sum(speedup > 0.98 * speedups[-1] for speedup in speedups),
        "niches": len({landscape.niche(program) for program in timed}),
        "spread_percent": [round(100 * spreads[len(spreads) * at // 100], 3) for at in (10, 50, 90)] if spreads else [],
        "signatures": sorted({one.signature for one in landscape.results.values() if isinstance(one, ProgramFailure)}),
    }


def _result(line: Mapping[str, Any], reference: float) -> list[float] | str:
    if line["ratios"]:
        return [_rounded(reference * ratio) for ratio in line["ratios"]]
    first = (line["message"].strip().splitlines() or ["no message"])[0]
    return f"{line['verdict']}: {first}"


def _rounded(milliseconds: float) -> float:
    return float(f"{milliseconds:.{DIGITS}g}")


def _plain(word: str) -> int | str:
    return int(word) if word.lstrip("-").isdigit() else word
