"""`kbevolve archive show`: a kernel or a run in full."""

from pathlib import Path

import click

from kbevolve.archive.records import Kernel, Run
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.completion import complete_either
from kbevolve.evolve.cli.options import archive_option, json_option
from kbevolve.evolve.cli.render import kernel as views
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.profile import print_profile
from kbevolve.evolve.cli.render.tables import print_fields


@click.command(
    short_help="Show a kernel or a run in full.", epilog="Example: kbevolve archive show 3f2a --source > kernel.py"
)
@click.argument("which", metavar="KERNEL|RUN", shell_complete=complete_either)
@click.option("--source", "only_source", is_flag=True, help="Only the kernel's source.")
@click.option("--conversation", is_flag=True, help="Also the prompts and replies of the model.")
@json_option
@archive_option
def show(which: str, only_source: bool, conversation: bool, as_json: bool, archive_path: Path) -> None:
    """Show a kernel (attempt, idea, verdict, contests, source) or a run (counts, best kernel, settings).

    Of a run's settings those are shown that differ from the defaults; --json has all of them.
    """
    with Archive(archive_path, read_only=True) as store:
        found = store.find(which)
        if isinstance(found, Run):
            if only_source or conversation:
                raise UsageError(f"{which} is a run; --source and --conversation are for kernels")
            summary = store.runs.summary(found)
            if as_json:
                print_json(summary)
            else:
                print_fields(
                    Console(), views.run_fields(summary, store.runs.tokens(found.id), store.notes.of(found.id))
                )
        elif only_source:
            views.print_source(Console(), found.source)
        else:
            _show_kernel(store, found, conversation=conversation, as_json=as_json)


def _show_kernel(store: Archive, kernel: Kernel, *, conversation: bool, as_json: bool) -> None:
    births, evaluations = store.kernels.births(kernel.id), store.kernels.evaluations(kernel.id)
    confirmations = store.kernels.confirmations(kernel.id)
    ideas = store.runs.ideas(births[0].run) if births else {}
    if as_json:
        idea = ideas.get(births[0].idea or "") if births else None
        facts = {"kernel": kernel, "births": births, "idea": idea, "evaluations": evaluations}
        print_json({**facts, "confirmations": confirmations, "notes": store.notes.of(kernel.id)})
        return
    console = Console()
    problem = store.runs.get(births[0].run).problem_name if births else ""
    print_fields(
        console, views.kernel_fields(kernel, births, ideas, problem) | views.note_fields(store.notes.of(kernel.id))
    )
    for evaluation in evaluations:
        click.echo()
        print_fields(console, views.evaluation_fields(evaluation))
        if evaluation.profile is not None:
            print_profile(console, evaluation.profile)
    for confirmation in confirmations:
        click.echo()
        print_fields(console, views.confirmation_fields(confirmation))
    if conversation:
        for birth in births:
            if birth.prompt:
                click.echo(f"\n---- {birth.id}: prompt to {birth.model}\n{birth.prompt}")
            if birth.reply:
                click.echo(f"\n---- reply\n{birth.reply}")
    click.echo()
    views.print_source(console, kernel.source)
