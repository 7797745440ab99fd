"""`kbevolve export`: write the best kernel as a self-contained ModelNew file, after measuring it again."""

from contextlib import AbstractContextManager
from pathlib import Path

import click

from kbevolve.archive.numbers import as_times
from kbevolve.archive.records import Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.devices import Device, find_device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.exporting import check_output, choose, measure_and_write
from kbevolve.evolve.options import archive_option, device_option, problem_option
from kbevolve.evolve.words import speedup_words, time_words, verdict_words


@click.command(epilog="Example: kbevolve export --problem L1/matmul -o best.py")
@problem_option
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="The file to write."
)
@click.option("--kernel", "which", metavar="ID", help="This kernel instead of the best one on the device.")
@click.option("--force", is_flag=True, help="Write over FILE if it is there.")
@device_option
@archive_option
def export(
    problem_name: str, output: Path, which: str | None, force: bool, device: str | None, archive_path: Path
) -> int:
    """Write the best kernel of a problem as a self-contained ModelNew file.

    The kernel is judged again first, and the file's header carries that new measurement. If it is not correct any
    more, nothing is written.
    """
    check_output(output, force=force)
    with Archive(archive_path, create=False) as archive:
        archive.latest_run_of(problem_name)  # a wrong name is told before torch is imported to find the device
        found = find_device(device or "auto")
        choice = choose(archive, problem_name, found, which=which)
        then = f", {as_times(choice.speedup_then)} eager in its run" if choice.speedup_then else ""
        click.echo(f"Measuring {choice.kernel.id} again ({choice.run.problem_name}{then}) on {found.description} …")
        evaluation = measure_and_write(archive, choice, found, _judge, output)
    if evaluation.verdict is not Verdict.CORRECT:
        reason = f": {evaluation.message}" if evaluation.message else ""
        click.echo(f"kbevolve: nothing written: {verdict_words(evaluation.verdict)} this time{reason}", err=True)
        return 1
    times = f"{time_words(evaluation.time_ms)}, eager {time_words(evaluation.reference_ms)}"
    click.echo(f"Wrote {output}: {speedup_words(evaluation)} over eager ({times}).")
    return 0


def _judge(device: Device, settings: EvaluationSettings) -> AbstractContextManager[Evaluator]:
    from kbevolve.evaluators.judge import Judge  # brings torch

    return Judge(device, settings)
