"""The command `kbevolve`: imports a subcommand only when it is called, and shows errors as one line.

Nothing heavy is imported here, so that `kbevolve --help` is immediate.
"""

import importlib
import os
import sys
import threading
import traceback
from time import monotonic
from typing import Any

import click
from click.shell_completion import CompletionItem

from kbevolve import __version__
from kbevolve.configs.errors import KBEvolveError, UsageError, nearest

_THREADS_END_SECONDS = 0.3
#: Options of `kbevolve` itself that are read wherever they are.
_ANYWHERE = ("--debug", "-q", "--quiet", "-v", "--verbose")

#: Command -> (module and function in `commands/`, one line for `--help`). With the lines here, help imports no command.
COMMANDS = {
    "run": ("run:run", "Evolve kernels for a problem."),
    "resume": ("run:resume", "Continue a run."),
    "status": ("status:status", "Show how far a run is."),
    "watch": ("status:watch", "Follow a run from a second terminal."),
    "ask": ("ask:ask", "Show the questions of a run that people and agents answer."),
    "tell": ("tell:tell", "Record answers to the questions of a run."),
    "evaluate": ("evaluate:evaluate", "Judge one kernel file, or a folder of them."),
    "pending": ("exchange:pending", "Write the kernels that wait for a verdict to a folder."),
    "import": ("exchange:import_results", "Import verdicts that another machine found."),
    "mcp": ("mcp:mcp", "Serve coding agents: ask, tell, evaluate, lineage, export."),
    "profile": ("profile:profile", "Show where a kernel's time goes."),
    "verify": ("verify:verify_command", "Measure kernels of the archive again: which speedups hold?"),
    "export": ("export:export", "Write the best kernel, in one of several formats."),
    "archive": ("archive.group:archive", "Look into the archive, keep it in order, carry it elsewhere."),
    "browse": ("browse:browse", "Serve pages about the archive to a browser."),
    "report": ("report:report", "Write a run as one HTML file, or as Markdown."),
    "ideas": ("ideas:ideas", "List ideas and techniques with their gains."),
    "plot": ("plot:plot", "Draw best-so-far over the children."),
    "problems": ("problems:problems", "List, show and check problems."),
    "bench": ("bench:bench", "Score a suite of problems: fast_p and speedups."),
    "compare": ("compare:compare", "Compare strategies at one budget of evaluations."),
    "bench-search": ("bench_search:bench_search", "Compare searchers at equal budget, without a model."),
    "settings": ("settings:settings", "List all settings, and where their values come from."),
    "doctor": ("doctor:doctor", "Show what works here: torch, GPU, compilers, LLM."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Commands in the order of a new user's needs."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """The command, imported now; the error for an unknown one names the nearest."""
        if cmd_name not in COMMANDS:
            raise UsageError(f"no command {cmd_name!r}. {nearest(cmd_name, COMMANDS)}")
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"kbevolve.evolve.cli.commands.{module}"), attribute)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands, without importing them, and options."""
        found = [CompletionItem(name, help=line) for name, (_, line) in COMMANDS.items() if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Example: kbevolve run --problem L1/matmul --generations 50",
)
@click.version_option(__version__, "-V", "--version", prog_name="kbevolve")
@click.option("-q", "--quiet", is_flag=True, help="Print results and errors only.")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each kernel of a run.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def cli(quiet: bool, verbose: bool, debug: bool) -> None:
    """Evolutionary search for fast GPU kernels.

    Start with: kbevolve run --problem L1/matmul
    """
    if quiet and verbose:
        raise UsageError("both --quiet and --verbose: give one of them")


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; exit 0 on success, 1 on failure, 2 on wrong usage."""
    argv = sys.argv[1:] if arguments is None else arguments
    code = _run(argv, debug="--debug" in argv)
    if arguments is None and _has_threads():
        # The process is ours alone. Before 3.14 Python unwinds a daemon thread that wants to run while the interpreter
        # ends, which aborts the process when the thread is in C++, as within torch (CPython issue 87135).
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _has_threads() -> bool:
    """Whether abandoned work still runs; what is about to end gets the time to do so."""
    deadline = monotonic() + _THREADS_END_SECONDS
    daemons = [thread for thread in threading.enumerate() if thread.daemon]
    for thread in daemons:
        thread.join(max(deadline - monotonic(), 0.0))
    return any(thread.is_alive() for thread in daemons)


def _run(argv: list[str], *, debug: bool) -> int:
    # These may be anywhere on the line: people add them at the end, when a command has failed or said too much.
    argv = [word for word in argv if word in _ANYWHERE] + [word for word in argv if word not in _ANYWHERE]
    output = sys.stdout
    try:
        result: Any = cli.main(argv, prog_name="kbevolve", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.exceptions.Abort:
        return 130
    except BrokenPipeError:
        return 0
    except SystemExit as stop:  # a problem's file may call exit(); click does so only when it completes words
        if "_KBEVOLVE_COMPLETE" in os.environ:
            raise
        if sys.stdout is not output:  # click replaces it when the reader, e.g. head, has ended
            return 0
        click.echo(f"kbevolve: the problem's file ended the program (exit code {stop.code}); let it return", err=True)
        return 1
    except (click.ClickException, KBEvolveError) as error:
        if debug:
            traceback.print_exc()
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
        help_itself = message.startswith("Usage: ")  # of a group that was called without a command
        if help_itself:
            click.echo(message)
            return 0
        click.echo(f"kbevolve: {message}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            click.echo(f"See: {error.ctx.command_path} --help", err=True)
        return 2 if isinstance(error, click.UsageError | UsageError) else 1
    except Exception as error:
        if debug:
            raise
        click.echo(f"kbevolve: {type(error).__name__}: {error} (run again with --debug for the traceback)", err=True)
        return 1
