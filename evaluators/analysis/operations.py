"""The arithmetic of one call: how many operations its products take, and how many of those nobody can save.

Counted are the operations that dominate where there are any: matrix products, convolutions, attention, recurrent
layers (twice the multiplications). Elementwise work and reductions are not; memory bounds those.

A count bounds the time of honest kernels only where algebra cannot shrink it. The sum over the rows of A @ B is a
vector times B; (A @ B) @ C may be A @ (B @ C). So each tensor carries along which products it was made of, and
whether by linear steps only; products whose results are later summed up, multiplied on, mostly thrown away or never
used are not certain, nor are those with blocks of zeros in an operand. In doubt a product is not certain: a bound too
low misses a cheat that others catch, a bound too high would reject honest work.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

#: A result with fewer than this share of a product's elements was summed up or cut from it.
_KEPT_SHARE = 0.5
#: Share of zero tiles (or of zeros, in an input) above which work is there to be skipped: a triangle has half.
ZERO_SHARE = 0.25
_TILE = 16

#: Steps that move a tensor, take a part of it, or add tensors: what was linear stays so.
_LINEAR = {
    "view", "_unsafe_view", "_reshape_alias", "t", "transpose", "permute", "expand", "squeeze", "unsqueeze", "alias",
    "detach", "clone", "_to_copy", "copy_", "lift_fresh", "constant_pad_nd", "cat", "stack", "flip", "roll",
    "slice", "select", "index", "index_select", "gather", "split", "split_with_sizes", "unbind", "diagonal", "tril",
    "triu", "masked_select", "as_strided", "unfold", "add", "add_", "sub", "sub_", "rsub", "neg", "neg_",
}  # fmt: skip
#: Steps that are linear in one operand when the others are no products themselves.
_SCALING = {"mul", "mul_", "div", "div_"}
#: Linear steps that may sum up; normalising by fixed statistics is linear and sums nothing.
_SUMMING = {
    "sum", "mean", "avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "cumsum",
    "native_batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "_batch_norm_no_update",
    "upsample_bilinear2d", "upsample_nearest2d", "mv", "dot",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What one call computes."""

    #: Floating-point operations of all products, attention and recurrent layers.
    total: int
    #: Those that no rearrangement is known to save.
    certain: int
    #: Why the rest of the work could be left out, as far as a person would call it redundant; one phrase each.
    redundant: tuple[str, ...] = ()
    #: Number of products whose results nothing uses.
    unused: int = 0


@dataclass(slots=True, kw_only=True)
class _Product:
    """One product that was executed."""

    name: str
    operations: int
    certain: int
    elements: int
    #: Elements of it, or made of it one by one, that something used.
    used: int = 0
    summed: bool = False
    #: Share of an operand's tiles that are zero, where that is worth skipping.
    empty: float = 0.0


#: Which products a tensor was made of -> whether by linear steps only.
_Origin = Mapping[int, bool]


