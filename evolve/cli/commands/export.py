"""`kbevolve export`: write the best kernel as a self-contained ModelNew file, after measuring it again.

Or, with --births, the kernels of a run that nobody has judged yet.
"""

from pathlib import Path

import click

from kbevolve.archive.formatting import as_times, speedup_words, time_words, verdict_words
from kbevolve.archive.records import Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.cli.options import archive_option, archive_words, device_option
from kbevolve.evolve.runs.export import check_output, choose, measure_and_write, plain_judge
from kbevolve.evolve.runs.pending import batch_command, write_pending


@click.command(epilog="Example: kbevolve export --problem L1/matmul -o best.py")
@click.option("--problem", "problem_name", metavar="NAME", help="The problem whose best kernel is written.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="The file to write.")
@click.option(
    "--births",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Instead, write the kernels of a run that wait for a verdict, for `kbevolve evaluate --batch`.",
)
@click.option("--run", "run_id", metavar="RUN", help="With --births: the run.  [default: the latest]")
@click.option("--kernel", "which", metavar="ID", help="This kernel instead of the best one on the device.")
@click.option("--force", is_flag=True, help="Write over FILE if it is there.")
@device_option
@archive_option
def export(
    problem_name: str | None,
    output: Path | None,
    births: Path | None,
    run_id: str | None,
    which: str | None,
    force: bool,
    device: str | None,
    archive_path: Path,
) -> int:
    """Write the best kernel of a problem as a self-contained ModelNew file.

    The kernel is judged again first, and the file's header carries that new measurement. If it is not correct any
    more, nothing is written.

    With --births DIR nothing is judged: DIR gets the kernels of a run that wait for a verdict, its problem and its
    settings, for a machine that cannot reach the archive.
    """
    if births is not None:
        if problem_name or output or which or force or device:
            raise UsageError(
                "--births writes all that wait in a run; leave out --problem, --output, --kernel, --force and --device"
            )
        return _export_births(archive_path, run_id, births)
    if run_id:
        raise UsageError(f"--run {run_id} goes with --births; a kernel of a run is named with --kernel ID")
    if not problem_name or not output:
        raise UsageError("name the problem and the file: kbevolve export --problem L1/matmul -o best.py")
    check_output(output, force=force)
    with Archive(archive_path, create=False) as archive:
        archive.runs.latest_of(problem_name)  # a wrong name is told before torch is imported to find the device
        found = find_device(device or "auto")
        choice = choose(archive, problem_name, found, which=which)
        then = f", {as_times(choice.speedup_then)} eager in its run" if choice.speedup_then else ""
        click.echo(f"Measuring {choice.kernel.id} again ({choice.run.problem_name}{then}) on {found.description} …")
        evaluation = measure_and_write(archive, choice, found, plain_judge, output)
    if evaluation.verdict is not Verdict.CORRECT:
        reason = f": {evaluation.message}" if evaluation.message else ""
        click.echo(f"kbevolve: nothing written: {verdict_words(evaluation.verdict)} this time{reason}", err=True)
        return 1
    times = f"{time_words(evaluation.timing.time_ms)}, eager {time_words(evaluation.timing.reference_ms)}"
    click.echo(f"Wrote {output}: {speedup_words(evaluation)} over eager ({times}).")
    return 0


def _export_births(archive_path: Path, run_id: str | None, folder: Path) -> int:
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(run_id or "latest")
        written = write_pending(archive, run, folder)
    if not written:
        click.echo(f"Every kernel of run {run.id} has its verdict; nothing written.")
        return 0
    where = archive_words(archive_path)
    click.echo(f"Wrote {len(written)} kernels of run {run.id} to {folder}. On a machine with {run.device}:")
    click.echo(f"  {batch_command(folder)}")
    click.echo("and back here:")
    click.echo(f"  kbevolve tell results.jsonl --run {run.id}{where}")
    return 0
