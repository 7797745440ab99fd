"""`kbevolve ask`: continue a run whose children people and agents write, and print its open questions."""

import json
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, Any

import click

from kbevolve.archive.formatting import as_times, counted, over_eager
from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.ask_tell.ask import ask as ask_run
from kbevolve.evolve.ask_tell.ask import check_askable
from kbevolve.evolve.ask_tell.payload import payload_of
from kbevolve.evolve.cli.completion import complete_problems, complete_runs
from kbevolve.evolve.cli.options import FOLDER, archive_option, archive_words, kernelbench_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import json_output, reserving
from kbevolve.evolve.cli.render.questions import print_questions
from kbevolve.evolve.cli.render.tables import note
from kbevolve.evolve.cli.settings_options import SettingsChoice, settings_options
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.proposers.factory import WRITING
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.pending import batch_command, write_pending
from kbevolve.evolve.runs.session import check_new_run, open_run, settings_of


@click.command(epilog="Example: kbevolve ask --problem L1/softmax -n 4")
@click.option(
    "--run",
    "which",
    metavar="RUN",
    shell_complete=complete_runs,
    help="The run, by its id or the start of it.  [default: latest]",
)
@click.option(
    "--problem",
    "problem_name",
    metavar="NAME",
    shell_complete=complete_problems,
    help="Start a run on this problem instead.",
)
@click.option("-n", "--count", type=click.IntRange(min=0), help="Questions at most.  [default: all that are open]")
@click.option("--new", "fresh", is_flag=True, help="Only questions that were not shown before, to share them out.")
@click.option(
    "--judge/--no-judge",
    default=True,
    help="Judge kernels here; without, they wait for another machine.  [default: judge]",
)
@click.option(
    "--pending",
    type=FOLDER,
    metavar="DIR",
    help="Write the kernels that wait for a verdict there, as `kbevolve pending` does.",
)
@click.option(
    "--prompts",
    type=FOLDER,
    metavar="DIR",
    help="Write each prompt as a text file there; the JSON then has its name only.",
)
@click.option("-o", "--output", type=click.File("w", lazy=True), default="-", metavar="FILE", help="Write it there.")
@click.option("--json", "wants_json", is_flag=True, help="Print JSON on a terminal, too; elsewhere it always is.")
@settings_options
@archive_option
@kernelbench_option
@reserving
def ask(
    which: str | None,
    problem_name: str | None,
    count: int | None,
    fresh: bool,
    judge: bool,
    pending: Path | None,
    prompts: Path | None,
    output: IO[str],
    wants_json: bool,
    choice: SettingsChoice,
    archive_path: Path,
    kernelbench_dir: Path | None,
) -> int:
    """Print the open questions of a run; you or an agent answer them with `kbevolve tell`.

    On a terminal that is a short list; in a pipe or a file, and with --json, it is JSON with the whole prompts.

    The run first continues as far as it can: answers become kernels, and kernels are judged here. Then each open
    question is printed with its id and the messages that a model would receive. The same command later continues from
    there, and each question keeps its id. --run names any run, also one that a model or the tunables started;
    `kbevolve resume` continues it without you. The other options are for a new run, with --problem.
    """
    show = partial(note, Console(stderr=True))
    if problem_name and which:
        raise UsageError(f"both --run {which} and --problem {problem_name}: continue a run, or start one")
    if not problem_name and not choice.is_empty:
        raise UsageError("a run keeps its settings; `kbevolve resume` changes some, --problem NAME starts a new run")
    if models := _models(choice):
        show(f"Questions go to people and agents, not to {models}; `kbevolve run --model NAME` asks a model.")
    new = _new_run(problem_name, choice, kernelbench_dir) if problem_name else None
    with Archive(archive_path, create=new is not None) as archive, interruptible():
        if new is not None:
            problem, settings, devices = new
            run = open_run(archive, problem, devices.device, settings)
        else:
            run, devices = archive.runs.get(which or "latest"), None
            settings = settings_of(run, {})
        asked = ask_run(archive, run, settings, devices=devices, judge=judge, say=show)
        found = payload_of(archive, asked, count=count, fresh=fresh, prompts=prompts)
        _print(found, output, wants_json=wants_json)
        for line in _remarks(run, found, archive_path, pending):
            show(line)
        if pending is not None and (written := write_pending(archive, run, pending)):
            show(f"Wrote {counted(len(written), 'kernel')} to {pending}. On a machine with {run.device}:")
            show(f"  {batch_command(pending)}")
    return INTERRUPTED if asked.interrupted else 0


def _print(found: Mapping[str, Any], output: IO[str], *, wants_json: bool) -> None:
    """A list for a person at a terminal, else JSON."""
    file = (json_output() or sys.stdout) if output.name == "-" else output
    if output.name == "-" and file.isatty() and not wants_json:
        print_questions(Console(file=file), found)
    else:
        click.echo(json.dumps(found, indent=2, allow_nan=False), file=file)


def _models(choice: SettingsChoice) -> str:
    """The models that the command line names; "" for none."""
    several = [one["name"] for one in choice.overrides.get("llm.models") or []]
    return ", ".join(several or filter(None, [choice.overrides.get("llm.model")]))


def _new_run(
    problem_name: str, choice: SettingsChoice, kernelbench_dir: Path | None
) -> tuple[Problem, Settings, JudgeDevices]:
    """The problem, the settings and the devices of a new run, checked before the archive is opened."""
    problem = find_problem(problem_name, kernelbench=kernelbench_dir)
    settings, devices = choice.load({"proposer": "ask"})
    check_askable(settings)
    check_new_run(settings, WRITING)
    return problem, settings, devices


def _news_line(news: dict[str, Any]) -> str:
    """The result of one child."""
    speedup = f", {over_eager(as_times(news['speedup']), news['speedup'])}" if "speedup" in news else ""
    outcome = f"{news['verdict'].replace('_', ' ')}{speedup}" if "verdict" in news else news["state"]
    note = f" ({news['note']})" if "note" in news else ""
    return f"{news['child']}, {news['operator']}: {outcome}{note}"


def _remarks(run: Run, found: Mapping[str, Any], archive_path: Path, pending: Path | None) -> list[str]:
    """The results, and what to do next, for a person."""
    where = archive_words(archive_path)
    lines = [_news_line(one) for one in found["news"]]
    lines.append(f"Run {run.id}: {found['state']}.")
    if found["questions"]:
        first = found["questions"][0]
        idea = ' --idea "TITLE: WHY"' if first["stage"] == "idea" else ""
        lines.append(f"Answer with: kbevolve tell --question {first['question']}{idea} --code FILE{where}")
    if found["waiting"] and pending is None:
        lines.append(f"Kernels wait for a verdict: kbevolve pending DIR --run {run.id}{where}")
    return lines
