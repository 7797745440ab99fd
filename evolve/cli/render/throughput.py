"""The throughput of a run on a terminal or in a pipe."""

from rich.text import Text

from kbevolve.archive.formatting import counted, duration_words, percent_words, state_words, three_digits
from kbevolve.archive.records import BirthState, Verdict
from kbevolve.archive.throughput import DeviceUse, PhaseTime, Throughput
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import counts_words
from kbevolve.evolve.cli.render.tables import Column, explain, print_fields, print_table

#: What an evaluation does in each phase.
_PHASES = {
    "lint": "reading the source",
    "device wait": "waiting for it",
    "prepare": "reference, inputs",
    "worker": "starting a process",
    "build": "compiling, importing",
    "memory wait": "waiting for memory",
    "trials": "is it correct?",
    "timing": "timing beside eager",
    "profile": "profiling",
    "cleanup": "ending processes",
    "overhead": "everything else",
}
_PHASE_COLUMNS: tuple[Column[PhaseTime], ...] = (
    Column("phase", lambda one: one.name),
    Column("children", lambda one: one.children, right=True),
    Column("mean", lambda one: _seconds(one.mean), right=True),
    Column("median", lambda one: _seconds(one.median), right=True),
    Column("p90", lambda one: _seconds(one.p90), right=True),
    Column("in all", lambda one: _seconds(one.total), right=True, least_width=66),
    Column("share", lambda one: percent_words(one.share, 1), right=True),
    Column("what", lambda one: _PHASES.get(one.name, ""), flexible=True),
)
_DEVICE_COLUMNS: tuple[Column[DeviceUse], ...] = (
    Column("device", lambda one: one.device_instance or one.device, flexible=True),
    Column("children", lambda one: one.children, right=True),
    Column("busy", lambda one: percent_words(one.busy, 1), right=True),
    Column("timed alone", lambda one: percent_words(one.alone, 1), right=True),
    Column("longest gap", lambda one: _seconds(one.longest_gap), right=True, least_width=66),
)


def print_throughput(console: Console, throughput: Throughput) -> None:
    """Print counts and rates, then a table of the phases, then one of the devices."""
    print_fields(console, _fields(throughput))
    if not throughput.judged:
        return
    console.print()
    print_table(console, _PHASE_COLUMNS, throughput.phases)
    console.print()
    print_table(console, _DEVICE_COLUMNS, throughput.devices)
    explain(
        console,
        "Phases: seconds per child; share: of the seconds of all evaluations. Busy: share of the wall time with at "
        "least one kernel on the device; timed alone: with one kernel in timing and no other process. Gaps are in "
        "seconds, and include contests of champions.",
    )


def _fields(throughput: Throughput) -> dict[str, str | Text]:
    identical = f" ({throughput.identical_binaries} with identical binaries)" if throughput.identical_binaries else ""
    renamed = f" ({throughput.renamed} under other names)" if throughput.renamed else ""
    verdicts = {
        f"{name.replace('_', ' ')}{identical if name == Verdict.CORRECT.name.lower() else ''}": count
        for name, count in throughput.verdicts.items()
    }
    aside = {
        f"{BirthState.DUPLICATE.value}{renamed}": throughput.duplicates,
        BirthState.NEAR_DUPLICATE.value: throughput.near_duplicates,
        BirthState.NO_CODE.value: throughput.without_code,
        state_words(BirthState.EXHAUSTED): throughput.exhausted,
    }
    of_which = f", of which {counts_words(aside)}" if any(aside.values()) else ""
    fields: dict[str, str | Text] = {
        "run": f"{throughput.run}, {throughput.problem}",
        "device": throughput.device,
        "kernels": counts_words(verdicts) or "none judged yet",
        "attempts": f"{throughput.births}{of_which}",
        "left out": counts_words(
            {"judged in an earlier run": throughput.judged_earlier, "without times": throughput.untimed}
        ),
    }
    if throughput.children_per_hour is not None:
        children = counted(throughput.judged, "child", "children")
        pauses = f", and {duration_words(throughput.pauses)} of pauses" if throughput.pauses else ""
        gap = f", {_seconds(throughput.longest_gap)} s at most" if throughput.longest_gap else ""
        fields |= {
            "rate": Text(f"{throughput.children_per_hour:.0f} children per hour", style="bold"),
            "wall time": f"{duration_words(throughput.wall)} for {children}{pauses}",
            "sessions": _sessions(throughput),
            "in parallel": f"{three_digits(throughput.side_by_side)} children on average",
            "idle": f"{percent_words(throughput.idle, 1)} of the wall time{gap}",
        }
    sent, received = throughput.prompt_tokens, throughput.completion_tokens
    return fields | {
        "proposing": f"{throughput.proposing:.1f} s" if throughput.proposing else "",
        "tokens": f"{sent:,} sent, {received:,} received" if sent or received else "",
    }


def _sessions(throughput: Throughput) -> str:
    """Where the rest of the time went, which no phase has."""
    rest = throughput.sessions - throughput.wall
    if throughput.sessions <= 0 or rest < 0.5:
        return ""
    return (
        f"{duration_words(throughput.sessions)} in all, {duration_words(rest)} of it before the first evaluation and "
        "after the last: starting the judges, contests, baselines"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
