"""Pointwise operators as expressions of a language: C++ over vectors, Gluon over tensors, or CUDA C++ of one number.

All have functions of the same names, in `configs/templates`: `cpp/functions.h`, `functions.py` and `functions.cu`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kbevolve.evaluators.graph.records import Argument, Node, Ref


def _cpp_number(value: float) -> str:
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return '__builtin_nanf("")' if math.isnan(value) else f"{float(value)!r}f"


def _cuda_number(value: float) -> str:
    if math.isinf(value):
        return "__int_as_float(0x7f800000)" if value > 0 else "(-__int_as_float(0x7f800000))"
    return "__int_as_float(0x7fffffff)" if math.isnan(value) else f"{float(value)!r}f"


def _gluon_number(value: float) -> str:
    return repr(float(value)) if math.isfinite(value) else f'float("{value}")'


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How a language writes what operators have in common."""

    #: The text of a number.
    number: Callable[[float], str]
    #: Formats: a number as one of many that lie side by side, and a choice by a mask.
    many: str
    choice: str
    #: What the names of its functions begin with.
    prefix: str = ""

    def call(self, name: str, *arguments: str) -> str:
        """A call of one of the functions."""
        return f"{self.prefix}{name}({', '.join(arguments)})"

    def every(self, value: float) -> str:
        """A number that stands where the language wants a vector."""
        return self.many.format(self.number(value))

    def choose(self, mask: str, one: str, other: str) -> str:
        """One where the mask is true, else the other."""
        return self.choice.format(mask, one, other)


CPP = Language(number=_cpp_number, many="every({})", choice="({} ? {} : {})")
GLUON = Language(number=_gluon_number, many="{}", choice="gl.where({}, {}, {})", prefix="epilogue_")
CUDA = Language(number=_cuda_number, many="{}", choice="({} ? {} : {})", prefix="epilogue_")

