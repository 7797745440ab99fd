"""A problem: a file with `Model`, `get_inputs()` and `get_init_inputs()` (KernelBench's format).

Everything here reads text; nothing imports torch or runs the file.
"""

import ast
import contextlib
import hashlib
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbevolve.configs.errors import ProblemError
from kbevolve.configs.syntax import literal, parse

REQUIRED = ("Model", "get_inputs", "get_init_inputs")
_ARITHMETIC: dict[type[ast.operator], Callable[[int | float, int | float], int | float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem, as text."""

    #: "L1/matmul", "kernelbench:1/19", or the path as it was given: what `--problem` takes.
    name: str
    #: The whole file.
    source: str
    #: Where it was read.
    path: Path
    #: The module constants and the smaller values they take on a CPU; empty when the file states none.
    cpu_sizes: Mapping[str, int | float]
    #: First paragraph of the file's docstring, "" when there is none.
    summary: str

    @property
    def id(self) -> str:
        """Hash of the text, 16 hexadecimal digits."""
        return hashlib.sha256(self.source.encode()).hexdigest()[:16]

    def source_for(self, device_type: str) -> str:
        """The text as it is run on ``"cpu"`` or ``"cuda"``: on a CPU, `cpu_sizes` replace the module constants."""
        return with_constants(self.source, self.cpu_sizes) if device_type == "cpu" else self.source


def parse_problem(source: str, *, name: str, path: Path) -> Problem:
    """Read a problem from its text.

    Raises:
        ProblemError: the text is not Python, or lacks one of `Model`, `get_inputs`, `get_init_inputs`,
            or its CPU_SIZES is not a literal dictionary of module constants.
    """
    try:
        tree = parse(source)
    except SyntaxError as error:
        raise ProblemError(
            f"{path}: line {error.lineno} is not Python ({error.msg}); a problem is a Python file"
        ) from None
    defined = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    missing = [name for name in REQUIRED if name not in defined]
    if missing:
        raise ProblemError(
            f"{path}: no {', '.join(missing)} at the top level; a problem defines class Model(nn.Module), "
            "get_inputs() and get_init_inputs(), as KernelBench's do (see `kbevolve problems show L1/matmul`)"
        )
    constants = _constants(tree)
    cpu_sizes = _cpu_sizes(tree, constants, path)
    summary = (ast.get_docstring(tree) or "").split("\n\n")[0].replace("\n", " ")
    return Problem(name=name, source=source, path=path, cpu_sizes=cpu_sizes, summary=summary)


def with_constants(source: str, values: Mapping[str, int | float]) -> str:
    """The text with module constants (``NAME = number``) set to other values; other names are left alone."""
    if not values:
        return source
    lines = source.split("\n")
    changed = [(node, values[name]) for name, node in _constants(parse(source)).items() if name in values]
    # From right to left, since several may be on one line.
    for node, value in sorted(changed, key=lambda one: -one[0].col_offset):
        row = node.lineno - 1
        # Columns of `ast` count UTF-8 bytes, not characters.
        line = lines[row].encode()
        lines[row] = (line[: node.col_offset] + repr(value).encode() + line[node.end_col_offset :]).decode()
    return "\n".join(lines)


def constants_of(source: str) -> dict[str, int | float]:
    """The module constants of a text by name, in its order: ``N = 64``, ``N = 2 * 32`` and ``H, W = 64, 32``."""
    return {name: _number(node) for name, node in _constants(parse(source)).items()}


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Value nodes of numbers that are assigned to a name in one line at the top level."""
    pairs = [pair for node in tree.body if isinstance(node, ast.Assign) for pair in _assigned(node)]
    found = {}
    for target, value in pairs:
        if isinstance(target, ast.Name) and value.lineno == value.end_lineno:
            with contextlib.suppress(ValueError):
                _number(value)
                found[target.id] = value
    return found


def _assigned(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Targets and values of an assignment, one by one where it unpacks a tuple."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
            yield from zip(targets, values, strict=True)
        case ast.Assign(targets=[target], value=value):
            yield target, value


def _number(node: ast.expr) -> int | float:
    """The value of a number, or of sums, differences and products of numbers.

    Raises:
        ValueError: it is anything else.
    """
    match node:
        case ast.Constant(value=bool()):
            raise ValueError("a truth value is no number")
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            return _ARITHMETIC[type(sign)](_number(left), _number(right))
    raise ValueError(f"{ast.unparse(node)} is no number")


def _cpu_sizes(tree: ast.Module, constants: Mapping[str, ast.expr], path: Path) -> dict[str, int | float]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(target, "id", None) for target in node.targets] == ["CPU_SIZES"]:
            with contextlib.suppress(ValueError):
                sizes = literal(node.value)
                numbers = isinstance(sizes, dict) and all(isinstance(size, int | float) for size in sizes.values())
                if numbers and set(sizes) <= set(constants):
                    return dict(sizes)
            raise ProblemError(
                f"{path}: line {node.lineno}: CPU_SIZES is not a literal dictionary of numbers for module constants "
                '(lines NAME = number); write CPU_SIZES = {"N": 1024}'
            )
    return {}
