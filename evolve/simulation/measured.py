"""A landscape of measured configurations, read from a JSON file (docs/landscapes.md describes the format)."""

import math
import re
import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import UsageError, nearest
from kbevolve.configs.text_file import read_text
from kbevolve.evolve.simulation.landscape import Gene, Program, ProgramFailure, ProgramOutcome, niche_key

#: The version of the format that is read and written.
FORMAT = 1
#: Parameters that make the niche where the file names none, and levels of each, as islands have.
AXES = 4
LEVELS = 4
#: What is commonly said that another value of a parameter brings (log): the same for each, because nothing is known.
FAME = 0.1
#: A timing of more milliseconds than this (31 years) is a mistake in the file.
LONGEST_MS = 1e12
#: The failure of a configuration that the file does not hold.
NOT_MEASURED = ProgramFailure(verdict=Verdict.REFUSED, signature="not measured")

#: A value of a parameter, as JSON has it.
Value = str | int | float | bool
Milliseconds = Annotated[float, Field(gt=0, lt=LONGEST_MS)]


class LandscapeFile(BaseModel):
    """The file. A configuration's result is the milliseconds of each timed round, or an error's text."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal[1]
    name: str
    about: str = ""
    unit: Literal["ms"]
    reference_ms: Milliseconds
    niche: list[str] = []
    parameters: Annotated[list[tuple[str, Annotated[list[Value], Field(min_length=1)]]], Field(min_length=1)]
    values: list[
        tuple[list[Value], Annotated[list[Milliseconds], Field(min_length=1)] | Annotated[str, Field(min_length=1)]]
    ]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        _unique("parameters", [name for name, _ in self.parameters])
        for name, values in self.parameters:
            _unique(name, values)
        for name in self.niche:
            if name not in dict(self.parameters):
                raise ValueError(f"niche names {name!r}, which is no parameter. {nearest(name, dict(self.parameters))}")
        for configuration, _ in self.values:
            if len(configuration) != len(self.parameters):
                names = ", ".join(name for name, _ in self.parameters)
                raise ValueError(f"{len(configuration)} values in {configuration}; want one for each of {names}")
            for value, (name, values) in zip(configuration, self.parameters, strict=True):
                if value not in values:
                    raise ValueError(f"{name} is {value!r} in {configuration}; its values are {values}")
        _unique("values", [tuple(configuration) for configuration, _ in self.values])
        if all(isinstance(result, str) for _, result in self.values):
            raise ValueError(f"none of {len(self.values)} configurations has timings; a search needs one to start from")
        return self


class MeasuredLandscape:
    """Implements `Landscape` on the measured times of a file. Genes: the parameters, each a family of its own."""

    def __init__(self, file: LandscapeFile) -> None:
        self.name, self.about, self.reference_ms = file.name, file.about, file.reference_ms
        self.parameters = dict(file.parameters)
        #: Milliseconds of each timed round, or why there are none. The first valid program is the start.
        self.results: dict[Program, tuple[float, ...] | ProgramFailure] = {
            tuple(values.index(value) for value, values in zip(configuration, self.parameters.values(), strict=True)): (
                _failure(result) if isinstance(result, str) else tuple(result)
            )
            for configuration, result in file.values
        }
        self.genes = tuple(Gene(name=name, family=name, choices=len(known)) for name, known in self.parameters.items())
        varied = [name for name, known in self.parameters.items() if len(known) > 1]
        axes = file.niche or sorted(varied, key=lambda name: len(self.parameters[name]))[:AXES]
        self.axes = tuple(list(self.parameters).index(axis) for axis in axes)

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
        """See `Landscape`; by the median of the timings."""
        result = self.results.get(program, NOT_MEASURED)
        return None if isinstance(result, ProgramFailure) else math.log(self.reference_ms / statistics.median(result))

    def measure(self, program: Program, rng: Random) -> ProgramOutcome:
        """See `Landscape`: as many timings as there are, drawn from them with replacement."""
        result = self.results.get(program, NOT_MEASURED)
        if isinstance(result, ProgramFailure):
            return result
        return tuple(math.log(ms / self.reference_ms) for ms in rng.choices(result, k=len(result)))

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
        return {name: known[at] for (name, known), at in zip(self.parameters.items(), program, strict=True)}


@cache
def packaged() -> Mapping[str, MeasuredLandscape]:
    """The landscapes that come with kbevolve, by name."""
    found = sorted(files(__package__).joinpath("landscapes").iterdir(), key=lambda file: file.name)
    parsed = [parse_landscape(file.read_text(encoding="utf-8"), origin=file.name) for file in found]
    return {one.name: one for one in parsed}


def read_landscape(path: Path) -> MeasuredLandscape:
    """The landscape in a file.

    Raises:
        UsageError: the file cannot be read or is not in the format.
    """
    return parse_landscape(read_text(path, option="--landscape", wants="JSON file"), origin=str(path))


def parse_landscape(text: str, *, origin: str) -> MeasuredLandscape:
    """The landscape of a text in the documented format.

    Args:
        text: JSON.
        origin: what errors begin with, mostly the file's name.

    Raises:
        UsageError: the text is not in the format; says where, and what is wanted there.
    """
    try:
        return MeasuredLandscape(LandscapeFile.model_validate_json(text))
    except ValidationError as error:
        raise UsageError(f"{origin}: {_explained(error)}; docs/landscapes.md describes the format") from None


def _explained(error: ValidationError) -> str:
    """The first complaint: place, value, and what is wanted."""
    first = error.errors()[0]
    place = "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int))
    place = f"{first['loc'][0]}{place}" if first["loc"] else ""
    match first["type"]:
        case "extra_forbidden":
            return f"no key {place!r} in the format. {nearest(place, LandscapeFile.model_fields)}"
        case "missing":
            return f"lacks {place}"
        case "value_error":
            return str(first["ctx"]["error"])
    shown = str(first["input"])
    shown = shown if len(shown) <= 80 else f"{shown[:77]}…"
    return f"{place} is {shown}: {first['msg'][0].lower()}{first['msg'][1:]}" if place else first["msg"]


def _unique(what: str, found: Sequence[Hashable]) -> None:
    value, times = Counter(found).most_common(1)[0] if found else (None, 0)
    if times > 1:
        raise ValueError(f"{what}: {value!r} is there twice; give each once")


def _failure(text: str) -> ProgramFailure:
    """A failure from its text, which may begin with a verdict's name, ``WRONG: …``; without one it is a crash.

    Numbers are left out, so that one cause is one signature whatever the addresses and sizes.
    """
    line = re.sub(r"0x[0-9a-f]+|\d+", "#", (text.strip().splitlines() or ["no message"])[0])[:120]
    name = line.partition(":")[0]
    known = name in Verdict.__members__ and name != Verdict.CORRECT.name
    verdict = Verdict[name] if known else Verdict.CRASHED
    return ProgramFailure(verdict=verdict, signature=line if known else f"{verdict.name}: {line}")
