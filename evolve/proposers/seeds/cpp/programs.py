"""Norms, reductions and losses as programs of a row: numbers of the row, then its elements or one number."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kbevolve.evaluators.graph.records import Region
from kbevolve.evolve.proposers.seeds.cpp.functions import NotCoveredError
from kbevolve.evolve.proposers.seeds.expressions import CPP


@dataclass(frozen=True, slots=True)
class Reduced:
    """A number of a row: the sum, for example, of a text in which `x` is an element of the row."""

    name: str
    #: SUM, PRODUCT, MAXIMUM or MINIMUM.
    how: str
    of: str


@dataclass(frozen=True, slots=True)
class Derived:
    """A number that follows from others."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Moments:
    """The numbers `mean` and `variance` of a row of so many elements."""

    length: int

    @property
    def one_by_one(self) -> "tuple[Reduced | Derived, ...]":
        """In two passes."""
        return (
            _SUM,
            Derived("mean", _mean(self.length)),
            Reduced("q", "SUM", "(x - mean) * (x - mean)"),
            Derived("variance", f"q / {CPP.number(self.length)}"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProgram:
    """What is computed of a row. Texts are C++ over vectors."""

    #: In order; each may use those before it.
    numbers: tuple[Reduced | Derived | Moments, ...]
    #: An element of the result, or the only one.
    result: str
    #: Whether the result has an element for each one of the row; a weight and a bias then follow.
    maps: bool = False
    #: Name and C++ of an element that a reduction computes and the result needs again.
    kept: tuple[str, str] | None = None
    #: An element of the row, where it is computed from the operands: role -> C++ variable.
    element: str = "{input}"

    @property
    def passes(self) -> int:
        """How often each element of a row is read."""
        return sum(not isinstance(one, Derived) for one in self.numbers) + self.maps


def program_of(region: Region, length: int) -> RowProgram:
    """The program of a region whose rows have `length` elements; raises NotCoveredError."""
    make = _PROGRAMS.get(region.form)
    if make is None:
        raise NotCoveredError(f"{region.name}: no template for {region.form}")
    return make(region, length)


def _mean(length: int) -> str:
    return f"s / {CPP.number(length)}"


_SUM = Reduced("s", "SUM", "x")
_SQUARES = Reduced("s", "SUM", "x * x")
_ABSOLUTE = Reduced("s", "SUM", "magnitude(x)")
_LARGEST = Reduced("m", "MAXIMUM", "x")
_EXPONENTIAL = "exponential(x - m)"


def _centred(region: Region, length: int) -> RowProgram:
    """Layer, group and instance norm: Ba et al. (2016), Wu and He (2018), Ulyanov et al. (2016)."""
    return RowProgram(
        numbers=(
            Moments(length),
            Derived("scale", f"1.0f / root(variance + {CPP.number(region.constants['eps'])})"),
        ),
        result="(x - mean) * scale",
        maps=True,
    )


def _rms_norm(region: Region, length: int) -> RowProgram:
    scale = f"1.0f / root({_mean(length)} + {CPP.number(region.constants['eps'])})"
    return RowProgram(numbers=(_SQUARES, Derived("scale", scale)), result="x * scale", maps=True)


def _normalize(region: Region, length: int) -> RowProgram:
    _check_order(region, 2)
    eps = region.constants.get("eps")
    size = "root(s)" if eps is None else f"larger(root(s), every({CPP.number(eps)}))"
    return RowProgram(numbers=(_SQUARES, Derived("size", size)), result="x / size", maps=True)


def _norm(region: Region, length: int) -> RowProgram:
    _check_order(region, 1, 2)
    one = region.constants.get("ord", 2) == 1
    return RowProgram(numbers=(_ABSOLUTE if one else _SQUARES,), result="s" if one else "root(s)")


def _check_order(region: Region, *known: float) -> None:
    if region.constants.get("ord", 2) not in known:
        raise NotCoveredError(f"{region.name}: a norm of order {region.constants['ord']}")


def _reduction(reduced: Reduced) -> Callable[[Region, int], RowProgram]:
    return lambda region, length: RowProgram(numbers=(reduced,), result=reduced.name)


def _average(region: Region, length: int) -> RowProgram:
    return RowProgram(numbers=(_SUM,), result=_mean(length))


def _logsumexp(region: Region, length: int) -> RowProgram:
    top = Derived("top", "magnitude(m) == __builtin_inff() ? vec{} : m")
    sums = Reduced("s", "SUM", "exponential(x - top)")
    return RowProgram(numbers=(_LARGEST, top, sums), result="top + logarithm(s)")


def _softmax(region: Region, length: int) -> RowProgram:
    return RowProgram(
        numbers=(_LARGEST, Reduced("s", "SUM", "e"), Derived("scale", "1.0f / s")),
        result="e * scale",
        maps=True,
        kept=("e", _EXPONENTIAL),
    )


def _log_softmax(region: Region, length: int) -> RowProgram:
    sums = Reduced("s", "SUM", _EXPONENTIAL)
    return RowProgram(numbers=(_LARGEST, sums, Derived("log", "logarithm(s)")), result="x - m - log", maps=True)


def _mean_norm(region: Region, length: int) -> RowProgram:
    return RowProgram(numbers=(_ABSOLUTE, Derived("mean", _mean(length))), result="x / mean", maps=True)


def _loss(element: str) -> Callable[[Region, int], RowProgram]:
    """The mean or the sum of a loss of two tensors."""

    def made(region: Region, length: int) -> RowProgram:
        reduction = region.constants.get("reduction", 1)
        if reduction not in (1, 2):
            raise NotCoveredError(f"{region.name}: a loss for each element")
        text = element.replace("BETA", CPP.number(region.constants.get("beta", region.constants.get("delta", 1.0))))
        return RowProgram(numbers=(_SUM,), result=_mean(length) if reduction == 1 else "s", element=text)

    return made


_DIFFERENCE = "magnitude({input} - {target})"
_HALF_SQUARE = f"0.5f * {_DIFFERENCE} * {_DIFFERENCE}"
_PROGRAMS: Mapping[str, Callable[[Region, int], RowProgram]] = {
    "sum": _reduction(_SUM),
    "mean": _average,
    "prod": _reduction(Reduced("p", "PRODUCT", "x")),
    **dict.fromkeys(("max", "amax"), _reduction(_LARGEST)),
    **dict.fromkeys(("min", "amin"), _reduction(Reduced("m", "MINIMUM", "x"))),
    **dict.fromkeys(("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"), _average),
    "norm": _norm,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    **dict.fromkeys(("layer_norm", "group_norm", "instance_norm"), _centred),
    "rms_norm": _rms_norm,
    "mean_norm": _mean_norm,
    "normalize": _normalize,
    "mse_loss": _loss("({input} - {target}) * ({input} - {target})"),
    "l1_loss": _loss(_DIFFERENCE),
    "smooth_l1_loss": _loss(f"({_DIFFERENCE} < BETA ? {_HALF_SQUARE} / BETA : {_DIFFERENCE} - 0.5f * BETA)"),
    "huber_loss": _loss(f"({_DIFFERENCE} < BETA ? {_HALF_SQUARE} : BETA * ({_DIFFERENCE} - 0.5f * BETA))"),
}
