"""A profile: a table of launches, the rates, and the likely bottleneck."""

from rich.text import Text

from kbevolve.archive.formatting import three_digits, time_words
from kbevolve.archive.records import Launch, Profile
from kbevolve.evaluators.analysis.rates import percent
from kbevolve.evaluators.feedback.message import counter_words
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.tables import Column, print_table, say

_COLUMNS: tuple[Column[Launch], ...] = (
    Column("share", lambda one: percent(one.share), right=True),
    Column("µs/call", lambda one: three_digits(one.microseconds * one.launches), right=True),
    Column("launches", lambda one: f"{one.launches:.3g}", right=True, least_width=70),
    Column("registers", lambda one: _known(one.registers), right=True, least_width=90),
    Column("spilled", lambda one: _known(one.spilled), right=True, least_width=100),
    Column("shared KiB", lambda one: _known(one.shared_memory, 1024), right=True, least_width=110),
    Column("blocks/SM", lambda one: _known(one.blocks_per_sm), right=True, least_width=120),
    Column(
        "occupancy", lambda one: "" if one.occupancy is None else percent(one.occupancy), right=True, least_width=80
    ),
    Column("what ran", lambda one: Text(one.name, style="dim" if one.library else ""), flexible=True),
)


def print_profile(console: Console, profile: Profile) -> None:
    """Print the table of launches, if there are any, and the words below it."""
    if profile.launches:
        # On a CPU there are no registers.
        filled = [column for column in _COLUMNS if any(column.cell(launch) for launch in profile.launches)]
        print_table(console, filled, profile.launches)
        console.print()
    for line in profile_words(profile):
        say(console, line)


def profile_words(profile: Profile) -> list[str]:
    """Rates, counters and bottleneck, one line each, if known."""
    rates = []
    if profile.roofline_share is not None:
        rates.append(f"{percent(profile.roofline_share)} of the roofline")
    if profile.gigabytes_per_second is not None:
        rates.append(f"{three_digits(profile.gigabytes_per_second)} GB/s")
    if profile.teraflops is not None:
        rates.append(f"{three_digits(profile.teraflops)} TFLOP/s")
    lines = [f"Effective: {', '.join(rates)}."] if rates else []
    if profile.profiled_ms:
        lines.append(
            f"The profiled calls took {time_words(profile.profiled_ms)}; times are scaled to those of the judge."
        )
    if profile.counters:
        lines.append(f"Counters: {', '.join(counter_words(*one) for one in profile.counters.items())}.")
    if profile.bottleneck:
        lines.append(f"{profile.bottleneck[0].upper()}{profile.bottleneck[1:]}.")
    return lines


def _known(value: float | None, unit: int = 1) -> str:
    return "" if value is None else f"{value / unit:.4g}"
