"""Which family a form belongs to, and its operands and constants under canonical names."""

import math
from collections.abc import Mapping
from typing import Any

from kbevolve.evaluators.graph.contraction import contraction_of, product_operands
from kbevolve.evaluators.graph.matching import Form
from kbevolve.evaluators.graph.records import Argument, Family, Ref, TensorSpec, TorchConstant, Trace, refs

_BY_NAME = {
    Family.PRODUCT: "matmul linear addmm baddbmm einsum",
    Family.CONVOLUTION: "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution",
    Family.ATTENTION: "attention",
    Family.RECURRENCE: "lstm gru rnn_tanh rnn_relu",
    Family.NORM: "softmax log_softmax layer_norm group_norm batch_norm instance_norm rms_norm normalize mean_norm "
    "local_response_norm",
    Family.REDUCTION: "sum mean max min amax amin argmax argmin prod all any var std var_mean std_mean norm logsumexp "
    "median aminmax count_nonzero nansum sort topk kthvalue trace",
    Family.SCAN: "cumsum cumprod cummax cummin logcumsumexp",
    Family.LOSS: "mse_loss cross_entropy_loss smooth_l1_loss huber_loss kl_div triplet_margin_loss nll_loss l1_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits hinge_embedding_loss margin_ranking_loss "
    "cosine_embedding_loss cosine_similarity pairwise_distance soft_margin_loss",
    Family.POOLING: "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d "
    "adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "max_pool2d_with_indices max_pool3d_with_indices",
    Family.MOVEMENT: "cat stack clone contiguous reshape flatten index index_select gather embedding flip roll repeat "
    "pad constant_pad_nd tril triu zeros ones full empty arange zeros_like ones_like full_like empty_like eye "
    "linspace new_zeros new_ones new_full diag diag_embed tile repeat_interleave slice_scatter select_scatter scatter "
    "index_put scatter_add masked_select one_hot meshgrid randn rand randn_like rand_like copy unfold im2col "
    "channel_shuffle pixel_shuffle scalar_tensor diagonal_scatter _to_copy to reflection_pad2d replication_pad2d "
    "upsample_nearest2d upsample_bilinear2d",
}
_FAMILY = {name: family for family, names in _BY_NAME.items() for name in names.split()}
#: Pointwise operators that not every version of torch tags.
_POINTWISE = {"masked_fill", "where", "dropout", "type_as", "to", "clamp", "softplus", "prelu", "celu", "rsub"}
_POINTWISE |= {"hardswish", "mish", "hardsigmoid", "selu", "hardshrink", "softshrink", "logit", "leaky_relu", "elu"}
_POINTWISE |= {"relu", "relu6", "gelu", "silu", "hardtanh", "threshold", "rrelu_with_noise", "log_sigmoid", "clamp_min"}
#: Arguments that are no constants of a template.
_IGNORED = {"training", "momentum", "cudnn_enabled", "train", "dropout_p", "dropout", "non_blocking", "layout", "copy"}
#: ATen's names of operands -> ours.
_ROLES = {"self": "input", "attn_mask": "mask", "hx": "state"}


def family_of(form: Form, trace: Trace) -> Family:
    """The family. Copies that change the dtype alone are pointwise, and so is batch norm with fixed statistics."""
    if form.kind in ("to", "_to_copy") and form.reads:
        source, result = (trace.tensors[value] for value in (form.reads[0], form.outputs[0]))
        return Family.POINTWISE if source.stride == result.stride else Family.MOVEMENT
    two = form.kind in ("max", "min") and "other" in form.arguments
    if two or (form.kind == "batch_norm" and not form.arguments.get("training")):
        return Family.POINTWISE
    return _FAMILY.get(form.kind) or (Family.POINTWISE if form.pointwise or form.kind in _POINTWISE else Family.OTHER)


def operands_of(form: Form) -> Mapping[str, str]:
    """Role -> value, for everything that the form reads."""
    if _FAMILY.get(form.kind) is Family.PRODUCT and (found := product_operands(form)):
        return found
    roles: dict[str, str] = {}
    for name, argument in form.arguments.items():
        values = refs(argument)
        role = _ROLES.get(name, name)
        roles |= {role if len(values) == 1 else f"{role}[{index}]": value for index, value in enumerate(values)}
    missing = [value for value in form.reads if value not in roles.values()]
    return roles | {f"other[{index}]": value for index, value in enumerate(missing)}


