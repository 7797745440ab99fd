"""The calls of a library in Inductor's code, and which templates can compute each of them.

A call's sizes decide what is offered and what a search begins with: `configs/templates` says what each template is for.
"""

import ast
import math
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass

from kbevolve.configs.syntax import literal

#: Calls of Inductor's code that have a counterpart in a template: those that write to a buffer, and one that does not.
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_CONVOLUTION = "convolution"
_SPLIT, _GATHERED, _SMALL = "split_convolution", "gathered_convolution", "small_convolution"
_STAGED, _WINDOW, _FUSED_WINDOW = "staged_convolution", "window_convolution", "fused_window"
_DIRECT, _ATTENTION = "direct_convolution", "split_attention"
_PRODUCT, _FUSED, _FUSED_GATHERED, _GROUPED = "fused_product", "fused_convolution", "fused_gathered", "fused_grouped"
_FUSED_SMALL, _ROWS = "fused_small", "row_statistics"
_SKINNY, _FUSED_SKINNY = "skinny_product", "fused_skinny"
#: Operators of `attention.py` and `fusion.py` -> the template's function, and that of the library.
_CALLS = {
    "torch.ops.kbevolve.attention.default": (_ATTENTION, "attend_by_library"),
    "torch.ops.kbevolve.rows.default": (_ROWS, "rows_by_library"),
    "torch.ops.kbevolve.product.default": (_PRODUCT, "fused_product_by_library"),
    "torch.ops.kbevolve.convolution.default": (_FUSED, "fused_convolution_by_library"),
    "torch.ops.kbevolve.grouped.default": (_GROUPED, "fused_grouped_by_library"),
}
#: The places of `stride` and `transposed` among the arguments of our operator for convolutions.
_STRIDE, _TRANSPOSED = 3, 6
#: The files that a template's function needs, and those that have its tunables.
_PRODUCT_FILES = ("split_pairs", "split_products")
_CONVOLUTION_FILES = (*_PRODUCT_FILES, "convolution_product", "convolution_steps", "split_convolution")
_CUDA_FILES = ("cuda_library", "cuda_convolution")
_FILES = {
    _SPLIT: _CONVOLUTION_FILES,
    _GATHERED: (*_CUDA_FILES, _STAGED, _GATHERED),
    _DIRECT: (_DIRECT,),
    _ATTENTION: ("attention_pairs", "attention_tiles", _ATTENTION),
    _ROWS: (_ROWS,),
    _PRODUCT: ("functions", *_PRODUCT_FILES, "fused_products"),
    _FUSED: ("functions", *_CONVOLUTION_FILES, "fused_products", "fused_convolutions"),
    _FUSED_GATHERED: (*_CUDA_FILES, _STAGED, _GATHERED, "fused_gathers"),
    _WINDOW: (*_CUDA_FILES, _WINDOW),
    _FUSED_WINDOW: (*_CUDA_FILES, _WINDOW, _FUSED_WINDOW),
    _SMALL: (_SMALL,),
    _FUSED_SMALL: (_SMALL, _FUSED_SMALL),
    "skinny_mm": (*_PRODUCT_FILES, _SKINNY),
    "skinny_addmm": (*_PRODUCT_FILES, _SKINNY),
    _FUSED_SKINNY: (*_PRODUCT_FILES, _SKINNY, "fused_products", _FUSED_SKINNY),
    _GROUPED: ("functions", _DIRECT, "fused_groups"),
}
_TUNED = {
    _SPLIT: ("convolution_product",),
    _FUSED: ("convolution_product",),
    _GATHERED: (_STAGED, _GATHERED),
    _FUSED_GATHERED: (_STAGED, _GATHERED),
    _WINDOW: (_WINDOW,),
    _FUSED_WINDOW: (_WINDOW,),
    _SMALL: (_SMALL,),
    _FUSED_SMALL: (_SMALL,),
    "skinny_mm": (_SKINNY,),
    "skinny_addmm": (_SKINNY,),
    _FUSED_SKINNY: (_SKINNY,),
    _DIRECT: (_DIRECT,),
    _GROUPED: (_DIRECT,),
    _ATTENTION: (_ATTENTION,),
    _ROWS: (_ROWS,),
}
#: What computes convolutions of few channels, too: as `gather_fits` of the template has it.
_GATHERS = {_SPLIT: _GATHERED, _FUSED: _FUSED_GATHERED}
MOST_CHANNELS = 8
#: What computes those of a step of 1 whose filters fit into shared memory: the most pairs of taps of eight channels,
#: and bytes of all filters, as `window_constants` of the template has it.
_BY_WINDOWS = {_SPLIT: _WINDOW, _FUSED: _FUSED_WINDOW}
_MOST_STEPS, _MOST_BYTES = 48, 110_000
#: What computes them in one launch, the most floating-point operations that are offered to it, and the most with which
#: a search begins with it, for filters of one tap and of more (docs/results/2026-11-28-small-convolutions.md). All but
#: one of GoogleNet's 57 convolutions of ten images have fewer than the first.
_IN_ONE_LAUNCH = {_SPLIT: _SMALL, _FUSED: _FUSED_SMALL}
_MOST_SMALL = 4e9
_MOST_SMALL_FIRST, _MOST_SMALL_FIRST_OF_TAPS = 1.5e9, 4e8
#: Taps of a filter have a bit each: as `small_fits` of the template has it.
_MOST_TAPS = 31
#: What computes products of few rows, too, the most rows and fewest weights that are offered to it, and the fewest
#: columns with which a search begins with it: then 64 multiprocessors read weights.
_OF_FEW_ROWS = {"split_mm": "skinny_mm", "split_addmm": "skinny_addmm", _PRODUCT: _FUSED_SKINNY}
_MOST_ROWS, _FEWEST_WEIGHTS, _FEWEST_COLUMNS_FIRST = 256, 2**24, 8192


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call that templates can compute: by value 1 of its tunable the first of them, by 2 the second, and so on."""

    function: ast.Attribute
    templates: tuple[str, ...]
    #: The number of the one that a search starts with.
    first: int
    #: The sizes of its weights, [filters, channels, …] or [K, N]; () where they are not known.
    weights: tuple[int, ...]

    @property
    def files(self) -> set[str]:
        """The files of `configs/templates` that its templates need."""
        return {name for one in self.templates for name in _FILES.get(one, _PRODUCT_FILES)}

    def kinds(self) -> Iterator[Hashable]:
        """What it has in common with others, from much to little."""
        one_by_one = all(size == 1 for size in self.weights[2:])
        products = self.weights[:1] if len(self.weights) == 2 else self.weights[1:]  # of one result
        yield self.templates, self.weights
        yield self.templates, one_by_one, math.prod(products).bit_length() // 2
        yield self.templates, one_by_one

    def choice(self, tunable: str) -> str:
        """What is called, in Python; the library's function for 0."""
        theirs = ast.unparse(self.function)
        first, *others = self.templates
        by_number = (f"{one} if {tunable} == {number} else " for number, one in enumerate(others, 2))
        chosen = f"{first} if {tunable} else {_CALLS[theirs][1] if theirs in _CALLS else theirs}"
        return f"({''.join(by_number)}{chosen})"

    def condition(self, tunable: str, name: str) -> str:
        """When the values of a template's file have an effect, as tunables say it; "" for never."""
        values = [at for at, one in enumerate(self.templates, 1) if name in _TUNED.get(one, ("split_products",))]
        alone = len(self.templates) == 1
        return tunable if values and alone else f"{tunable} == {values[0]}" if values else ""