def count_operations(call: Callable[[], Any]) -> Operations:
    """Run a call once and count.

    Args:
        call: a forward pass; what it returns counts as used.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    # The fused encoder layer is one opaque operation that hides its products.
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
    """Share of 16 x 16 tiles of the last two axes that hold zeros only: half in a triangle, nearly 1 in a diagonal."""
    if tensor.ndim < 2 or min(tensor.shape[-2:]) < 2 * _TILE:
        return 0.0
    rows, columns = (size // _TILE * _TILE for size in tensor.shape[-2:])
    whole = tensor[..., :rows, :columns].ne(0)
    tiles = whole.reshape(*whole.shape[:-2], rows // _TILE, _TILE, columns // _TILE, _TILE)
    return float(1 - tiles.any(-1).any(-2).float().mean())


@dataclass(slots=True)
class _Ledger:
    products: list[_Product] = field(default_factory=list)
    origins: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches every ATen operation of a call."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledger = _Ledger()

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
        """Something needs all of these, except for the products named."""
        for tensor in tensors:
            for index in self._origin(tensor):
                if index not in without:
                    self._ledger.products[index].used += tensor.numel()

    def result(self) -> Operations:
        """What was counted so far."""
        products = self._ledger.products
        certain, unused, phrases = 0, 0, []
        for product in products:
            if product.used >= _KEPT_SHARE * product.elements:
                certain += product.certain
                if product.empty:
                    phrases.append(f"{product.empty:.0%} of an operand of a {product.name} are blocks of zeros")
            elif product.summed:
                phrases.append(
                    f"the result of a {product.name} ({_si(product.elements)} elements) is summed up linearly"
                )
            elif product.used:
                phrases.append(f"{product.used / product.elements:.0%} of the result of a {product.name} is used")
            else:
                unused += 1
        return Operations(
            total=sum(product.operations for product in products),
            certain=certain,
            redundant=tuple(dict.fromkeys(phrases)),
            unused=unused,
        )

    def _multiply(
        self, name: str, operations: int, operands: Sequence[torch.Tensor], result: torch.Tensor, args: Sequence[Any]
    ) -> None:
        sources = self._merged(operands)
        certain = operations // _kernel_volume(name, args)
        for index, linear in sources.items():
            if linear:  # (A B) C = A (B C): neither product is certain
                self._ledger.products[index].certain = 0
                certain = 0
        addresses = [tensor.data_ptr() for tensor in operands if tensor.numel()]
        if len(set(addresses)) < len(addresses):  # A @ A.T has half as many different elements
            certain = 0
        empty = max((zero_tile_share(tensor) for tensor in operands), default=0.0)
        if empty > ZERO_SHARE or ("attention" in name and _masked(args)):
            certain = 0
        self.use(operands)
        product = _Product(
            name=_plain(name),
            operations=operations,
            certain=certain,
            elements=result.numel(),
            empty=empty if empty > ZERO_SHARE else 0.0,
        )
        self._ledger.products.append(product)
        self._ledger.origins[result] = {len(self._ledger.products) - 1: True}

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
            origin = {index: True for index in linear if not self._sum(index, results[0])}
        for tensor in results:
            self._ledger.origins[tensor] = origin

    def _sum(self, index: int, result: torch.Tensor) -> bool:
        """Whether a linear step left so little of a product that the product itself is not needed for it."""
        product = self._ledger.products[index]
        little = result.numel() < _KEPT_SHARE * product.elements
        product.summed |= little
        return little

    def _origin(self, tensor: torch.Tensor) -> _Origin:
        origin: _Origin = self._ledger.origins.get(tensor, {})  # type: ignore[no-untyped-call]
        return origin

    def _merged(self, tensors: Sequence[torch.Tensor]) -> dict[int, bool]:
        """Linear if any part is: the sum of a linear and another part can be taken apart."""
        merged: dict[int, bool] = {}
        for tensor in tensors:
            for index, linear in self._origin(tensor).items():
                merged[index] = merged.get(index, False) or linear
        return merged


def _operations_of(func: Any, name: str, args: Sequence[Any], keywords: Mapping[str, Any], result: Any) -> int:
    formula = flop_registry.get(func.overloadpacket)
    if formula is not None:
        return int(formula(*args, **keywords, out_val=result))
    if name.startswith("_scaled_dot_product") and len(args) >= 3:  # those that torch's own table leaves out
        query, key, value = args[:3]
        pairs = prod(query.shape[:-1]) * key.shape[-2]
        return int(2 * pairs * (query.shape[-1] + value.shape[-1]))
    if name in ("_cudnn_rnn", "mkldnn_rnn_layer"):
        weights = args[1] if name == "_cudnn_rnn" else args[1:3]
        return int(2 * prod(args[0].shape[:-1]) * sum(weight.numel() for weight in weights if weight.ndim == 2))
    return 0


def _kernel_volume(name: str, args: Sequence[Any]) -> int:
    """What a convolution may save: Winograd and FFT multiply down to once for each output and pair of channels."""
    if "conv" not in name:
        return 1
    return max(1, int(prod(args[1].shape[2:])))


def _masked(args: Sequence[Any]) -> bool:
    """Whether attention may skip pairs: a mask among the tensors, or causal (a true among the flags)."""
    return len(_tensors(args)) > 3 or any(argument is True for argument in args)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _plain(name: str) -> str:
    """ATen's name in a reader's words."""
    if "conv" in name:
        return "convolution"
    return "attention" if "attention" in name else "recurrent layer" if "rnn" in name else "matrix product"


def _si(count: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= factor:
            return f"{count / factor:.3g} {unit}".replace(" ", "")
    return f"{count:.3g}"
