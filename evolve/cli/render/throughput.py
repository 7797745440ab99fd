"""The throughput of a run on a terminal or in a pipe."""

from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import duration_words, three_digits
from kbevolve.archive.records import BirthState, Verdict
from kbevolve.archive.throughput import BUILD_PHASE, PhaseTime, Throughput
from kbevolve.evolve.cli.render.kernel import print_fields
from kbevolve.evolve.cli.render.tables import Column, print_table

_PHASE_COLUMNS = (
    Column(name="phase", flexible=True),
    Column(name="children", right=True),
    Column(name="mean", right=True),
    Column(name="median", right=True),
    Column(name="p90", right=True),
    Column(name="in all", right=True, least_width=66),
    Column(name="share", right=True),
)
_DEVICE_COLUMNS = (
    Column(name="device", flexible=True),
    Column(name="children", right=True),
    Column(name="busy", right=True),
    Column(name="timed alone", right=True),
    Column(name="longest gap", right=True, least_width=66),
)


def print_throughput(console: Console, throughput: Throughput) -> None:
    """Print counts and rates, then a table of the phases, then one of the devices."""
    print_fields(console, _fields(throughput))
    if not throughput.judged:
        return
    console.print()
    print_table(console, _PHASE_COLUMNS, [_phase_row(phase) for phase in throughput.phases])
    console.print()
    rows = [
        (
            device.device_instance or device.device,
            str(device.children),
            _percent(device.busy),
            _percent(device.alone),
            _seconds(device.longest_gap),
        )
        for device in throughput.devices
    ]
    print_table(console, _DEVICE_COLUMNS, rows)
    for line in (
        "Seconds per child; share: of the seconds of all evaluations.",
        "Busy: share of the wall time with at least one kernel on the device; timed alone: with one kernel in timing",
        "and no other process. Gaps are in seconds, and include contests of champions.",
    ):
        console.print(Text(line, style="dim"), soft_wrap=True)


def _fields(throughput: Throughput) -> dict[str, str | Text]:
    identical = f" ({throughput.identical_binaries} with identical binaries)" if throughput.identical_binaries else ""
    verdicts = ", ".join(
        f"{count} {name.replace('_', ' ')}{identical if name == Verdict.CORRECT.name.lower() else ''}"
        for name, count in throughput.verdicts.items()
    )
    fields: dict[str, str | Text] = {
        "run": f"{throughput.run}, {throughput.problem}",
        "device": throughput.device,
        "kernels": verdicts or "none judged yet",
        "attempts": _attempts(throughput),
    }
    omitted = {"judged in an earlier run": throughput.judged_earlier, "without times": throughput.untimed}
    if any(omitted.values()):
        fields["left out"] = ", ".join(f"{count} {words}" for words, count in omitted.items() if count)
    if throughput.children_per_hour is not None:
        fields["rate"] = Text(f"{throughput.children_per_hour:.0f} children per hour", style="bold")
        pauses = f", and {duration_words(throughput.pauses)} of pauses" if throughput.pauses else ""
        fields["wall time"] = f"{duration_words(throughput.wall)} for {throughput.judged} children{pauses}"
        fields["in parallel"] = f"{three_digits(throughput.side_by_side)} children on average"
        gap = f", {_seconds(throughput.longest_gap)} s at most" if throughput.longest_gap else ""
        fields["idle"] = f"{_percent(throughput.idle)} of the wall time{gap}"
        builds = next((phase for phase in throughput.phases if phase.name == BUILD_PHASE), None)
        if builds:
            fields["builds"] = f"{builds.children}, {_seconds(builds.total)} s in all"
    if throughput.proposing:
        fields["proposing"] = f"{throughput.proposing:.1f} s"
    if throughput.prompt_tokens or throughput.completion_tokens:
        fields["tokens"] = f"{throughput.prompt_tokens:,} sent, {throughput.completion_tokens:,} received"
    return fields


def _attempts(throughput: Throughput) -> str:
    renamed = f" ({throughput.renamed} under other names)" if throughput.renamed else ""
    aside = {
        f"{BirthState.DUPLICATE.value}{renamed}": throughput.duplicates,
        BirthState.NEAR_DUPLICATE.value: throughput.near_duplicates,
        BirthState.NO_CODE.value: throughput.without_code,
        BirthState.EXHAUSTED.value: throughput.exhausted,
    }
    parts = ", ".join(f"{count} {words}" for words, count in aside.items() if count)
    return f"{throughput.births}{f', of which {parts}' if parts else ''}"


def _phase_row(phase: PhaseTime) -> tuple[str, ...]:
    figures = (phase.mean, phase.median, phase.p90, phase.total)
    return (phase.name, str(phase.children), *map(_seconds, figures), _percent(phase.share))


def _percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}" if seconds < 10 else f"{seconds:.1f}"