def constants_of(form: Form, trace: Trace) -> Mapping[str, Any]:
    """The constant arguments, without those that are None; convolutions in canonical form."""
    found = {
        name: _plain(argument)
        for name, argument in form.arguments.items()
        if argument is not None and not refs(argument) and name not in _IGNORED
    }
    if _FAMILY.get(form.kind) is Family.CONVOLUTION:
        return _convolution(form, found, trace)
    if form.kind == "attention":
        if "divisor" in found:
            found["scale"] = 1 / found.pop("divisor")
        query = form.arguments["query"]
        if "scale" not in found:  # PyTorch's default; the written-out spelling without a factor has none
            depth = trace.tensors[query.value].shape[-1] if isinstance(query, Ref) else 1
            found["scale"] = 1.0 if "key_transposed" in form.arguments else 1 / math.sqrt(depth)
    return found


def spec_of(role: str, value: str, trace: Trace) -> tuple[str, TensorSpec]:
    """The role and the tensor as a template reads them: keys that were given transposed are as the others."""
    spec = trace.tensors[value]
    return ("key", spec.swapped) if role == "key_transposed" else (role, spec)


def flops_of(form: Form, trace: Trace) -> int:
    """Two for each multiplication of a product, a convolution, an attention or a recurrent layer; else 0."""
    family = _FAMILY.get(form.kind)
    shapes = {role: trace.tensors[value].shape for role, value in operands_of(form).items()}
    if family is Family.PRODUCT and (product := contraction_of(form, trace)):
        return 2 * math.prod(product.sizes)
    if family is Family.CONVOLUTION:
        # A weight is (out, in / groups, *kernel), a transposed one (in, out / groups, *kernel): each element of it is
        # used once for each place of the output, or of the input.
        transposed = constants_of(form, trace)["transposed"]
        places = shapes["input"] if transposed else trace.tensors[form.outputs[0]].shape
        rank = len(shapes["weight"]) - 2
        return 2 * math.prod(shapes["weight"]) * math.prod(places[-rank:]) * math.prod(places[: -rank - 1])
    if family is Family.ATTENTION:
        keys = next(spec_of(role, value, trace)[1] for role, value in operands_of(form).items() if "key" in role).shape
        pairs = math.prod(shapes["query"][:-1]) * keys[-2]
        return 2 * pairs * (shapes["query"][-1] + shapes["value"][-1])
    if family is Family.RECURRENCE:
        steps = math.prod(shapes["input"][:-1])
        return 2 * steps * sum(math.prod(s) for role, s in shapes.items() if role.startswith("params") and len(s) == 2)
    return 0


def _convolution(form: Form, found: dict[str, Any], trace: Trace) -> Mapping[str, Any]:
    """Every number for each spatial axis, padding as numbers, and whether it is transposed or depthwise."""
    weight = form.arguments["weight"]
    shape = trace.tensors[weight.value].shape if isinstance(weight, Ref) else ()
    kernel = shape[2:]
    each = {name: _for_each(found[name], len(kernel)) for name in ("stride", "dilation")}
    padding = found["padding"]
    if padding == "same":
        whole = [step * (size - 1) for step, size in zip(each["dilation"], kernel, strict=True)]
        each |= {"padding": tuple(size // 2 for size in whole)}
        if any(size % 2 for size in whole):  # one more behind than before
            each["padding_behind"] = tuple(size - size // 2 for size in whole)
    else:
        each["padding"] = (0,) * len(kernel) if padding == "valid" else _for_each(padding, len(kernel))
    transposed = "transpose" in form.kind or bool(found.get("transposed"))
    if transposed:
        each["output_padding"] = _for_each(found["output_padding"], len(kernel))
    groups = found["groups"]
    inside = shape[0] if transposed else shape[1] * groups
    return {"kernel": kernel, **each, "groups": groups, "transposed": transposed, "depthwise": groups == inside > 1}


def _for_each(value: Any, rank: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, tuple) else (value,)
    return values * rank if len(values) == 1 else values


def _plain(argument: Argument) -> Any:
    if isinstance(argument, TorchConstant):
        return argument.torch
    return tuple(map(_plain, argument)) if isinstance(argument, tuple) else argument
