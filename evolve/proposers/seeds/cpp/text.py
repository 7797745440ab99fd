"""The text of C++ functions."""

from collections.abc import Mapping, Sequence

from kbevolve.evolve.proposers.seeds.cpp.chains import Function


def nested(head: str, body: Sequence[str]) -> list[str]:
    """Lines of a call whose last argument is a lambda: ``head { body });``."""
    return [f"{head} {{", *(f"  {line}" for line in body), "});"]


def function(
    name: str,
    *,
    note: str,
    reads: Mapping[str, str],
    writes: Mapping[str, str],
    body: Sequence[str],
    regions: tuple[str, ...],
    needs: tuple[str, ...] = (),
    before: Sequence[str] = (),
) -> Function:
    """A function of a file.

    Args:
        name: its name.
        note: what it computes, for the comment above it.
        reads: parameter -> value, in order.
        writes: likewise.
        body: its statements.
        regions: that it computes.
        needs: template files.
        before: lines between the comment and the function.
    """
    parameters = ", ".join(
        [f"const float* {one}" for one in reads] + [f"float* {one}" for one in writes] + ["int threads"]
    )
    lines = [f"// {note}", *before, f'extern "C" void {name}({parameters}) {{', *(f"  {line}" for line in body), "}"]
    return Function(
        name=name,
        text="\n".join(lines),
        reads=tuple(reads.values()),
        writes=tuple(writes.values()),
        regions=regions,
        needs=needs,
    )
