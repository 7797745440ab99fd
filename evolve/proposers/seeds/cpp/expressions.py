"""Pointwise operators as C++ over vectors (`configs/templates/cpp/functions.h`)."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kbevolve.evaluators.graph.records import Argument, Node, Ref

#: One argument of an operator: C++, or a number.
Arguments = Mapping[str, Any]

_UNARY = {
    "abs": "magnitude({})",
    "dropout": "{}",
    "erf": "error_function({})",
    "exp": "exponential({})",
    "expm1": "exponential_less_one({})",
    "log": "logarithm({})",
    "log1p": "logarithm_of_one_plus({})",
    "mish": "mish({})",
    "neg": "-{}",
    "reciprocal": "1.0f / {}",
    "relu": "larger({}, vec{{}})",
    "relu6": "smaller(larger({}, vec{{}}), every(6.0f))",
    "rsqrt": "1.0f / root({})",
    "sigmoid": "sigmoid({})",
    "silu": "silu({})",
    "sqrt": "root({})",
    "square": "{0} * {0}",
    "tanh": "tangent({})",
    "hardsigmoid": "smaller(larger({} + 3.0f, vec{{}}), every(6.0f)) / 6.0f",
    "hardswish": "{0} * smaller(larger({0} + 3.0f, vec{{}}), every(6.0f)) / 6.0f",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


class NoExpressionError(Exception):
    """An operator that has no C++ here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """C++ of one operator."""

    text: str
    #: Whether its value is a mask (`ivec`), not numbers.
    mask: bool = False


def number(value: float) -> str:
    """A number as C++."""
    if math.isinf(value):
        return "__builtin_inff()" if value > 0 else "-__builtin_inff()"
    return '__builtin_nanf("")' if math.isnan(value) else f"{float(value)!r}f"


def expression(node: Node, names: Mapping[str, str]) -> Expression:
    """What a node computes.

    Args:
        node: of a pointwise operator.
        names: value -> the C++ variable that has it.

    Raises:
        NoExpressionError: for an operator or an argument that has no C++ here.
    """
    arguments = {name: _argument(argument, names) for name, argument in node.arguments.items()}
    kind = node.kind
    if kind in _UNARY and isinstance(first := next(iter(arguments.values())), str):
        return Expression(text=_UNARY[kind].format(first))
    if kind in _COMPARED:
        return Expression(text=f"{_vector(arguments['self'])} {_COMPARED[kind]} {_text(arguments['other'])}", mask=True)
    make = _OTHERS.get(kind)
    if make is None:
        raise NoExpressionError(node.op)
    return Expression(text=make(arguments))


def _argument(argument: Argument, names: Mapping[str, str]) -> Any:
    if isinstance(argument, Ref):
        if argument.value not in names:
            raise NoExpressionError(argument.value)
        return names[argument.value]
    return argument


def _text(value: Any) -> str:
    """A vector or a number."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise NoExpressionError(repr(value))
    return number(value)


def _vector(value: Any) -> str:
    return value if isinstance(value, str) else f"every({_text(value)})"


def _scaled(value: Any, alpha: Any) -> str:
    return _text(value) if alpha in (None, 1) else f"{_text(value)} * {number(alpha)}"


def _clamp(given: Arguments) -> str:
    text = given["self"]
    if given.get("min", given.get("min_val")) is not None:
        text = f"larger({text}, {_vector(given.get('min', given.get('min_val')))})"
    if given.get("max", given.get("max_val")) is not None:
        text = f"smaller({text}, {_vector(given.get('max', given.get('max_val')))})"
    return str(text)


def _power(given: Arguments) -> str:
    base, exponent = given["self"], given["exponent"]
    if not isinstance(base, str) or isinstance(exponent, str) or exponent not in (0.5, -0.5, -1, 1, 2, 3, 4):
        raise NoExpressionError(f"pow {exponent}")
    roots = {0.5: f"root({base})", -0.5: f"1.0f / root({base})", -1: f"1.0f / {base}"}
    return roots.get(exponent) or " * ".join([base] * int(exponent))


def _divided(given: Arguments) -> str:
    if given.get("rounding_mode") is not None:
        raise NoExpressionError("div with rounding")
    return f"{_vector(given['self'])} / {_text(given['other'])}"


def _elu(given: Arguments, alpha: float, scale: float, input_scale: float) -> str:
    x = given["self"]
    inside = x if input_scale == 1 else f"{x} * {number(input_scale)}"
    times = "" if scale == 1 else f" * {number(scale)}"
    return f"({x} > 0.0f ? {x}{times} : exponential_less_one({inside}) * {number(alpha * scale)})"


def _gelu(given: Arguments) -> str:
    return f"{'gelu' if given['approximate'] == 'none' else 'gelu_by_tangent'}({given['self']})"


def _batch_norm(given: Arguments) -> str:
    mean, variance = given["running_mean"], given["running_var"]
    if given.get("training") or mean is None or variance is None:
        raise NoExpressionError("batch norm with statistics of its input")
    text = f"({given['input']} - {mean}) / root({variance} + {number(given['eps'])})"
    text = text if given["weight"] is None else f"{text} * {given['weight']}"
    return text if given["bias"] is None else f"{text} + {given['bias']}"


_OTHERS: dict[str, Callable[[Arguments], str]] = {
    "add": lambda given: f"{_vector(given['self'])} + {_scaled(given['other'], given.get('alpha'))}",
    "sub": lambda given: f"{_vector(given['self'])} - {_scaled(given['other'], given.get('alpha'))}",
    "rsub": lambda given: f"{_vector(given['other'])} - {_scaled(given['self'], given.get('alpha'))}",
    "mul": lambda given: f"{_vector(given['self'])} * {_text(given['other'])}",
    "div": _divided,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "hardtanh": _clamp,
    "maximum": lambda given: f"larger({_vector(given['self'])}, {_vector(given['other'])})",
    "minimum": lambda given: f"smaller({_vector(given['self'])}, {_vector(given['other'])})",
    "leaky_relu": lambda given: (
        f"({given['self']} > 0.0f ? {given['self']} : {given['self']} * {number(given['negative_slope'])})"
    ),
    "elu": lambda given: _elu(given, given["alpha"], given["scale"], given["input_scale"]),
    "celu": lambda given: _elu(given, given["alpha"], 1, 1 / given["alpha"]),
    "selu": lambda given: _elu(given, _SELU_ALPHA, _SELU_SCALE, 1),
    "softplus": lambda given: f"softplus({given['self']}, {number(given['beta'])}, {number(given['threshold'])})",
    "gelu": _gelu,
    "pow": _power,
    "where": lambda given: f"({given['condition']} ? {_vector(given['self'])} : {_vector(given['other'])})",
    "masked_fill": lambda given: f"({given['mask']} ? {_vector(given['value'])} : {given['self']})",
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
}
_OTHERS |= {"max": _OTHERS["maximum"], "min": _OTHERS["minimum"]}
_OTHERS |= {"multiply": _OTHERS["mul"], "divide": _OTHERS["div"], "subtract": _OTHERS["sub"]}