def library_calls(tree: ast.AST) -> list[LibraryCall]:
    """Those that templates can compute, in the order of the text."""
    sizes, results = _sizes(tree), _results(tree)
    found = (_call_at(node, sizes, sizes.get(results.get(id(node), ""), ())) for node in ast.walk(tree))
    return sorted(filter(None, found), key=lambda call: (call.function.lineno, call.function.col_offset))


def _sizes(tree: ast.AST) -> Mapping[str, tuple[int, ...]]:
    """The sizes of tensors that Inductor's code asserts, by the names of their variables."""
    found: dict[str, tuple[int, ...]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="assert_size_stride"), args=[ast.Name(id=name), ast.Tuple() as sizes, *_]):
                found[name] = literal(sizes)
    return found


def _results(tree: ast.AST) -> Mapping[int, str]:
    """The variable that each call's result is assigned to, by the id of the call's node."""
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call):
                found[id(call)] = name
    return found


def _call_at(node: ast.AST, sizes: Mapping[str, tuple[int, ...]], result: tuple[int, ...]) -> LibraryCall | None:
    """A call that templates can take over; `result`: the sizes of its result, () where they are not known."""
    match node:
        case ast.Call(func=ast.Attribute() as function, args=given) if (name := ast.unparse(function)) in _CALLS:
            ours = _CALLS[name][0]
            turned = ours == _FUSED and ast.unparse(given[_TRANSPOSED]) == "True"
            stride = ast.unparse(given[_STRIDE]) if ours == _FUSED else ""
            weights = () if ours == _ATTENTION else _sizes_of(given[1], sizes)
            if ours == _PRODUCT:
                return _product(function, ours, given[0], given[1], sizes)
            return _offered(function, ours, weights, result, turned, stride)
        case ast.Call(func=ast.Attribute(value=ast.Name(id="extern_kernels")) as function, args=given, keywords=named):
            by_name = {keyword.arg: ast.unparse(keyword.value) for keyword in named}
            weights = _sizes_of(given[-1], sizes) if given else ()
            if function.attr in _PRODUCTS and "out" in by_name:
                return _product(function, f"split_{function.attr}", given[-2], given[-1], sizes)
            if function.attr == _CONVOLUTION and by_name.get("groups") == "1":
                turned = by_name.get("transposed") == "True"
                return _offered(function, _SPLIT, weights, result, turned, by_name.get("stride", ""))
            if function.attr == _CONVOLUTION and by_name.get("transposed") == "False":
                return _offered(function, _DIRECT, weights)
    return None


