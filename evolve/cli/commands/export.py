"""`kbevolve export`: write a kernel, measured again, in one of several formats; or every birth as a data set."""

from collections.abc import Sequence
from pathlib import Path

import click

from kbevolve.archive.formatting import as_times, counted, over_eager, speedup_words, three_digits, time_words
from kbevolve.archive.records import Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError, UsageError
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evolve.cli.commands.verify import verified_facts
from kbevolve.evolve.cli.completion import complete_kernels, complete_problems, complete_runs
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.settings_options import device_option
from kbevolve.evolve.exports.dataset import check_dataset, write_dataset
from kbevolve.evolve.exports.export import check_output, check_task, choose, measure_and_write
from kbevolve.evolve.exports.formats import FORMATS

#: The format that is no kernel's.
_DATASET = "dataset"

#: Upper end of an interval over its lower end from which a warning says that the figure means little.
_WIDE = 1.25


@click.command(epilog="Example: kbevolve export --problem L1/matmul -o best.py")
@click.option(
    "--problem",
    "problem_name",
    metavar="NAME",
    shell_complete=complete_problems,
    help="The problem.  [default: the latest run's]",
)
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="PATH", help="The file or folder."
)
@click.option(
    "--kernel",
    "which",
    metavar="ID",
    shell_complete=complete_kernels,
    help="This kernel instead of the best one on the device.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice([*FORMATS, _DATASET]),
    default="modelnew",
    show_default=True,
    help=f"What: {'; '.join(f'{name}, {made.words}' for name, made in FORMATS.items())}; dataset, every attempt.",
)
@click.option("--task", default="", metavar="NAME", help="The leaderboard or definition that the file is for.")
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="ID",
    shell_complete=complete_runs,
    help="This run's best kernel; in a data set only its attempts, and it may be given again.",
)
@click.option("--force", is_flag=True, help="Overwrite PATH.")
@click.option("--even-if-slower", is_flag=True, help="Write a correct kernel whose speedup does not hold, too.")
@json_option
@device_option
@archive_option
def export(
    problem_name: str | None,
    output: Path,
    which: str | None,
    form: str,
    task: str,
    run_ids: tuple[str, ...],
    force: bool,
    even_if_slower: bool,
    as_json: bool,
    device: str | None,
    archive_path: Path,
) -> int:
    """Write the best kernel of a problem as a self-contained ModelNew file, or in another format.

    The kernel is judged again first, and the header has the new measurement. If the kernel is not correct this time, or
    its speedup does not hold, nothing is written and the exit code is 1.

    A data set has every attempt of the archive, of --problem or of --run: prompts, replies, code, verdicts and rewards.
    """
    check_task(task, form)
    if form == _DATASET:
        if which or even_if_slower:
            raise UsageError("a data set has all kernels, and measures none; leave out --kernel and --even-if-slower")
        return _write_dataset(archive_path, run_ids, problem_name, output, force=force, as_json=as_json)
    if len(run_ids) > 1 or (run_ids and (which or problem_name)):
        raise UsageError("name one kernel: with --kernel, or by --run or --problem whose best it is")
    check_output(output, force=force, form=form)
    with Archive(archive_path, create=False) as archive:
        if run_ids:
            which = _best_of(archive, run_ids[0])
        if problem_name is not None:
            archive.runs.latest_of(problem_name)  # a wrong name is reported before torch is imported for the device
        found = find_device(device or "auto")
        claim = choose(archive, problem_name, found, which=which)
        then = claim.measured.speedup if claim.measured else None
        before = f", {over_eager(as_times(then), then)} in its run" if then else ""
        click.echo(f"Measuring {claim.kernel.id} again ({claim.run.problem_name}{before}) on {found.description} …")
        verified = measure_and_write(archive, claim, found, output, form=form, slower=even_if_slower, task=task)
    evaluation = verified.now
    written = not verified.doubt or (even_if_slower and evaluation.verdict is Verdict.CORRECT)
    if as_json:
        print_json({"file": output if written else None, "format": form, **verified_facts(verified)})
        return 0 if written else 1
    if verified.doubt:
        click.echo(f"kbevolve: {'written all the same' if written else 'nothing written'}: {verified.doubt}", err=True)
        if not written:
            return 1
    times = f"{time_words(evaluation.timing.time_ms)}, eager {time_words(evaluation.timing.reference_ms)}"
    speedup = over_eager(speedup_words(evaluation), evaluation.timing.speedup)
    click.echo(f"Wrote {output}: {speedup} ({times}).")
    low, high = evaluation.timing.speedup_low, evaluation.timing.speedup_high
    if low and high and high / low > _WIDE:
        click.echo(
            f"The interval is wide: its ends differ by a factor {three_digits(high / low)}. Do not trust the speedup; "
            "on a quiet machine, --force writes the file again.",
            err=True,
        )
    return 0


def _best_of(archive: Archive, which: str) -> str:
    """Id of a run's best kernel."""
    run = archive.runs.get(which)
    best = archive.runs.summary(run).best_kernel
    if best is None:
        raise ArchiveError(f"run {run.id} has no correct kernel yet")
    return best


def _write_dataset(
    archive_path: Path, run_ids: Sequence[str], problem: str | None, output: Path, *, force: bool, as_json: bool
) -> int:
    check_dataset(output)
    check_output(output, force=force, form=_DATASET)
    with Archive(archive_path, read_only=True) as archive:
        newest = archive.runs.latest_of(problem) if problem else None
        runs = [archive.runs.get(one) for one in run_ids] or [one.run for one in reversed(archive.runs.summaries())]
        runs = [run for run in runs if newest is None or run.problem_name == newest.problem_name]
        count = write_dataset(archive, runs, output)
    if as_json:
        print_json({"file": output, "format": _DATASET, "births": count, "runs": [run.id for run in runs]})
        return 0
    click.echo(f"Wrote {output}: {counted(count, 'attempt')} of {counted(len(runs), 'run')}.")
    return 0
