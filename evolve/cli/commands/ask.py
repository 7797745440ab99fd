"""`kbevolve ask`: go on with a run whose children people and agents write, and say what it asks next."""

import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from kbevolve.archive.formatting import as_times
from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.errors import UsageError
from kbevolve.configs.settings import Settings
from kbevolve.evolve.ask_tell.ask import ask as ask_run
from kbevolve.evolve.ask_tell.ask import check_askable
from kbevolve.evolve.ask_tell.payload import AskPayload, payload_of
from kbevolve.evolve.cli.commands.run import overrides_of, settings_options
from kbevolve.evolve.cli.options import archive_option, archive_words, kernelbench_option
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.cli.signals import INTERRUPTED, interruptible
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.pending import batch_command, write_pending
from kbevolve.evolve.runs.session import open_run, settings_of
from kbevolve.evolve.runs.settings import settings_and_devices
from kbevolve.evolve.runs.starts import given_starts
from kbevolve.evolve.search.budget import Budget


@click.command(
    epilog="Example: kbevolve ask --problem L1/softmax -n 4",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--run", "which", metavar="RUN", help="The run to go on with, by its id or the start of it.  [default: latest]"
)
@click.option("--problem", "problem_name", metavar="NAME", help="Begin a run on this problem instead.")
@click.option("-n", "--count", type=click.IntRange(min=0), help="Questions at most.  [default: all that are open]")
@click.option("--new", "fresh", is_flag=True, help="Only questions that nobody was asked yet, for several who ask.")
@click.option(
    "--judge/--no-judge",
    default=True,
    help="Judge kernels here; without, they wait for a machine that does.  [default: judge]",
)
@click.option(
    "--pending",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write the kernels that wait for a verdict there, for `kbevolve evaluate --batch`.",
)
@click.option(
    "--prompts",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each prompt as a text file there, and only its name into the JSON.",
)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write it there.")
@settings_options
@archive_option
@kernelbench_option
def ask(
    which: str | None,
    problem_name: str | None,
    count: int | None,
    fresh: bool,
    judge: bool,
    pending: Path | None,
    prompts: Path | None,
    output: Path | None,
    preset: str | None,
    config: Path | None,
    assignments: tuple[str, ...],
    archive_path: Path,
    kernelbench_dir: Path | None,
    **short: Any,
) -> int:
    """Print as JSON what a run asks next: prompts that you, or an agent, answer with `kbevolve tell`.

    The run first goes on as far as it can by itself: answers become kernels, kernels are judged here, islands breed.
    Then every open question is printed with its id and the messages that a model would be sent. Asking again goes on
    from there and asks nothing under another id. --run takes up any run, also one that a model or the tunables began;
    `kbevolve resume` goes on with it without you. The other options are for a new run, with --problem.
    """
    console = Console(stderr=True)

    def say(line: str) -> None:
        console.print(Text(printable(line), style="dim"), soft_wrap=True)

    given = bool(preset or config or overrides_of(assignments, short))
    if problem_name and which:
        raise UsageError(f"both --run {which} and --problem {problem_name}: go on with a run, or begin one")
    if given and not problem_name:
        raise UsageError(
            "a run keeps its settings; `kbevolve resume` changes some, --problem NAME begins a run with others"
        )
    devices: JudgeDevices | None = None
    settings: Settings | None = None
    if problem_name:
        problem = find_problem(problem_name, kernelbench=kernelbench_dir)
        overrides = {"proposer": "ask", **overrides_of(assignments, short)}
        settings, devices = settings_and_devices(preset=preset, config=config, overrides=overrides)
        check_askable(settings)
        given_starts(settings)
        Budget.of(settings).check(settings)
    with Archive(archive_path, create=problem_name is not None) as archive, interruptible():
        if settings is not None and devices is not None:
            run = open_run(archive, problem, devices.device, settings)
        else:
            run = archive.runs.get(which or "latest")
            settings = settings_of(run, {})
        asked = ask_run(archive, run, settings, devices=devices, judge=judge, say=say)
        found = payload_of(archive, asked, count=count, fresh=fresh, prompts=prompts)
        _write(json.dumps(found, indent=2, allow_nan=False), output)
        for line in _remarks(run, found, archive_path, pending):
            say(line)
        if pending is not None and (written := write_pending(archive, run, pending)):
            say(f"Wrote {len(written)} kernels to {pending}. On a machine with {run.device}:")
            say(f"  {batch_command(pending)}")
    return INTERRUPTED if asked.interrupted else 0


def _write(text: str, output: Path | None) -> None:
    if output is None:
        click.echo(text)
        return
    try:
        output.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}; name a file that you may write: -o FILE") from None


def _told(news: dict[str, Any]) -> str:
    """What became of one child."""
    speedup = f", {as_times(news['speedup'])} over eager" if "speedup" in news else ""
    became = f"{news['verdict'].replace('_', ' ')}{speedup}" if "verdict" in news else news["state"]
    note = f" ({news['note']})" if "note" in news else ""
    return f"{news['child']}, {news['operator']}: {became}{note}"


def _remarks(run: Run, found: AskPayload, archive_path: Path, pending: Path | None) -> list[str]:
    """What to do next, for a person."""
    where = archive_words(archive_path)
    lines = [_told(one) for one in found["news"]]
    lines.append(f"Run {run.id}: {found['state']}.")
    if found["questions"]:
        first = found["questions"][0]
        idea = ' --idea "TITLE: WHY"' if first["stage"] == "idea" else ""
        lines.append(f"Answer with: kbevolve tell --question {first['question']}{idea} --code FILE{where}")
    if found["waiting"] and pending is None:
        lines.append(f"Kernels that wait: kbevolve pending DIR --run {run.id}{where}")
    return lines
