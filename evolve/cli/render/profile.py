"""A profile: a table of launches, the rates, and the likely bottleneck."""

from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import three_digits
from kbevolve.archive.records import Launch, Profile
from kbevolve.evaluators.analysis.rates import percent
from kbevolve.evolve.cli.render.tables import Column, print_table

_COLUMNS = (
    Column(name="share", right=True),
    Column(name="µs", right=True),
    Column(name="launches", right=True, least_width=70),
    Column(name="registers", right=True, least_width=90),
    Column(name="spilled", right=True, least_width=100),
    Column(name="shared KiB", right=True, least_width=110),
    Column(name="blocks/SM", right=True, least_width=120),
    Column(name="occupancy", right=True, least_width=80),
    Column(name="what ran", flexible=True),
)


def print_profile(console: Console, profile: Profile) -> None:
    """Print the table of launches, if there are any, and the words below it."""
    if profile.launches:
        shown = [index for index in range(len(_COLUMNS)) if _is_filled(profile, index)]
        rows = [_row(launch) for launch in profile.launches]
        print_table(console, [_COLUMNS[index] for index in shown], [[row[index] for index in shown] for row in rows])
        console.print()
    for line in profile_words(profile):
        console.print(Text(line), soft_wrap=True)


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
    if profile.counters:
        lines.append(f"Counters: {', '.join(counter_words(*one) for one in profile.counters.items())}.")
    if profile.bottleneck:
        lines.append(f"{profile.bottleneck[0].upper()}{profile.bottleneck[1:]}.")
    return lines


def counter_words(name: str, value: float) -> str:
    """``DRAM busy 81 %``; counts have no percent sign."""
    return f"{name} {value:.0f}" if name.startswith("registers") else f"{name} {value:.0f} %"


def _row(launch: Launch) -> list[Text | str]:
    return [
        f"{launch.share:.0%}",
        three_digits(launch.microseconds),
        f"{launch.launches:.3g}",
        _plain(launch.registers),
        _plain(launch.spilled),
        "" if launch.shared_memory is None else f"{launch.shared_memory / 1024:.3g}",
        "" if launch.blocks_per_sm is None else f"{launch.blocks_per_sm:.3g}",
        "" if launch.occupancy is None else f"{launch.occupancy:.0%}",
        Text(launch.name, style="dim" if launch.library else ""),
    ]


def _is_filled(profile: Profile, index: int) -> bool:
    """Whether any launch has a value in a column: on a CPU there are no registers."""
    return any(str(_row(launch)[index]) for launch in profile.launches)


def _plain(value: int | None) -> str:
    return "" if value is None else str(value)
