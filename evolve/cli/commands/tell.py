"""`kbevolve tell`: bring answers to what was asked, and what was judged elsewhere, into the archive."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.ask_tell.answers import ANONYMOUS, AnswerReport, GivenAnswer, answer, read_answers
from kbevolve.evolve.cli.options import archive_option, archive_words
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.runs.import_results import ImportReport, import_results

#: Refused lines that are named one by one; more have the same few reasons.
_NAMED = 20

_TEXT_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command(
    epilog="Example: kbevolve tell --question g3/i1/s0/q1 --idea 'Unroll by 8: fewer branches' --code new.py"
)
@click.argument("results", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--question", metavar="ID", help="The question that is answered, as `kbevolve ask` printed it.")
@click.option("--idea", metavar="TEXT", help='An idea: "TITLE: WHY IT IS FASTER", or JSON as the question wants it.')
@click.option("--code", type=_TEXT_FILE, metavar="FILE", help="A whole ModelNew file; - reads standard input.")
@click.option("--reply", type=_TEXT_FILE, metavar="FILE", help="A whole answer in text, as a model gives it; or -.")
@click.option("--pass", "passed", is_flag=True, help="No answer: nothing comes of this child.")
@click.option(
    "--answers",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Many answers: JSON objects with question and idea, code, reply or passed, in an array or one a line.",
)
@click.option("--by", metavar="NAME", help=f"Who answers; it is kept as a model's name is.  [default: {ANONYMOUS}]")
@click.option(
    "--run",
    "which",
    metavar="RUN",
    help="The run of a question whose ID names none [default: the latest]. With RESULTS: take only what this run could "
    "have found, its problem, precision and device.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, in one line, last on standard output.")
@archive_option
def tell(
    results: Path | None,
    question: str | None,
    idea: str | None,
    code: Path | None,
    reply: Path | None,
    passed: bool,
    answers: Path | None,
    by: str | None,
    which: str | None,
    as_json: bool,
    archive_path: Path,
) -> int:
    """Bring answers to a run's questions, or the findings of `kbevolve evaluate --batch`, into the archive.

    A question that wants an idea takes --idea, and with it --code if the file is there already; one that wants code
    takes --code; either takes a whole --reply. `kbevolve ask` then goes on from there, and says what came of it. The
    first answer to a question counts; what comes late, or was not asked, is refused.

    RESULTS brings verdicts: kernels that a run waits for are not judged again; kernels that the archive does not know
    are kept without a birth. What is there already is not added twice. Lines that are no findings, or none for --run,
    are named and left out; then the exit code is 1, and all the others have been added.
    """
    asked = question is not None
    if not asked and (idea or code or reply or passed):
        raise UsageError("which question is answered? give --question ID as `kbevolve ask` printed it")
    if sum((results is not None, asked, answers is not None)) != 1:
        raise UsageError("give one of these: a file of RESULTS, a --question with its answer, a file of --answers")
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(which) if which else None
        if results is not None:
            return _report_findings(import_results(archive, results, run), results, archive_path, as_json)
        if answers is not None:
            told = read_answers(answers)
        else:
            told = [
                GivenAnswer(question=question or "", idea=idea, code=_text(code), reply=_text(reply), passed=passed)
            ]
        report = answer(archive, [replace(one, by=by) if by else one for one in told], run)
    return _report_answers(report, archive_path, as_json)


def _text(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}; name a file that holds the answer") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file}: not UTF-8 text; name a file that holds the answer") from None


def _report_answers(report: AnswerReport, archive_path: Path, as_json: bool) -> int:
    for one in report.refused:
        click.echo(f"kbevolve: {printable(one.question)}: refused: {printable(one.why)}", err=True)
    if as_json:
        print_json_line(report)
    else:
        for question in report.taken:
            click.echo(f"{question}: taken.")
        for question in report.known:
            click.echo(f"{question}: the same answer is there already.")
        for run in report.runs:
            click.echo(f"Go on: kbevolve ask --run {run}{archive_words(archive_path)}")
    return 1 if report.refused else 0


def _report_findings(told: ImportReport, results: Path, archive_path: Path, as_json: bool) -> int:
    for number, why in told.refused[:_NAMED]:
        click.echo(f"kbevolve: {results}, line {number}: {printable(why)}", err=True)
    if len(told.refused) > _NAMED:
        click.echo(f"kbevolve: {results}: {len(told.refused) - _NAMED} more lines like these", err=True)
    if as_json:
        print_json_line(told)
    else:
        _print_findings(told, results, archive_path)
    return 1 if told.refused else 0


def _print_findings(told: ImportReport, results: Path, archive_path: Path) -> None:
    parts = [f"{told.added} added", f"{told.known} there already"]
    if told.refused:
        parts.append(f"{len(told.refused)} left out")
    click.echo(f"{results}: {', '.join(parts)}.")
    if told.torn:
        click.echo("Its last line was cut short; the batch judges that kernel again when it goes on.")
    if told.without_lineage:
        click.echo(f"{told.without_lineage} of the kernels have no lineage here; they are kept with their evaluation.")
    for run in told.runs:
        count = "some" if len(told.runs) > 1 else str(told.awaited)
        click.echo(f"A run waited for {count} of them: kbevolve resume {run}{archive_words(archive_path)}")
