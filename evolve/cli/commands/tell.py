"""`kbevolve tell`: answers to the questions of `kbevolve ask`, into the archive."""

import sys
from dataclasses import replace
from pathlib import Path

import click

from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.configs.text_file import read_text
from kbevolve.evolve.ask_tell.answers import ANONYMOUS, AnswerReport, GivenAnswer, answer, read_answers
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import FILE, archive_option, archive_words, json_line_option
from kbevolve.evolve.cli.render.json import print_json_line
from kbevolve.evolve.cli.render.tables import printable

_TEXT_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)


@click.command(
    epilog="Example: kbevolve tell --question g3/i1/s0/q1 --idea 'Unroll by 8: fewer branches' --code new.py"
)
@click.option("--question", metavar="ID", help="The question, as `kbevolve ask` printed it.")
@click.option("--idea", metavar="TEXT", help='An idea: "TITLE: WHY IT IS FASTER", or JSON as the question asks for it.')
@click.option("--code", type=_TEXT_FILE, metavar="FILE", help="A whole ModelNew file; - reads standard input.")
@click.option("--reply", type=_TEXT_FILE, metavar="FILE", help="A whole answer in text, as a model gives it; or -.")
@click.option("--pass", "passed", is_flag=True, help="No answer: the search goes on without this child.")
@click.option(
    "--answers",
    type=FILE,
    metavar="FILE",
    help="Many answers: JSON objects with question and idea, code, reply or passed, in an array or one per line.",
)
@click.option("--by", metavar="NAME", help=f"Your name; recorded like the name of a model.  [default: {ANONYMOUS}]")
@click.option(
    "--run",
    "which",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run of a question whose ID has no run.  [default: the latest]",
)
@json_line_option
@archive_option
def tell(
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
    """Record answers to a run's questions.

    A question for an idea takes --idea, and --code too if you have it; a question for code takes --code; both take a
    whole --reply. `kbevolve ask` then continues the run and reports the results. The first answer to a question counts;
    later answers, and answers to unknown questions, are refused.
    """
    if question is None and (idea or code or reply or passed):
        raise UsageError("an answer without its question; give --question ID as `kbevolve ask` printed it")
    if (question is None) == (answers is None):
        raise UsageError("give one of these: a --question with its answer, or a file of --answers")
    with Archive(archive_path, create=False) as archive:
        run = archive.runs.get(which) if which else None
        if answers is not None:
            given = read_answers(answers)
        else:
            code_text, reply_text = _text(code, "--code"), _text(reply, "--reply")
            given = [GivenAnswer(question=question or "", idea=idea, code=code_text, reply=reply_text, passed=passed)]
        report = answer(archive, [replace(one, by=by) if by else one for one in given], run)
    _print(report, archive_path, as_json)
    return 1 if report.refused else 0


def _text(file: Path | None, option: str) -> str | None:
    if file is None:
        return None
    if str(file) != "-":
        return read_text(file, option=option, wants="file with the answer")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError:
        raise UsageError(f"standard input is not UTF-8; {option} wants UTF-8 text") from None


def _print(report: AnswerReport, archive_path: Path, as_json: bool) -> None:
    for one in report.refused:
        click.echo(f"kbevolve: {printable(one.question)}: refused: {printable(one.why)}", err=True)
    if as_json:
        print_json_line(report)
        return
    for question in report.taken:
        click.echo(f"{question}: accepted.")
    for question in report.known:
        click.echo(f"{question}: the same answer is recorded already.")
    for run in report.runs:
        click.echo(f"Continue: kbevolve ask --run {run}{archive_words(archive_path)}")
