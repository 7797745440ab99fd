"""A landscape of measured configurations, read from a JSON file (docs/landscapes.md describes the format)."""

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import UsageError, nearest
from kbevolve.evolve.simulation.landscape import Gene, Program, ProgramFailure, ProgramOutcome, niche_key

#: The version of the format that is read and written.
FORMAT = 1
#: What a file must hold, and what it may.
REQUIRED = ("format", "name", "unit", "reference_ms", "parameters", "values")
OPTIONAL = ("about", "niche")
#: Parameters that make the niche where the file names none, and levels of each, as islands have.
AXES = 4
LEVELS = 4
#: What is commonly said that another value of a parameter brings (log): the same of each, for nobody knows.
FAME = 0.1
#: A timing of more milliseconds than this (31 years) is a slip.
LONGEST_MS = 1e12
#: The failure of a configuration that the file does not hold.
NOT_MEASURED = ProgramFailure(verdict=Verdict.REFUSED, signature="not measured")

#: A value of a parameter, as JSON has it.
Value = str | int | float | bool


class MeasuredLandscape:
    """Implements `Landscape` on measured times. Genes: the parameters, each a family of its own."""

    def __init__(
        self,
        *,
        name: str,
        about: str,
        reference_ms: float,
        parameters: Mapping[str, Sequence[Value]],
        results: Mapping[Program, tuple[float, ...] | ProgramFailure],
        niche: Sequence[str] = (),
    ) -> None:
        """A landscape of these measurements.

        Args:
            name: short.
            about: what was measured, where.
            reference_ms: milliseconds of the reference.
            parameters: name -> values, at least one each.
            results: milliseconds of each timed round, or why there are none; the first valid one is the start.
            niche: parameters that make the niche; none for the `AXES` with the fewest values, the switches.
        """
        self.name = name
        self.about = about
        self.reference_ms = reference_ms
        self.parameters = dict(parameters)
        self.results = dict(results)
        self.genes = tuple(Gene(name=name, family=name, choices=len(values)) for name, values in parameters.items())
        names = list(parameters)
        varied = [name for name in names if len(parameters[name]) > 1]
        self.axes = tuple(
            names.index(axis) for axis in (niche or sorted(varied, key=lambda name: len(parameters[name]))[:AXES])
        )

    @cached_property
    def optimum(self) -> float:
        """See `Landscape`."""
        return max(value for program in self.results if (value := self.true_value(program)) is not None)

    def start(self) -> tuple[Program, ...]:
        """The first valid configuration of the file."""
        return (next(program for program in self.results if self.failure(program) is None),)

    def exists(self, program: Program) -> bool:
        """See `Landscape`."""
        return program in self.results

    def failure(self, program: Program) -> ProgramFailure | None:
        """See `Landscape`."""
        result = self.results.get(program, NOT_MEASURED)
        return result if isinstance(result, ProgramFailure) else None

    def true_value(self, program: Program) -> float | None:
        """See `Landscape`: by the median of the timings, which stand for all that could be drawn."""
        result = self.results.get(program, NOT_MEASURED)
        return None if isinstance(result, ProgramFailure) else math.log(self.reference_ms / statistics.median(result))

    def measure(self, program: Program, rng: Random) -> ProgramOutcome:
        """See `Landscape`: as many timings as there are, drawn from them with replacement."""
        result = self.results.get(program, NOT_MEASURED)
        if isinstance(result, ProgramFailure):
            return ProgramOutcome(failure=result)
        return ProgramOutcome(
            log_times=tuple(math.log(ms / self.reference_ms) for ms in rng.choices(result, k=len(result)))
        )

    def niche(self, program: Program) -> str:
        """See `Landscape`: the choices of a few parameters, the many ones in groups of neighbours."""
        return niche_key(
            [program[axis] * min(LEVELS, self.genes[axis].choices) // self.genes[axis].choices for axis in self.axes]
        )

    def fame(self, family: str) -> float:
        """See `Landscape`."""
        return FAME

    def values(self, program: Program) -> dict[str, Value]:
        """The program's values by parameter."""
        return {name: values[at] for (name, values), at in zip(self.parameters.items(), program, strict=True)}


def read_landscape(path: Path) -> MeasuredLandscape:
    """The landscape in a file.

    Raises:
        UsageError: the file cannot be read or is not in the format.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; a landscape is a readable JSON file") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start} is not UTF-8; a landscape is a JSON file") from None
    return parse_landscape(text, origin=str(path))


def parse_landscape(text: str, *, origin: str) -> MeasuredLandscape:
    """The landscape of a text in the documented format.

    Args:
        text: JSON.
        origin: what errors begin with, mostly the file's name.

    Raises:
        UsageError: the text is not in the format; says where, and what belongs there.
    """
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{origin}: not JSON ({error}); docs/landscapes.md describes the format") from None
    try:
        return _landscape(tree)
    except _NotSoError as error:
        raise UsageError(f"{origin}: {error}") from None


class _NotSoError(Exception):
    """Something in the file is not as the format wants it."""


def _landscape(tree: Any) -> MeasuredLandscape:
    if not isinstance(tree, dict):
        raise _NotSoError(f"holds a {type(tree).__name__}; a landscape is an object with {', '.join(REQUIRED)}")
    for key in tree:
        if key not in (*REQUIRED, *OPTIONAL):
            raise _NotSoError(f"no key {key!r} in the format. {nearest(key, (*REQUIRED, *OPTIONAL))}")
    missing = [key for key in REQUIRED if key not in tree]
    if missing:
        raise _NotSoError(f"lacks {', '.join(missing)}; a landscape is an object with {', '.join(REQUIRED)}")
    if tree["format"] != FORMAT:
        raise _NotSoError(f"format {tree['format']!r}; this version reads format {FORMAT}")
    if tree["unit"] != "ms":
        raise _NotSoError(f'unit {tree["unit"]!r}; timings are milliseconds: convert them and write "ms"')
    parameters = _parameters(tree["parameters"])
    results: dict[Program, tuple[float, ...] | ProgramFailure] = {}
    if not isinstance(tree["values"], list):
        raise _NotSoError(f"values is {_shown(tree['values'])}; it is a list of [configuration, timings or error]")
    for number, entry in enumerate(tree["values"]):
        program, result = _entry(entry, parameters, f"values[{number}]")
        if program in results:
            raise _NotSoError(f"values[{number}]: {_shown(entry[0])} is there already; give each configuration once")
        results[program] = result
    if all(isinstance(result, ProgramFailure) for result in results.values()):
        raise _NotSoError(f"none of {len(results)} configurations has timings; a search needs one to start from")
    return MeasuredLandscape(
        name=_text(tree, "name"),
        about=_text(tree, "about"),
        reference_ms=_milliseconds(tree["reference_ms"], "reference_ms"),
        parameters=parameters,
        results=results,
        niche=_niche(tree.get("niche", []), parameters),
    )


def _text(tree: dict[str, Any], key: str) -> str:
    value = tree.get(key, "")
    if not isinstance(value, str):
        raise _NotSoError(f"{key} is {_shown(value)}; it is a text")
    return value


def _parameters(tree: Any) -> dict[str, list[Value]]:
    wanted = "it is a list of [name, [values…]]"
    if not isinstance(tree, list) or not tree:
        raise _NotSoError(f"parameters is {_shown(tree)}; {wanted}, at least one")
    found: dict[str, list[Value]] = {}
    for number, entry in enumerate(tree):
        match entry:
            case [str() as name, [_, *_] as values] if name not in found:
                pass
            case [str() as name, [_, *_]]:
                raise _NotSoError(f"parameters[{number}]: {name!r} is there already; names differ")
            case _:
                raise _NotSoError(f"parameters[{number}] is {_shown(entry)}; {wanted}, none of them empty")
        for value in values:
            if not isinstance(value, Value):
                raise _NotSoError(f"parameters[{number}]: {_shown(value)} is no value; use numbers, texts or booleans")
            if values.count(value) > 1:
                raise _NotSoError(f"parameters[{number}]: {_shown(value)} is there twice; values differ")
        found[name] = values
    return found


def _entry(
    entry: Any, parameters: Mapping[str, list[Value]], where: str
) -> tuple[Program, tuple[float, ...] | ProgramFailure]:
    match entry:
        case [list() as configuration, result]:
            pass
        case _:
            raise _NotSoError(f"{where} is {_shown(entry)}; it is [configuration, timings or error]")
    if len(configuration) != len(parameters):
        raise _NotSoError(
            f"{where}: {len(configuration)} values in {_shown(configuration)}; "
            f"a configuration is one for each of {', '.join(parameters)}, in this order"
        )
    program = []
    for value, (name, values) in zip(configuration, parameters.items(), strict=True):
        if value not in values:
            raise _NotSoError(f"{where}: {name} is {_shown(value)}; its values are {_shown(values)}")
        program.append(values.index(value))
    match result:
        case str() if result.strip():
            return tuple(program), _failure(result)
        case [_, *_]:
            return tuple(program), tuple(_milliseconds(ms, f"{where}: a timing") for ms in result)
        case _:
            raise _NotSoError(
                f"{where}: the result is {_shown(result)}; it is a list of milliseconds or an error's text"
            )


def _failure(text: str) -> ProgramFailure:
    """A failure from its text, which may begin with a verdict's name, ``WRONG: …``; without one it is a crash.

    Numbers are left out, so that one cause is one signature whatever the addresses and sizes.
    """
    line = re.sub(r"0x[0-9a-f]+|\d+", "#", text.strip().splitlines()[0])[:120]
    name = line.partition(":")[0]
    known = name in Verdict.__members__ and name != Verdict.CORRECT.name
    verdict = Verdict[name] if known else Verdict.CRASHED
    return ProgramFailure(verdict=verdict, signature=line if known else f"{verdict.name}: {line}")


def _milliseconds(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < LONGEST_MS:
        raise _NotSoError(f"{what} is {_shown(value)}; it is a positive number of milliseconds")
    return float(value)


def _niche(names: Any, parameters: Mapping[str, list[Value]]) -> list[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise _NotSoError(f"niche is {_shown(names)}; it is a list of names of parameters")
    for name in names:
        if name not in parameters:
            raise _NotSoError(f"niche names {name!r}, which is no parameter. {nearest(name, parameters)}")
    return names


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}…"
