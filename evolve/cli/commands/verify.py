"""`kbevolve verify`: measure kernels of the archive again on this device, and say which speedups hold."""

from pathlib import Path
from typing import Any

import click

from kbevolve.archive.formatting import as_times, confirmed_words, counted, speedup_words, verdict_words
from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.load import load_warning
from kbevolve.evolve.cli.options import archive_option, json_line_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import Column, print_table, say
from kbevolve.evolve.cli.settings_options import device_option
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.runs.verification import Claim, Verified, claims_of, verify


@click.command("verify", epilog="Example: kbevolve verify latest --top 3")
@click.argument("names", nargs=-1, metavar="[RUN|KERNEL]...")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Kernels of each run, best first.",
)
@json_line_option
@device_option
@archive_option
def verify_command(names: tuple[str, ...], top: int, as_json: bool, device: str | None, archive_path: Path) -> int:
    """Measure kernels of the archive again on this device, without a model.

    RUN stands for its best kernels; the default is the latest run. The evaluations are added to the archive, and none
    is replaced. A speedup holds if the new interval reaches the old one of this device. On a device without an old one,
    a kernel that was faster than eager elsewhere must not be slower than eager. The exit code is 1 when one does not
    hold.
    """
    console = Console(stderr=True)
    with Archive(archive_path, create=False) as archive, interruptible():
        for name in names or ("latest",):
            archive.find(name)  # a wrong name is reported before torch is imported to find the device
        found = find_device(device or "auto")
        claims = claims_of(archive, names or ("latest",), found, top=top)
        say(console, f"Measuring {counted(len(claims), 'kernel')} again on {found.description} …", "dim")
        if warning := load_warning():
            say(console, warning, "dim")
        done: list[Verified] = []
        interrupted = False
        try:
            for one in verify(archive, claims, found):
                done.append(one)
                say(console, f"{one.claim.kernel.id}: {one.doubt or f'holds, {speedup_words(one.now)}'}", "dim")
        except KeyboardInterrupt:
            interrupted = True
    failed = [one for one in done if one.doubt]
    if as_json:
        counts = {"held": len(done) - len(failed), "of": len(claims)}
        print_json_line({"device": found.fingerprint, **counts, "kernels": [verified_facts(one) for one in done]})
    else:
        print_table(Console(), _COLUMNS, done)
        click.echo(f"{len(done) - len(failed)} of {counted(len(claims), 'speedup')} held on {found.description}.")
    return INTERRUPTED if interrupted else int(bool(failed))


def _before(claim: Claim) -> str:
    if claim.confirmation:
        return confirmed_words(claim.confirmation)
    return _result(claim.then) if claim.then else ""


def _result(evaluation: Evaluation) -> str:
    correct = evaluation.verdict is Verdict.CORRECT
    return speedup_words(evaluation) if correct else verdict_words(evaluation.verdict)


def _elsewhere(claim: Claim) -> str:
    found = {device: one.timing.speedup for device, one in claim.elsewhere.items()}
    return ", ".join(f"{as_times(speedup)} on {device}" for device, speedup in found.items() if speedup is not None)


_COLUMNS: tuple[Column[Verified], ...] = (
    Column("kernel", lambda one: one.claim.kernel.id),
    Column("problem", lambda one: one.claim.run.problem_name, least_width=90),
    Column("before", lambda one: _before(one.claim), right=True),
    Column("now", lambda one: _result(one.now), right=True),
    Column("holds", lambda one: "no" if one.doubt else "yes"),
    Column("on other devices", lambda one: _elsewhere(one.claim), least_width=110, flexible=True),
)


def verified_facts(one: Verified) -> dict[str, Any]:
    """A verified kernel for scripts."""
    claim = one.claim
    names = ("speedup", "speedup_low", "speedup_high", "time_ms", "reference_ms")
    before = {name: getattr(claim.measured, name) for name in names} if claim.measured else None
    return {
        "kernel": claim.kernel.id,
        "problem": claim.run.problem_name,
        "run": claim.run.id,
        "holds": not one.doubt,
        "doubt": one.doubt,
        "verdict": one.now.verdict,
        "confirmed": claim.confirmation is not None,
        "before": before,
        "now": {name: getattr(one.now.timing, name) for name in names},
        "elsewhere": {device: found.timing.speedup for device, found in claim.elsewhere.items()},
    }