def _offered(
    function: ast.Attribute,
    ours: str,
    weights: tuple[int, ...],
    result: tuple[int, ...] = (),
    turned: bool = False,
    stride: str = "",
) -> LibraryCall:
    """A call for one template, and for those of few channels, of one launch and by windows where its sizes suit."""
    templates, plain, taps = [ours], not turned and len(weights) > 2, math.prod(weights[2:])
    few = plain and ours in _GATHERS and weights[1] <= MOST_CHANNELS
    if few:
        templates.append(_GATHERS[ours])
    first = len(templates)
    operations = 2 * math.prod((*result, *weights[1:])) if result else math.inf
    small = operations <= (_MOST_SMALL_FIRST if taps == 1 else _MOST_SMALL_FIRST_OF_TAPS) and not few
    if plain and ours in _IN_ONE_LAUNCH and operations <= _MOST_SMALL and taps <= _MOST_TAPS:
        templates.append(_IN_ONE_LAUNCH[ours])
        first = len(templates) if small else first
    if ours in _BY_WINDOWS and len(weights) > 2 and _by_windows(weights, turned, stride):
        templates.append(_BY_WINDOWS[ours])
        first = first if small else len(templates)
    return LibraryCall(function, tuple(templates), first, weights)


def _by_windows(weights: tuple[int, ...], turned: bool, stride: str) -> bool:
    """Whether the template for windows takes filters of these sizes and a step that is written so."""
    filters, channels = weights[1::-1] if turned else weights[:2]
    steps = math.ceil(math.prod(weights[2:]) * math.ceil(channels / 8) / 2)
    several = 8 if filters <= 64 else 64
    held = 64 * steps * math.ceil(filters / several) * several
    alone = bool(stride) and set(stride) <= set("[(1, )]")
    return alone and steps <= _MOST_STEPS and held <= _MOST_BYTES and channels % 8 not in (1, 2, 3)


def _product(
    function: ast.Attribute, ours: str, rows: ast.expr, columns: ast.expr, sizes: Mapping[str, tuple[int, ...]]
) -> LibraryCall:
    """A call for one template, and for that of few rows where its columns are known to be the rows of a tensor."""
    templates, first = [ours], 1
    shape, weights = _sizes_of(rows, sizes), _sizes_of(columns, sizes)
    match columns:
        case ast.Call(args=[_, _, ast.Tuple(elts=[ast.Constant(1), _]), *_]) if shape and ours in _OF_FEW_ROWS:
            if math.prod(shape[:-1]) <= _MOST_ROWS and math.prod(weights) >= _FEWEST_WEIGHTS:
                templates.append(_OF_FEW_ROWS[ours])
                first = 2 if weights[-1] >= _FEWEST_COLUMNS_FIRST else 1
    return LibraryCall(function, tuple(templates), first, weights)


def _sizes_of(argument: ast.expr, sizes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The sizes of a tensor that is an argument; () where the code does not show them."""
    match argument:
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[_, ast.Tuple() as shape, *_]):
            found: tuple[int, ...] = literal(shape)
            return found
    return sizes.get(ast.unparse(argument), ())
