"""Written-out spellings of operators that torch also has as one: each pattern's match becomes one form.

The order matters: an attention contains a softmax, which may itself be written out. Sources: GELU, Hendrycks and Gimpel
(2016), section 2; Mish, Misra (2019), equation 1; RMS norm, Zhang and Sennrich (2019), equation 4.
"""

import math

from kbevolve.evaluators.graph.matching import Forms, Pattern, Wildcard, call
from kbevolve.evaluators.graph.records import Trace

X, Y, DIM, EPS, SCALE = (
    Wildcard("self"),
    Wildcard("other"),
    Wildcard("dim"),
    Wildcard("eps", number=True),
    Wildcard("scale", number=True),
)
WEIGHT, BIAS = Wildcard("weight", parameter=True), Wildcard("bias", parameter=True)
_ERF = call("erf", (call("div", X, math.sqrt(2)), call("mul", X, math.sqrt(0.5))))
_CUBE = (call("pow", X, 3), call("mul", X, call("mul", X, X)))
_SCALED_CUBE = (call("mul", 0.044715, _CUBE), call("mul", call("mul", call("mul", 0.044715, X), X), X))
_CUBIC = call("add", X, _SCALED_CUBE)
_GELU_TANH = call("tanh", call("mul", math.sqrt(2 / math.pi), _CUBIC))
_LENGTH = call("norm", X, Wildcard("ord"), DIM, True)
_SIX = (call("clamp|hardtanh", call("add", X, 3), 0, 6), call("relu6", call("add", X, 3)))
_LARGEST = (call("amax", X, DIM, keepdim=True), call("max", X, DIM, keepdim=True))
_EXPONENTIAL = (call("exp", call("sub", X, _LARGEST)), call("exp", X))
_SQUARE = (call("pow", X, 2), call("square", X), call("mul", X, X))
_MEAN_SQUARE = call("mean", _SQUARE, DIM, keepdim=True)
_MEAN = call("mean", X, DIM, keepdim=True)
_CENTRED = call("sub", X, _MEAN)
_VARIANCE = (
    call("var", X, DIM, keepdim=True, correction=0),
    call("var", X, DIM, False, keepdim=True),
    call(
        "mean", (call("pow", _CENTRED, 2), call("square", _CENTRED), call("mul", _CENTRED, _CENTRED)), DIM, keepdim=True
    ),
)


def _half(inner: Pattern) -> Pattern:
    """``0.5 x (1 + inner)``, whichever product is computed first."""
    sum_ = call("add", inner, 1)
    return (
        call("mul", call("mul", X, 0.5), sum_),
        call("mul", 0.5, call("mul", X, sum_)),
        call("mul", X, call("mul", 0.5, sum_)),
    )


def _over_root(numerator: Pattern, square: Pattern) -> Pattern:
    """numerator / sqrt(square + eps)."""
    shifted = call("add", square, EPS)
    return (call("div", numerator, call("sqrt", shifted)), call("mul", numerator, call("rsqrt", shifted)))


def _scores() -> Pattern:
    """QKᵀ, scaled before or after it is masked, or not at all."""
    products: Pattern = call("matmul", Wildcard("query"), Wildcard("key_transposed"))
    scaled: Pattern = (call("mul", products, SCALE), call("div", products, Wildcard("divisor", number=True)), products)
    mask, fill = Wildcard("mask"), Wildcard("fill", number=True)
    return (
        call("add", scaled, mask),
        call("masked_fill", scaled, mask, fill),
        scaled,
    )


#: Form -> its spellings.
SPELLINGS: tuple[tuple[str, Pattern], ...] = (
    ("silu", call("mul", X, call("sigmoid", X))),
    ("mish", call("mul", X, call("tanh", call("softplus", X, 1, 20)))),
    ("gelu", _half(_ERF)),
    ("gelu_tanh", _half(_GELU_TANH)),
    ("hardswish", (call("mul", X, call("div", _SIX, 6)), call("div", call("mul", X, _SIX), 6))),
    ("softsign", call("div", X, call("add", call("abs", X), 1))),
    ("softmax", call("div", _EXPONENTIAL, call("sum", _EXPONENTIAL, DIM, keepdim=True))),
    ("logsumexp", call("log", call("sum", call("exp", X), DIM, Wildcard("keepdim")))),
    ("log_softmax", (call("log", call("softmax", X, DIM)), call("sub", X, call("logsumexp", X, DIM, True)))),
    ("layer_norm", _over_root(_CENTRED, _VARIANCE)),
    ("layer_norm", call("add", call("mul", call("layer_norm", X, dim=DIM, eps=EPS), WEIGHT), BIAS)),
    ("rms_norm", _over_root(X, _MEAN_SQUARE)),
    ("rms_norm", call("mul", call("rms_norm", X, dim=DIM, eps=EPS), WEIGHT)),
    ("normalize", call("div", X, call("expand_as", call("clamp_min", _LENGTH, EPS), X))),
    ("normalize", call("div", X, _LENGTH)),
    ("normalize", call("div", X, call("norm", X, Wildcard("ord")))),
    ("mean_norm", call("div", X, call("mean", call("abs", X), DIM, True))),
    ("mse_loss", call("mean", (call("pow", call("sub", X, Y), 2), call("square", call("sub", X, Y))))),
    ("attention", call("matmul", call("softmax", _scores(), -1), Wildcard("value"))),
)


def canonical(trace: Trace) -> Forms:
    """The forms of a trace, with the spellings joined."""
    forms = Forms(trace)
    for kind, pattern in SPELLINGS:
        forms.join(kind, pattern)
    return forms
