"""The command `kbevolve`: finds the command's file only when it is asked for, and turns errors into one line.

Nothing heavy is imported here, so that `kbevolve --help` answers at once.
"""

import importlib
import sys
import traceback
from typing import Any

import click

from kbevolve import __version__
from kbevolve.configs.errors import KBEvolveError, UsageError, nearest

#: Command -> (where it is, one line for `--help`). The line is repeated here so that help imports no command.
COMMANDS = {
    "run": ("kbevolve.evolve.cli.commands.run:run", "Evolve kernels for a problem."),
    "resume": ("kbevolve.evolve.cli.commands.run:resume", "Go on with a run that was interrupted."),
    "ask": ("kbevolve.evolve.cli.commands.ask:ask", "Say what a run asks next, of people and agents."),
    "evaluate": ("kbevolve.evolve.cli.commands.evaluate:evaluate", "Judge one kernel file, or a folder of them."),
    "tell": (
        "kbevolve.evolve.cli.commands.tell:tell",
        "Bring answers, or what was judged elsewhere, into the archive.",
    ),
    "mcp": ("kbevolve.evolve.cli.commands.mcp:mcp", "Serve coding agents: ask, tell, evaluate, lineage, export."),
    "profile": ("kbevolve.evolve.cli.commands.profile:profile", "Say where a kernel's time goes."),
    "export": ("kbevolve.evolve.cli.commands.export:export", "Write the best kernel as a ModelNew file."),
    "archive": (
        "kbevolve.evolve.cli.commands.archive:archive",
        "Look into the archive: ls, show, lineage, diff, stats.",
    ),
    "ideas": ("kbevolve.evolve.cli.commands.ideas:ideas", "List ideas and techniques with what came of them."),
    "plot": ("kbevolve.evolve.cli.commands.plot:plot", "Draw best-so-far over the children."),
    "problems": ("kbevolve.evolve.cli.commands.problems:problems", "List and show problems."),
    "compare": ("kbevolve.evolve.cli.commands.compare:compare", "Compare strategies at one budget of evaluations."),
    "bench-search": (
        "kbevolve.evolve.cli.commands.bench_search:bench_search",
        "Compare search laws at equal budget, without a model.",
    ),
    "doctor": ("kbevolve.evolve.cli.commands.doctor:doctor", "Say what was found here: torch, GPU, compilers, LLM."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order a new user meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but an unknown command names the nearest."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise UsageError(f"no command {args[0]!r}. {nearest(args[0], COMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: kbevolve run --problem L1/matmul --generations 50",
)
@click.version_option(__version__, prog_name="kbevolve")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(debug: bool) -> None:
    """Evolutionary search for fast GPU kernels.

    Start with: kbevolve run --problem L1/matmul
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit 0 when it worked, 1 when it failed, 2 when it was asked wrongly."""
    argv = sys.argv[1:] if arguments is None else arguments
    sys.exit(_run(argv, debug="--debug" in argv))


def _run(argv: list[str], *, debug: bool) -> int:
    # --debug is taken anywhere on the line: people add it at the end, after the command failed.
    argv = (["--debug"] if debug else []) + [word for word in argv if word != "--debug"]
    try:
        result: Any = cli.main(argv, prog_name="kbevolve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return 130
    except BrokenPipeError:
        return 0
    except (click.ClickException, KBEvolveError) as error:
        if debug:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        click.echo(f"kbevolve: {message}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"See: {error.ctx.command_path} --help", err=True)
        return 2 if isinstance(error, click.UsageError | UsageError) else 1
    except Exception as error:
        if debug:
            raise
        click.echo(f"kbevolve: {type(error).__name__}: {error} (run again with --debug for the traceback)", err=True)
        return 1
