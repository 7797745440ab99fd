"""`kbevolve problems`: fetch, list, show and check problems. Only a check and a graph run one and import torch."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from kbevolve.archive.record_json import plain
from kbevolve.configs.catalog import builtin_names, find_problem, kernelbench_names, title_of
from kbevolve.configs.errors import ProblemError, UsageError
from kbevolve.configs.fetch import COMMIT, REPOSITORY, fetch_dataset, fetch_repository, fetched_folder
from kbevolve.configs.flaws import known_flaws
from kbevolve.configs.hardware import data_sheet
from kbevolve.configs.problem import Problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import Precision
from kbevolve.evaluators.graph.records import Graph
from kbevolve.evolve.cli.completion import complete_problems
from kbevolve.evolve.cli.options import FOLDER, json_option, kernelbench_option
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.graph import graph_tree, print_graph
from kbevolve.evolve.cli.render.json import print_json
from kbevolve.evolve.cli.render.kernel import print_source
from kbevolve.evolve.cli.render.problem_card import card_fields
from kbevolve.evolve.cli.render.tables import Column, announce, print_fields, print_table
from kbevolve.evolve.cli.settings_options import device_option

if TYPE_CHECKING:
    from kbevolve.evaluators.graph.measure import MeasuredGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed:
    """A problem of the list."""

    problem: str
    level: int
    #: Whether it has other sizes for a CPU.
    cpu_sizes: bool = False
    #: Its hand-written starting kernels.
    seeds: tuple[str, ...] = ()
    summary: str = ""
    #: Kinds of its known flaws.
    flaws: tuple[str, ...] = ()
    #: Why its file cannot be used; "" if it can.
    malformed: str = ""


_COLUMNS: tuple[Column[_Listed], ...] = (
    Column("problem", lambda one: one.problem),
    # On a narrow terminal the summaries, cut as they are, say more than a column of yes.
    Column("CPU sizes", lambda one: "yes" if one.cpu_sizes else "", least_width=100),
    Column("seeds", lambda one: ",".join(one.seeds)),
    Column("what it computes", lambda one: _summary(one), flexible=True),
)


@click.group(epilog="Example: kbevolve problems ls --level 2")
def problems() -> None:
    """List, show, check and fetch problems; show prompts."""


@problems.command(
    short_help="Fetch the problems of KernelBench.", epilog="Example: kbevolve problems fetch kernelbench"
)
@click.argument("suite", type=click.Choice(["kernelbench"]))
@click.option("--to", "folder", type=FOLDER, metavar="DIR", help="Where to.  [default: kbevolve's cache]")
@click.option("--from", "repository", default=REPOSITORY, show_default=True, metavar="URL", help="The git repository.")
@click.option("--commit", default=COMMIT, show_default=True, help="Which commit; the list of flaws is about this one.")
@click.option("--huggingface", is_flag=True, help="Take the data set instead (pip install 'kbevolve[huggingface]').")
@json_option
def fetch(suite: str, folder: Path | None, repository: str, commit: str, huggingface: bool, as_json: bool) -> None:
    """Fetch the problems of KernelBench, which kbevolve does not come with.

    Every command then finds kernelbench:LEVEL/NUMBER. With --to DIR, name DIR with --kernelbench or KERNELBENCH.
    """
    found = folder or fetched_folder()
    is_new = not found.exists()
    if is_new and huggingface:
        fetch_dataset(found)
    elif is_new:
        fetch_repository(found, repository=repository, commit=commit)
    count = len(kernelbench_names(found))
    if as_json:
        print_json({"suite": suite, "folder": found, "problems": count, "fetched": is_new})
        return
    click.echo(
        f"{count} problems in {found}{'' if is_new else ', which was there; delete it to fetch another commit'}."
    )
    where = f" --kernelbench {shlex.quote(str(found))}" if folder else ""
    click.echo(f"Next: kbevolve problems ls{where} --level 1, kbevolve run --problem kernelbench:1/19{where}")


@problems.command(
    short_help="List the problems.", epilog="Example: kbevolve problems ls --kernelbench ~/KernelBench --level 1"
)
@click.option("--level", type=click.IntRange(min=1), help="Only this level: 1 operators, 2 fused sequences, 3 models.")
@json_option
@kernelbench_option
def ls(level: int | None, as_json: bool, kernelbench_dir: Path | None) -> None:
    """List the built-in problems, and those of a KernelBench checkout when there is one.

    Seeds are the hand-written starting kernels; every run also starts from the reference and torch.compile's kernel.
    Known flaws of KernelBench's problems are named; `problems check` says what they are.
    """
    names = builtin_names() + (kernelbench_names(kernelbench_dir) if kernelbench_dir else [])
    shown = [name for name in names if level is None or _level(name) == level]
    if not shown:
        levels = ", ".join(str(known) for known in sorted({_level(name) for name in names}))
        raise UsageError(f"no problems of level {level}; the levels are {levels}")
    listed = [_listed(name, kernelbench_dir) for name in shown]
    if as_json:
        print_json(listed)
    else:
        print_table(Console(), _COLUMNS, listed)


@problems.command(epilog="Example: kbevolve problems show L1/matmul --device cpu")
@click.argument("name", shell_complete=complete_problems)
@click.option(
    "--device",
    "device_type",
    type=click.Choice(["cpu", "cuda"]),
    default="cuda",
    show_default=True,
    help="The text for this device: on a CPU, CPU_SIZES replace the module constants.",
)
@click.option("--graph", is_flag=True, help="Show the regions of the reference's graph instead, with their times.")
@json_option
@kernelbench_option
def show(name: str, device_type: str, graph: bool, as_json: bool, kernelbench_dir: Path | None) -> None:
    """Show a problem's source, or what it computes.

    NAME is a built-in problem (L1/matmul), a file in KernelBench's format, or kernelbench:LEVEL/NUMBER.

    With --graph the reference is traced, in strict fp32, and cut into regions, each of which one kernel can compute:
    what it reads and computes, its bytes and operations, its time at the roofline, and its time in eager PyTorch where
    this machine has the device.
    """
    problem = find_problem(name, kernelbench=kernelbench_dir)
    if not graph:
        source = problem.source_for(device_type)
        if as_json:
            facts = {"problem": problem.name, "id": problem.id, "path": problem.path, "summary": problem.summary}
            print_json({**facts, "device": device_type, "source": source})
        else:
            print_source(Console(), source)
        return

    from kbevolve.evaluators.graph.process import graph_for

    found = graph_for(problem, device_type, "fp32")
    times = _measured(found, problem, device_type)
    if as_json:
        print_json(graph_tree(times.graph if times else found, times))
    else:
        print_graph(Console(), times.graph if times else found, times)


@problems.command(
    short_help="Check whether kernels can be judged on a problem.",
    epilog="Example: kbevolve problems check L1/softmax --device cpu",
)
@click.argument("name", shell_complete=complete_problems)
@device_option
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="fp32",
    show_default=True,
    help="Precision of the task.",
)
@click.option("--fresh", is_flag=True, help="Ignore the cached result of an earlier check.")
@json_option
@kernelbench_option
def check(
    name: str, device: str | None, precision: str, fresh: bool, as_json: bool, kernelbench_dir: Path | None
) -> None:
    """Check whether kernels can be judged on a problem, and what bounds it.

    Runs the problem's reference some dozen times: does the answer depend on the input, is it the same each time, how
    many bytes and operations does it take, how fast could it be here? `run` and `evaluate` refuse a problem that an
    answer without any work would pass, except with --force. The exit code is 0 for every result.
    """
    problem = find_problem(name, kernelbench=kernelbench_dir)

    from kbevolve.evaluators.analysis.card import card_for
    from kbevolve.evaluators.device.devices import find_device

    found = find_device(device or "auto")
    announce(f"Running the reference of {problem.name} some dozen times on {found.description}")
    card = card_for(problem, found, precision, fresh=fresh)
    flaws = known_flaws(problem)
    if as_json:
        known = [{"kind": flaw.kind, "fill": flaw.fill, "why": flaw.why} for flaw in flaws]
        facts = plain(card) | {"problem_name": problem.name, "degenerate": card.degenerate}
        facts |= {"refused": card.unjudgeable or card.flags.get("degenerate"), "known": known}
        print_json(facts)
        return
    print_fields(
        Console(), {"problem": f"{problem.name}, {precision}", "device": found.description, **card_fields(card, flaws)}
    )


@problems.command(epilog="Example: kbevolve problems prompt L1/softmax --gpu H100")
@click.argument("name", shell_complete=complete_problems)
@click.option(
    "--gpu", required=True, metavar="GPU", help="H100, H200, B200, A100-40GB, A100-80GB, A10G, L40S, L4, T4, MI300X."
)
@click.option(
    "--precision",
    type=click.Choice(get_args(Precision)),
    default="fp32",
    show_default=True,
    help="Precision of the task.",
)
@click.option("--ideas", "count", type=click.IntRange(1, 16), default=4, show_default=True, help="Ideas asked for.")
@json_option
@kernelbench_option
def prompt(name: str, gpu: str, precision: Precision, count: int, as_json: bool, kernelbench_dir: Path | None) -> None:
    """Show the first prompt of a run on a GPU that this machine need not have.

    The GPU is described by its data sheet. A run describes its device as it is measured, and shows measured kernels.
    """
    sheet, problem = data_sheet(gpu), find_problem(name, kernelbench=kernelbench_dir)

    from kbevolve.evolve.proposers.codegen.first_prompt import first_prompt

    texts = dict(zip(("system", "user"), first_prompt(problem, sheet, precision, count=count), strict=True))
    if as_json:
        print_json(texts)
        return
    for title, text in texts.items():
        click.echo(f"----- {title} -----\n\n{text}")


def _measured(graph: Graph, problem: Problem, device_type: str) -> "MeasuredGraph | None":
    """The graph with times; None where this machine has no such device."""
    import torch

    if device_type == "cuda" and not torch.cuda.is_available():
        return None
    from kbevolve.evaluators.analysis.roofline import roofline_of
    from kbevolve.evaluators.device.devices import find_device
    from kbevolve.evaluators.graph.measure import measured

    device = find_device(device_type)
    return measured(graph, problem, device, "fp32", roofline_of(device))


def _level(name: str) -> int:
    """``L1/matmul`` and ``kernelbench:1/19`` are of level 1."""
    return int(name.removeprefix("kernelbench:").removeprefix("L").partition("/")[0])


def _listed(name: str, checkout: Path | None) -> _Listed:
    try:
        problem = find_problem(name, kernelbench=checkout)
    except ProblemError as error:  # one bad file in a checkout hides no other
        return _Listed(problem=name, level=_level(name), malformed=str(error))
    return _Listed(
        problem=problem.name,
        level=_level(name),
        cpu_sizes=bool(problem.cpu_sizes),
        seeds=tuple(path.stem for device_type in ("cpu", "cuda") for path in seed_files(problem.name, device_type)),
        # KernelBench's files have no docstring, but their names say it: 19_ReLU.
        summary=problem.summary.rstrip(".") or title_of(problem.path).replace("_", " "),
        flaws=tuple(dict.fromkeys(flaw.kind for flaw in known_flaws(problem))),
    )


def _summary(one: _Listed) -> str:
    if one.malformed:
        return f"malformed: {one.malformed}"
    return one.summary + (f" (flawed: {', '.join(one.flaws)})" if one.flaws else "")
