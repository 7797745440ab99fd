"""C++ functions of a file: what they read, make and compute, and their text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class NotCoveredError(Exception):
    """No template computes a region; it stays torch's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A C++ function ``void name(const float* reads…, float* writes…, int threads)``."""

    name: str
    #: The whole function, with the note above it.
    text: str
    #: Values of the graph that it reads and makes, in the order of its parameters.
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    #: The regions that it computes.
    regions: tuple[str, ...]
    #: Template files that it builds on, beside those that all have.
    needs: tuple[str, ...] = ()


def nested(head: str, body: Sequence[str]) -> list[str]:
    """Lines of a call whose last argument is a lambda: ``head { body });``."""
    return [f"{head} {{", *(f"  {line}" for line in body), "});"]


def nested_arguments(head: str, arguments: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a call whose last arguments are lambdas."""
    lines = [f"{head},"]
    for number, argument in enumerate(arguments):
        end = ");" if number == len(arguments) - 1 else ","
        lines += [*(f"    {line}" for line in argument[:-1]), f"    {argument[-1]}{end}"]
    return lines


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
