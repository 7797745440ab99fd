"""`kbevolve archive pack` and `kbevolve archive merge`: an archive, or some of its runs, carried elsewhere."""

import os
from contextlib import ExitStack
from pathlib import Path

import click

from kbevolve.archive.formatting import counted, size_words
from kbevolve.archive.merging import Merged
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.completion import complete_runs
from kbevolve.evolve.cli.options import FILE, archive_option, json_option
from kbevolve.evolve.cli.render.json import print_json


@click.command(short_help="Write one compact file to send.", epilog="Example: kbevolve archive pack --run latest")
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_runs,
    help="Only this run; again for several.  [default: all]",
)
@click.option("-o", "--output", type=FILE, metavar="FILE", help="The file to write.  [default: packed.db]")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_option
@archive_option
def pack(run_ids: tuple[str, ...], output: Path | None, force: bool, as_json: bool, archive_path: Path) -> None:
    """Write the archive, or some runs with all that they need, as one compact file without unused room.

    The archive is only read, also while a run goes on. FILE is an archive like any other: every command takes it with
    --archive, and `kbevolve archive merge FILE` adds it to another one.
    """
    file = output or Path("packed.db")
    if file.exists() and not force:
        raise UsageError(f"{file} is there already; name another file with -o, or overwrite it with --force")
    if file.exists() and file.samefile(archive_path):
        raise UsageError(f"{file} is the archive itself; name another file with -o")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {file.parent}; make it first: mkdir -p {file.parent}")
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with Archive(archive_path, read_only=True) as store:
            runs = [store.runs.get(one).id for one in run_ids]
            if runs:
                with Archive(":memory:") as chosen:
                    chosen.merge(store, runs)
                    chosen.pack(beside)
            else:
                store.pack(beside)
        before = _size(archive_path)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
    with Archive(file, read_only=True) as written:
        count = len(written.runs.summaries())
    size = file.stat().st_size
    if as_json:
        print_json({"file": file, "runs": count, "bytes": size, "bytes_before": before})
    else:
        words = "" if runs else f", {size_words(before)} before"
        click.echo(f"Wrote {file}: {counted(count, 'run')}, {size_words(size)}{words}.")


@click.command(short_help="Add other archives to this one.", epilog="Example: kbevolve archive merge packed.db")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@json_option
@archive_option
def merge(files: tuple[Path, ...], as_json: bool, archive_path: Path) -> None:
    """Add the runs, kernels and evaluations of other archives to this one, which is made if it is not there.

    The same kernel, evaluation and run are there once: merging again adds nothing, a later copy of a run adds what is
    new. A run that went on in both archives separately is refused. Each FILE is added as a whole or not at all.
    """
    with ExitStack() as opened:
        others = [(file, opened.enter_context(Archive(file, read_only=True))) for file in files]
        for file in files:
            if archive_path.exists() and file.samefile(archive_path):
                raise UsageError(f"{file} is the archive itself; --archive names the one that is added to")
        store = opened.enter_context(Archive(archive_path))
        merged = []
        for file, other in others:
            merged.append((file, store.merge(other)))
            if not as_json:
                click.echo(f"{file}: {_words(merged[-1][1])}.")
    if as_json:
        print_json([{"file": file, "added": added} for file, added in merged])


def _size(path: Path) -> int:
    """Bytes of an archive, with the log of a run that goes on."""
    log = Path(f"{path}-wal")
    return path.stat().st_size + (log.stat().st_size if log.exists() else 0)


def _words(added: Merged) -> str:
    if not added:
        return "nothing new"
    counts = {
        "run": added.runs, "attempt": added.attempts, "kernel": added.kernels, "evaluation": added.evaluations,
        "confirmation": added.confirmations,
    }  # fmt: skip
    return f"added {', '.join(counted(count, name) for name, count in counts.items() if count)}"
