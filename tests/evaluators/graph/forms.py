"""What each form means: a region computed from its record alone, without its nodes."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional as F

from kbevolve.evaluators.graph.records import Axis, Contraction, Family, Region

Operands = Mapping[str, torch.Tensor]


def compute(region: Region, operands: Operands, output: torch.Tensor) -> torch.Tensor | None:
    """The region's result; None for forms without a meaning here. `output` gives the strides of a product's result."""
    constants = region.constants
    if region.contraction:
        return _product(region.contraction, operands, output, constants)
    if region.family is Family.CONVOLUTION:
        return _convolution(operands, constants)
    meaning = MEANINGS.get(region.form)
    return meaning(operands, constants) if meaning else None


def _product(
    found: Contraction, operands: Operands, output: torch.Tensor, constants: Mapping[str, Any]
) -> torch.Tensor:
    def strided(tensor: torch.Tensor, side: str, *roles: tuple[Axis, ...]) -> torch.Tensor:
        axes = [axis for role in roles for axis in role]
        view = tensor.as_strided([axis.size for axis in axes], [getattr(axis, side) for axis in axes])
        return view.reshape([int(torch.tensor([axis.size for axis in role]).prod()) for role in roles])

    left = strided(operands["left"], "left", found.batch, found.m, found.k)
    right = strided(operands["right"], "right", found.batch, found.k, found.n)
    product = constants.get("alpha", 1) * (left @ right)
    if "bias" in operands:
        bias = operands["bias"].expand_as(output).contiguous().as_strided(output.shape, output.stride())
        product = product + constants.get("beta", 1) * strided(bias, "out", found.batch, found.m, found.n)
    return product.reshape(strided(output, "out", found.batch, found.m, found.n).shape)


def product_result(found: Contraction, output: torch.Tensor) -> torch.Tensor:
    """A product's result with the axes batch, m, n."""
    axes = [*found.batch, *found.m, *found.n]
    return output.as_strided([axis.size for axis in axes], [axis.out for axis in axes]).reshape(found.sizes[:3])


def _convolution(operands: Operands, constants: Mapping[str, Any]) -> torch.Tensor:
    rank = len(constants["kernel"])
    assert tuple(operands["weight"].shape[2:]) == constants["kernel"]
    common = {name: constants[name] for name in ("stride", "dilation", "groups")}
    if constants["transposed"]:
        layer: Callable[..., torch.Tensor] = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        more = {name: constants[name] for name in ("padding", "output_padding")}
        return layer(operands["input"], operands["weight"], operands.get("bias"), **common, **more)
    behind = constants.get("padding_behind", constants["padding"])
    pads = [size for pair in reversed(list(zip(constants["padding"], behind, strict=True))) for size in pair]
    layer = (F.conv1d, F.conv2d, F.conv3d)[rank - 1]
    return layer(F.pad(operands["input"], pads), operands["weight"], operands.get("bias"), **common)


def _attention(operands: Operands, constants: Mapping[str, Any]) -> torch.Tensor:
    scores = constants["scale"] * operands["query"] @ operands["key"].mT
    mask = operands.get("mask")
    if constants.get("is_causal"):
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
    if mask is not None and mask.dtype is torch.bool:  # torch's own masks say what to keep, masked_fill what to fill
        fill = mask if "fill" in constants else ~mask
        scores = scores.masked_fill(fill, constants.get("fill", -torch.inf))
    elif mask is not None:
        scores = scores + mask
    return torch.softmax(scores, -1) @ operands["value"]


def _rms_norm(operands: Operands, constants: Mapping[str, Any]) -> torch.Tensor:
    x = operands["input"]
    dim = constants.get("dim", tuple(range(-len(constants.get("normalized_shape", ())), 0)))
    return x / (x.square().mean(dim, keepdim=True) + constants["eps"]).sqrt() * operands.get("weight", torch.ones(()))


def _layer_norm(operands: Operands, constants: Mapping[str, Any]) -> torch.Tensor:
    x = operands["input"]
    dim = constants.get("dim", tuple(range(-len(constants.get("normalized_shape", ())), 0)))
    normal = (x - x.mean(dim, keepdim=True)) / (x.var(dim, correction=0, keepdim=True) + constants["eps"]).sqrt()
    return normal * operands.get("weight", torch.ones(())) + operands.get("bias", torch.zeros(()))


def _normalize(operands: Operands, constants: Mapping[str, Any]) -> torch.Tensor:
    x = operands["input"]
    dim = constants.get("dim")
    norm = torch.linalg.vector_norm(x, constants["ord"], dim, keepdim=dim is not None)
    return x / norm.clamp_min(constants.get("eps", 0.0))


MEANINGS: dict[str, Callable[[Operands, Mapping[str, Any]], torch.Tensor]] = {
    "softmax": lambda o, c: torch.softmax(o["input"], c["dim"], dtype=getattr(torch, c.get("dtype", "float32"))),
    "log_softmax": lambda o, c: torch.log_softmax(o["input"], c["dim"]),
    "logsumexp": lambda o, c: torch.logsumexp(o["input"], c["dim"], c.get("keepdim", False)),
    "attention": _attention,
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "normalize": _normalize,
    "mean_norm": lambda o, c: o["input"] / o["input"].abs().mean(c["dim"], keepdim=True),
    "mse_loss": lambda o, c: F.mse_loss(o["input"], o["other"] if "other" in o else o["target"]),
    "gelu": lambda o, c: F.gelu(o["input"]),
    "gelu_tanh": lambda o, c: F.gelu(o["input"], approximate="tanh"),
    "silu": lambda o, c: F.silu(o["input"]),
    "mish": lambda o, c: F.mish(o["input"]),
    "hardswish": lambda o, c: F.hardswish(o["input"]),
    "softsign": lambda o, c: F.softsign(o["input"]),
    "batch_norm": lambda o, c: F.batch_norm(
        o["input"], o["running_mean"], o["running_var"], o.get("weight"), o.get("bias"), eps=c["eps"]
    ),
    "max_pool2d": lambda o, c: F.max_pool2d(
        o["input"], c["kernel_size"], c["stride"] or None, c["padding"], c["dilation"], c["ceil_mode"]
    ),
    "group_norm": lambda o, c: F.group_norm(o["input"], c["num_groups"], o.get("weight"), o.get("bias"), c["eps"]),
    "sum": lambda o, c: o["input"].sum(c.get("dim"), c.get("keepdim", False)),
    "cumsum": lambda o, c: o["input"].cumsum(c["dim"]),
}  # fmt: skip
