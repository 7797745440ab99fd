"""`kbevolve export`: write the best kernel as a self-contained ModelNew file, with a new measurement."""

from pathlib import Path

import click

from kbevolve.archive.formatting import as_times, over_eager, speedup_words, time_words, verdict_words
from kbevolve.archive.records import Verdict
from kbevolve.archive.store import Archive
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.cli.options import archive_option
from kbevolve.evolve.cli.settings_options import device_option
from kbevolve.evolve.runs.export import check_output, choose, measure_and_write


@click.command(epilog="Example: kbevolve export --problem L1/matmul -o best.py")
@click.option("--problem", "problem_name", required=True, metavar="NAME", help="The problem.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="The file to write."
)
@click.option("--kernel", "which", metavar="ID", help="This kernel instead of the best one on the device.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@device_option
@archive_option
def export(
    problem_name: str, output: Path, which: str | None, force: bool, device: str | None, archive_path: Path
) -> int:
    """Write the best kernel of a problem as a self-contained ModelNew file.

    The kernel is judged again first, and the file's header has the new measurement. If the kernel is not correct this
    time, nothing is written.
    """
    check_output(output, force=force)
    with Archive(archive_path, create=False) as archive:
        archive.runs.latest_of(problem_name)  # a wrong name is reported before torch is imported to find the device
        found = find_device(device or "auto")
        choice = choose(archive, problem_name, found, which=which)
        then = choice.speedup_then
        before = f", {over_eager(as_times(then), then)} in its run" if then else ""
        click.echo(f"Measuring {choice.kernel.id} again ({choice.run.problem_name}{before}) on {found.description} …")
        evaluation = measure_and_write(archive, choice, found, output)
    if evaluation.verdict is not Verdict.CORRECT:
        reason = f": {evaluation.message}" if evaluation.message else ""
        click.echo(f"kbevolve: nothing written: {verdict_words(evaluation.verdict)} this time{reason}", err=True)
        return 1
    times = f"{time_words(evaluation.timing.time_ms)}, eager {time_words(evaluation.timing.reference_ms)}"
    speedup = over_eager(speedup_words(evaluation), evaluation.timing.speedup)
    click.echo(f"Wrote {output}: {speedup} ({times}).")
    return 0
