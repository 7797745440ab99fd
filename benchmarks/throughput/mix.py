"""The mix: 60 children, the same for ever, of every kind and every fate on each of four problems."""

from collections.abc import Iterable, Sequence

from benchmarks.throughput.child import Child, Fate, Kind
from benchmarks.throughput.kernels import gemm, layernorm, matmul, small, softmax

_FAMILIES = (matmul.FAMILY, softmax.FAMILY, layernorm.FAMILY, gemm.FAMILY)


def children() -> tuple[Child, ...]:
    """All 60, problem by problem."""
    return tuple(child for family in _FAMILIES for child in family.children())


def small_children() -> tuple[Child, ...]:
    """Twelve that need no GPU."""
    return tuple(child for family in small.FAMILIES for child in family.children())


def stratum(child: Child) -> tuple[Kind, Fate]:
    """What a child has in common with those that cost about as much to evaluate."""
    return child.kind, child.fate


def sample(mix: Sequence[Child]) -> tuple[Child, ...]:
    """One child of each stratum, the problems in turn: a sample for when there is no time for the whole mix."""
    names = list(dict.fromkeys(child.problem for child in mix))
    chosen = []
    for number, one in enumerate(dict.fromkeys(map(stratum, mix))):
        members = [child for child in mix if stratum(child) == one]
        # The next problem for each stratum, and one further for each kind, so that no kind keeps to one problem.
        wanted = names[(number + number // len(Fate)) % len(names)]
        chosen.append(next((child for child in members if child.problem == wanted), members[0]))
    return tuple(chosen)


def table(mix: Iterable[Child]) -> str:
    """The manifest in Markdown: every child with the verdict that it must get."""
    rows = ["| child | problem | kind | fate | verdict | what it is |", "|---|---|---|---|---|---|"]
    rows += [
        f"| {child.name} | {child.problem} | {child.kind} | {child.fate} | {child.verdict.name} | {child.summary} |"
        for child in mix
    ]
    return "\n".join(rows) + "\n"