#: {f} stands before the name of a function; {0} is the argument; {zero} and {sixes} are a zero and a six for each
#: element; {one}, {three} and {six} are numbers.
_UNARY = {
    "abs": "{f}magnitude({0})",
    "clone": "{0}",
    "detach": "{0}",
    "dropout": "{0}",
    "erf": "{f}error_function({0})",
    "exp": "{f}exponential({0})",
    "expm1": "{f}exponential_less_one({0})",
    "log": "{f}logarithm({0})",
    "log1p": "{f}logarithm_of_one_plus({0})",
    "mish": "{f}mish({0})",
    "neg": "-{0}",
    "reciprocal": "{f}quotient({one}, {0})",
    "relu": "{f}larger({0}, {zero})",
    "relu6": "{f}smaller({f}larger({0}, {zero}), {sixes})",
    "rsqrt": "{f}quotient({one}, {f}root({0}))",
    "sigmoid": "{f}sigmoid({0})",
    "silu": "{f}silu({0})",
    "sqrt": "{f}root({0})",
    "square": "{0} * {0}",
    "tanh": "{f}tangent({0})",
    "hardsigmoid": "{f}quotient({f}smaller({f}larger({0} + {three}, {zero}), {sixes}), {six})",
    "hardswish": "{0} * {f}quotient({f}smaller({f}larger({0} + {three}, {zero}), {sixes}), {six})",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772

#: The arguments of an operator: variables, or what the graph has.
_Arguments = Mapping[str, Any]


class NoExpressionError(Exception):
    """An operator that has no expression here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """The expression of one operator."""

    text: str
    #: Whether its value is a mask, not numbers.
    mask: bool = False


def expression(node: Node, names: Mapping[str, str], language: Language) -> Expression:
    """What a node computes.

    Args:
        node: of a pointwise operator.
        names: value -> the variable that has it.
        language: of the expression.

    Raises:
        NoExpressionError: for an operator or an argument that has no expression here.
    """
    given = {name: _argument(argument, names) for name, argument in node.arguments.items()}
    kind = node.kind
    if given.get("train"):  # a dropout that draws numbers
        raise NoExpressionError(node.op)
    if kind in _UNARY and isinstance(first := next(iter(given.values())), str):
        numbers = {name: language.number(value) for name, value in (("one", 1), ("three", 3), ("six", 6))}
        numbers["f"] = language.prefix
        return Expression(text=_UNARY[kind].format(first, zero=language.every(0), sixes=language.every(6), **numbers))
    if kind in _COMPARED:
        text = f"{_vector(language, given['self'])} {_COMPARED[kind]} {_text(language, given['other'])}"
        return Expression(text=text, mask=True)
    make = _OTHERS.get(kind)
    if make is None:
        raise NoExpressionError(node.op)
    return Expression(text=make(language, given))


def _argument(argument: Argument, names: Mapping[str, str]) -> Any:
    if isinstance(argument, Ref):
        if argument.value not in names:
            raise NoExpressionError(argument.value)
        return names[argument.value]
    return argument


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoExpressionError(repr(value))
    return value


def _text(language: Language, value: Any) -> str:
    """A vector or a number."""
    return value if isinstance(value, str) else language.number(_number(value))


def _vector(language: Language, value: Any) -> str:
    return value if isinstance(value, str) else language.every(_number(value))


def _added(language: Language, sign: str, one: Any, other: Any, alpha: Any) -> str:
    scaled = _text(language, other) if alpha in (None, 1) else f"{_text(language, other)} * {language.number(alpha)}"
    return f"{_vector(language, one)} {sign} {scaled}"


def _clamp(language: Language, given: _Arguments) -> str:
    text = given["self"]
    if given.get("min", given.get("min_val")) is not None:
        text = language.call("larger", text, _vector(language, given.get("min", given.get("min_val"))))
    if given.get("max", given.get("max_val")) is not None:
        text = language.call("smaller", text, _vector(language, given.get("max", given.get("max_val"))))
    return str(text)


def _power(language: Language, given: _Arguments) -> str:
    base, exponent = given["self"], given["exponent"]
    if not isinstance(base, str) or isinstance(exponent, str) or exponent not in (0.5, -0.5, -1, 1, 2, 3, 4):
        raise NoExpressionError(f"pow {exponent}")
    one = language.number(1)
    root = language.call("root", base)
    roots = {0.5: root, -0.5: language.call("quotient", one, root), -1: language.call("quotient", one, base)}
    return roots.get(exponent) or " * ".join([base] * int(exponent))


def _divided(language: Language, given: _Arguments) -> str:
    if given.get("rounding_mode") is not None:
        raise NoExpressionError("div with rounding")
    return language.call("quotient", _vector(language, given["self"]), _text(language, given["other"]))


def _leaky(language: Language, given: _Arguments) -> str:
    x = given["self"]
    slope = language.number(given["negative_slope"])
    return language.choose(f"{x} > {language.number(0)}", x, f"{x} * {slope}")


def _elu(language: Language, x: str, alpha: float, scale: float, input_scale: float) -> str:
    inside = x if input_scale == 1 else f"{x} * {language.number(input_scale)}"
    positive = x if scale == 1 else f"{x} * {language.number(scale)}"
    negative = f"{language.call('exponential_less_one', inside)} * {language.number(alpha * scale)}"
    return language.choose(f"{x} > {language.number(0)}", positive, negative)


def _batch_norm(language: Language, given: _Arguments) -> str:
    mean, variance = given["running_mean"], given["running_var"]
    if given.get("training") or mean is None or variance is None:
        raise NoExpressionError("batch norm with statistics of its input")
    root = language.call("root", f"{variance} + {language.number(given['eps'])}")
    text = language.call("quotient", f"{given['input']} - {mean}", root)
    text = text if given["weight"] is None else f"{text} * {given['weight']}"
    return text if given["bias"] is None else f"{text} + {given['bias']}"


_OTHERS: dict[str, Callable[[Language, _Arguments], str]] = {
    "add": lambda language, given: _added(language, "+", given["self"], given["other"], given.get("alpha")),
    "sub": lambda language, given: _added(language, "-", given["self"], given["other"], given.get("alpha")),
    "rsub": lambda language, given: _added(language, "-", given["other"], given["self"], given.get("alpha")),
    "mul": lambda language, given: f"{_vector(language, given['self'])} * {_text(language, given['other'])}",
    "div": _divided,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "hardtanh": _clamp,
    "maximum": lambda language, given: language.call(
        "larger", _vector(language, given["self"]), _vector(language, given["other"])
    ),
    "minimum": lambda language, given: language.call(
        "smaller", _vector(language, given["self"]), _vector(language, given["other"])
    ),
    "leaky_relu": _leaky,
    "elu": lambda language, given: _elu(language, given["self"], given["alpha"], given["scale"], given["input_scale"]),
    "celu": lambda language, given: _elu(language, given["self"], given["alpha"], 1, 1 / given["alpha"]),
    "selu": lambda language, given: _elu(language, given["self"], _SELU_ALPHA, _SELU_SCALE, 1),
    "softplus": lambda language, given: language.call(
        "softplus", given["self"], language.number(given["beta"]), language.number(given["threshold"])
    ),
    "gelu": lambda language, given: language.call(
        "gelu" if given["approximate"] == "none" else "gelu_by_tangent", given["self"]
    ),
    "pow": _power,
    "where": lambda language, given: language.choose(
        given["condition"], _vector(language, given["self"]), _vector(language, given["other"])
    ),
    "masked_fill": lambda language, given: language.choose(
        given["mask"], _vector(language, given["value"]), given["self"]
    ),
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
}
_OTHERS |= {"max": _OTHERS["maximum"], "min": _OTHERS["minimum"]}
_OTHERS |= {"multiply": _OTHERS["mul"], "divide": _OTHERS["div"], "subtract": _OTHERS["sub"]}
