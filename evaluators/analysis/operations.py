"""The arithmetic of one call: how many operations its products take, and how many of those no kernel can avoid.

Counted are matrix products, convolutions, attention and recurrent layers (twice the multiplications): they dominate
where they occur. Elementwise work and reductions are bound by memory and not counted.

A count bounds the time of honest kernels only where algebra cannot reduce it. The sum over the rows of A @ B is a
vector times B; (A @ B) @ C may be A @ (B @ C). So the counter records for each tensor which products it was made of,
and whether by linear steps only. A product is not certain if its result is later summed up, multiplied on, mostly
discarded or never used, or if an operand has blocks of zeros. In doubt a product is not certain: a bound too low
misses a cheat that other checks catch, a bound too high would reject honest kernels.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

from kbevolve.evaluators.analysis.rates import percent

#: A result with less than this share of a product's elements is a sum or a cut-out of it.
_KEPT_SHARE = 0.5
#: Share of zero tiles (or of zeros in an input) above which a kernel may skip work: a triangle has half.
ZERO_SHARE = 0.25
_TILE = 16

#: Steps that move a tensor, take a part of it, or add tensors: they preserve linearity.
_LINEAR = {
    "view", "_unsafe_view", "_reshape_alias", "t", "transpose", "permute", "expand", "squeeze", "unsqueeze", "alias",
    "detach", "clone", "_to_copy", "copy_", "lift_fresh", "constant_pad_nd", "cat", "stack", "flip", "roll",
    "slice", "select", "index", "index_select", "gather", "split", "split_with_sizes", "unbind", "diagonal", "tril",
    "triu", "masked_select", "as_strided", "unfold", "add", "add_", "sub", "sub_", "rsub", "neg", "neg_",
}  # fmt: skip
#: Steps that are linear in one operand if no other operand is made of products.
_SCALING = {"mul", "mul_", "div", "div_"}
#: Linear steps that may sum up. Normalisation by fixed statistics is linear and sums nothing.
_SUMMING = {
    "sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "cumsum",
    "native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "_batch_norm_no_update",
    "upsample_bilinear2d", "upsample_nearest2d", "mv", "dot",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The operations of one call."""

    #: Floating-point operations of all products, attention and recurrent layers.
    total: int
    #: Those that no known rearrangement saves.
    certain: int
    #: The total without what the reasons of `redundant` save, and without products that nothing uses.
    required: int
    #: Why other work is redundant, one phrase for each reason that a person would accept.
    redundant: tuple[str, ...] = ()
    #: Number of products whose results nothing uses.
    unused: int = 0


@dataclass(slots=True, kw_only=True)
class _Product:
    """One executed product."""

    name: str
    operations: int
    certain: int
    elements: int
    #: Used elements of its result, or of tensors made of that element by element.
    used: int = 0
    summed: bool = False
    #: Share of zero tiles in an operand, where it is above `ZERO_SHARE`.
    empty: float = 0.0


#: Index of a product that a tensor was made of -> whether by linear steps only.
_Origin = Mapping[int, bool]


def count_operations(call: Callable[[], Any]) -> Operations:
    """Run a call once and count its operations; its result counts as used."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    # The fused encoder layer is one operation, which hides its products.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        counter = _Counter()
        with torch.no_grad(), counter:
            output = call()
        counter.use(_tensors(output))
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
    return counter.result()


def zero_tile_share(tensor: torch.Tensor) -> float:
    """Share of 16 x 16 tiles of the last two axes that are all zero: half in a triangle, nearly 1 in a diagonal."""
    if tensor.ndim < 2 or min(tensor.shape[-2:]) < 2 * _TILE:
        return 0.0
    rows, columns = (size // _TILE * _TILE for size in tensor.shape[-2:])
    whole = tensor[..., :rows, :columns].ne(0)
    tiles = whole.reshape(*whole.shape[:-2], rows // _TILE, _TILE, columns // _TILE, _TILE)
    return float(1 - tiles.any(-1).any(-2).float().mean())


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every ATen operation of a call."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Whether torch guards the class against torch.compile, for which it imports that at the first operation: two
        seconds and more, and nothing is compiled here."""
        return False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._products: list[_Product] = []
        #: Tensor -> `_Origin`.
        self._origins = WeakIdKeyDictionary()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        keywords = dict(kwargs or {})
        operands = _tensors([args, keywords])
        name = func.overloadpacket.__name__
        result = func(*args, **keywords)
        results = _tensors(result)
        operations = _operations_of(func, name, args, keywords, result)
        if operations and results:
            self._multiply(name, operations, operands, results[0], args)
        elif results:
            self._follow(func, name, operands, results)
        return result

    def use(self, tensors: Sequence[torch.Tensor], *, without: Container[int] = ()) -> None:
        """Count these tensors as used, except for the products `without`."""
        for tensor in tensors:
            for index in self._origin(tensor):
                if index not in without:
                    self._products[index].used += tensor.numel()

    def result(self) -> Operations:
        """The count so far."""
        certain, required, unused, phrases = 0, 0.0, 0, []
        for product in self._products:
            if product.used >= _KEPT_SHARE * product.elements:
                certain += product.certain
                required += product.operations * (1 - product.empty)
                if product.empty:
                    phrases.append(f"{percent(product.empty)} of an operand of a {product.name} are blocks of zeros")
            elif product.summed:
                phrases.append(f"the result of a {product.name} ({product.elements:,} elements) is summed up linearly")
            elif product.used:
                required += product.operations * product.used / product.elements
                phrases.append(f"{percent(product.used / product.elements)} of the result of a {product.name} is used")
            else:
                unused += 1
        return Operations(
            total=sum(product.operations for product in self._products),
            certain=certain,
            required=round(required),
            redundant=tuple(dict.fromkeys(phrases)),
            unused=unused,
        )

    def _multiply(
        self, name: str, operations: int, operands: Sequence[torch.Tensor], result: torch.Tensor, args: Sequence[Any]
    ) -> None:
        # Winograd and FFT need at least one product for an output and pair of channels of a convolution.
        certain = operations // max(1, int(prod(args[1].shape[2:]))) if "conv" in name else operations
        for index, linear in self._merged(operands).items():
            if linear:  # (A B) C = A (B C): neither product is certain
                self._products[index].certain = 0
                certain = 0
        addresses = [tensor.data_ptr() for tensor in operands if tensor.numel()]
        if len(set(addresses)) < len(addresses):  # A @ A.T has half as many different elements
            certain = 0
        empty = max((zero_tile_share(tensor) for tensor in operands), default=0.0)
        # Attention may skip pairs where it has a mask tensor, or a true flag (causal).
        masked = len(_tensors(args)) > 3 or any(argument is True for argument in args)
        if empty > ZERO_SHARE or ("attention" in name and masked):
            certain = 0
        self.use(operands)
        product = _Product(
            name=_plain(name),
            operations=operations,
            certain=certain,
            elements=result.numel(),
            empty=empty if empty > ZERO_SHARE else 0.0,
        )
        self._products.append(product)
        self._origins[result] = {len(self._products) - 1: True}

    def _follow(self, func: Any, name: str, operands: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        sources = self._merged(operands)
        if not sources:
            return
        if name in _LINEAR or (name in _SCALING and sum(bool(self._origin(tensor)) for tensor in operands) == 1):
            origin = sources
        elif torch.Tag.pointwise in func.tags:
            origin = dict.fromkeys(sources, False)
        else:
            linear = {index for index, linear in sources.items() if linear and name in _SUMMING}
            self.use(operands, without=linear)
            little = {index for index in linear if results[0].numel() < _KEPT_SHARE * self._products[index].elements}
            for index in little:  # a linear step left so little that a kernel need not compute the product
                self._products[index].summed = True
            origin = dict.fromkeys(linear - little, True)
        for tensor in results:
            self._origins[tensor] = origin

    def _origin(self, tensor: torch.Tensor) -> _Origin:
        origin: _Origin = self._origins.get(tensor, {})  # type: ignore[no-untyped-call]
        return origin

    def _merged(self, tensors: Sequence[torch.Tensor]) -> dict[int, bool]:
        """Linear if any part is: a sum of a linear and another part can be split."""
        merged: dict[int, bool] = {}
        for tensor in tensors:
            for index, linear in self._origin(tensor).items():
                merged[index] = merged.get(index, False) or linear
        return merged


def _operations_of(func: Any, name: str, args: Sequence[Any], keywords: Mapping[str, Any], result: Any) -> int:
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return int(formula(*args, **keywords, out_val=result))
    if name.startswith("_scaled_dot_product") and len(args) >= 3:  # variants missing in torch's own table
        query, key, value = args[:3]
        pairs = prod(query.shape[:-1]) * key.shape[-2]
        return int(2 * pairs * (query.shape[-1] + value.shape[-1]))
    if name in ("_cudnn_rnn", "mkldnn_rnn_layer"):
        weights = args[1] if name == "_cudnn_rnn" else args[1:3]
        return int(2 * prod(args[0].shape[:-1]) * sum(weight.numel() for weight in weights if weight.ndim == 2))
    return 0


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _plain(name: str) -> str:
    """A common name for ATen's name."""
    if "conv" in name:
        return "convolution"
    return "attention" if "attention" in name else "recurrent layer" if "rnn" in name else "matrix product"
