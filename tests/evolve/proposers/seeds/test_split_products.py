"""Inductor's code gets a template's products in place of a library's, each with a tunable."""

import ast
import re
from itertools import combinations, pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evolve.proposers.seeds.library_calls import MOST_CHANNELS
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.constraints import fits, idle
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values
from tests.evolve.proposers.seeds.template_functions import cuda_text, template_functions

#: As Inductor writes it for a GPU, with its products alone.
CODE = '''"""What torch.compile (Inductor) generates, called by a ModelNew."""

import torch._inductor.config

torch._inductor.config.compile_threads = 1

import torch
from torch._inductor.select_algorithm import extern_kernels
reinterpret_tensor = torch._C._dynamo.guards._reinterpret_tensor


class Runner:
    def call(self, args):
        a, b, bias = args
        buf0 = torch.empty(4, 6)
        extern_kernels.mm(a, reinterpret_tensor(b, (5, 6), (1, 5), 0), out=buf0)
        buf1 = torch.empty(4, 6)
        extern_kernels.addmm(bias, a, reinterpret_tensor(b, (5, 6), (1, 5), 0), alpha=1, beta=2, out=buf1)
        buf2 = extern_kernels.convolution(buf0[None], buf1[None, :1, :1], stride=(1,), padding=(0,), dilation=(1,),
            transposed=True, output_padding=(0,), groups=4, bias=None) if 0 else buf0 + buf1
        return buf2
'''


class Doubles:
    """Stand for the template's functions, and count their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def mm(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        self.calls.append("mm")
        torch.mm(a, b, out=out)

    def addmm(self, c: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor, **scalars: float) -> None:
        self.calls.append("addmm")
        torch.addmm(c, a, b, out=out, **scalars)


def run(source: str, doubles: Doubles) -> torch.Tensor:
    """The result of the file's Runner; the template, which needs Triton, is cut out."""
    before, templates, more = source.partition("import functools")
    body = before + "#" + more.partition("# The number of a template's code")[2] if templates else source
    names: dict[str, Any] = {"split_mm": doubles.mm, "split_addmm": doubles.addmm}
    exec(body, names)
    torch.manual_seed(0)
    found: torch.Tensor = names["Runner"]().call([torch.randn(4, 5), torch.randn(6, 5), torch.randn(6)])
    return found


def test_each_product_is_the_templates_unless_its_tunable_says_otherwise() -> None:
    source = with_split_products(CODE)
    assert source is not None
    assert source.startswith('"""What torch.compile')
    ast.parse(source)
    switches = {one.name: one.choices for one in declared(source) if one.name.startswith("PRODUCT")}
    assert switches == {"PRODUCT_0": ("1", "0"), "PRODUCT_1": ("1", "0")}
    doubles, library = Doubles(), Doubles()
    split = run(source, doubles)
    plain = run(with_values(source, {"PRODUCT_0": "0"}), library)
    assert doubles.calls == ["mm", "addmm"]
    assert library.calls == ["addmm"]
    assert torch.equal(split, plain)
    assert torch.equal(split, run(CODE, Doubles()))


def test_of_many_products_those_that_are_alike_share_a_tunable() -> None:
    call = "        extern_kernels.mm(a, reinterpret_tensor(b, (5, 6), (1, 5), 0), out=buf0)\n"
    source = with_split_products(CODE.replace(call, 9 * call))
    assert source is not None
    assert [one.name for one in declared(source) if one.name.startswith("PRODUCT")] == ["PRODUCT_0", "PRODUCT_1"]
    doubles = Doubles()
    run(with_values(source, {"PRODUCT_0": "0"}), doubles)
    assert doubles.calls == ["addmm"]


def network(layers: list[tuple[int, ...]]) -> str:
    """Code with a convolution or a product for each shape of weights."""
    lines = ["from x import extern_kernels"]
    for number, shape in enumerate(layers):
        lines.append(f"assert_size_stride(w{number}, {shape}, None)")
        if len(shape) == 2:
            lines.append(f"extern_kernels.addmm(b, a, reinterpret_tensor(w{number}, {shape}, (1, 9), 0), out=c)")
        else:
            form = "stride=(1, 1), transposed=False, groups=1, bias=None"
            lines.append(f"found = extern_kernels.convolution(a, w{number}, {form})")
    return "\n".join(lines) + "\n"


WIDTHS = [64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512]


@pytest.mark.parametrize(
    ("layers", "groups"),
    [
        # Few calls have tunables of their own.
        ([(4, 16, 3, 3)] * 3, [0, 1, 2]),
        # VGG: the first layer is of few channels; then sums of similar lengths, and products.
        (
            [(64, 3, 3, 3), *((wide, before, 3, 3) for before, wide in pairwise(WIDTHS)), (25088, 4096), (4096, 4096)],
            [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 4],
        ),
        # A ResNet's bottlenecks: all of one tap share a tunable, whatever their widths.
        (
            [shape for wide in (8, 32, 128, 512) for shape in ((wide, 4 * wide, 1, 1), (wide, wide, 3, 3))]
            + [(512, 9)],
            None,
        ),
    ],
    ids=["few", "vgg", "resnet"],
)
def test_layers_of_a_network_share_by_their_kind(layers: list[tuple[int, ...]], groups: list[int] | None) -> None:
    source = with_split_products(network(layers))
    assert source is not None
    found = [int(number) for number in re.findall(r"\b(?:split_\w+) if PRODUCT_(\d)", source)]
    assert len(found) == len(layers)
    assert max(found) < 6
    if groups is not None:
        assert found == groups
    for (one, at), (other, place) in combinations(zip(layers, found, strict=True), 2):
        if at == place:
            assert (len(one), set(one[2:])) == (len(other), set(other[2:])), "of one kind"


@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_brings_its_template(transposed: bool) -> None:
    call = f"extern_kernels.convolution(a, b, stride=(1,), transposed={transposed}, groups=1, bias=None)"
    source = with_split_products(f"from x import extern_kernels\nfound = {call}\n")
    assert source is not None
    ast.parse(source)
    assert template("split_convolution") in source
    assert "found = (split_convolution if PRODUCT_0 else extern_kernels.convolution)(a, b, stride" in source
    assert template("split_convolution") not in (with_split_products(CODE) or "")


def test_a_convolution_of_few_channels_has_two_templates() -> None:
    call = "extern_kernels.convolution(a, b, stride=(1,), transposed=False, groups=1, bias=None)"
    sizes = "assert_size_stride(b, (16, 3, 5, 5), (75, 25, 5, 1))"
    source = with_split_products(f"from x import extern_kernels\n{sizes}\nfound = {call}\n")
    assert source is not None
    ast.parse(source)
    choice = (
        "gathered_convolution if PRODUCT_0 == 2 else split_convolution if PRODUCT_0 else extern_kernels.convolution"
    )
    assert f"found = ({choice})(a, b, stride" in source
    values = values_of(source)
    assert values["PRODUCT_0"] == "2"
    assert "CONV_N" in idle(source, values)
    assert "STAGED_CHUNK" not in idle(source, values)
    assert "GATHER_N" in idle(source, values)
    assert "GATHER_N" not in idle(source, values | {"STAGED": "0"})
    assert "STAGED_CHUNK" in idle(source, values | {"STAGED": "0"})
    assert {"STAGED", "STAGED_TURNS", "GATHER_N"} <= idle(source, values | {"PRODUCT_0": "1", "STAGED": "0"})
    many = f"from x import extern_kernels\n{sizes.replace(' 3,', f' {MOST_CHANNELS + 1},')}\nfound = {call}\n"
    assert "gathered" not in (with_split_products(many) or "gathered")
    turned = f"from x import extern_kernels\n{sizes}\nfound = {call.replace('False', 'True')}\n"
    assert "gathered" not in (with_split_products(turned) or "gathered")
    assert f"weight.shape[1] <= {MOST_CHANNELS} " in template("gathered_convolution")


def test_small_products_have_narrow_tiles() -> None:
    text = template("split_products")
    begin = text.index("def split_widths(")
    scope: dict[str, Any] = {"triton": SimpleNamespace(cdiv=lambda size, by: -(-size // by))}
    exec(text[begin : text.index("\n\n\n", begin)], scope)
    others = [(128, 128), (128, 0), (64, 32), (64, 0), (32, 0)]

    def chosen(row_tiles: int, columns: int, widest: tuple[int, int] = (128, 128)) -> tuple[int, int]:
        found: tuple[int, int] = scope["split_widths"](row_tiles, columns, 132, widest, others)
        return found

    assert chosen(132, 200) == (128, 128), "each multiprocessor has a tile"
    assert chosen(4, 384) == (32, 0)
    assert chosen(16, 512) == (64, 0), "narrower ones would be more than the multiprocessors"
    assert chosen(71, 128) == (128, 0)
    assert chosen(4, 16, (16, 0)) == (16, 0), "what is narrow already"


def test_a_convolution_in_groups_adds_up_its_taps() -> None:
    call = "extern_kernels.convolution(a, b, stride=(1,), transposed=False, groups=8, bias=None)"
    source = with_split_products(f"from x import extern_kernels\nfound = {call}\n")
    assert source is not None
    ast.parse(source)
    assert template("direct_convolution") in source
    assert template("split_products") not in source
    assert "found = (direct_convolution if PRODUCT_0 else extern_kernels.convolution)(a, b, stride" in source


def test_an_attention_never_writes_its_scores() -> None:
    call = "torch.ops.kbevolve.attention.default(q, kt, v, None, None, 0.25, False, False)"
    source = with_split_products(f"from x import extern_kernels\nfound = {call}\n")
    assert source is not None
    ast.parse(source)
    assert (
        "found = (split_attention if PRODUCT_0 else attend_by_library)(q, kt, v, None, None, 0.25, False, False)"
        in source
    )
    for name in ("attention_pairs", "attention_tiles", "split_attention"):
        assert template(name) in source
    assert template("split_pairs") not in source
    assert idle(source, values_of(source) | {"PRODUCT_0": "0"}) >= {"ATTEND_M", "ATTEND_N", "ATTEND_STAGES"}


@pytest.mark.parametrize(
    "text",
    [
        "mm(a, b)",
        "_scaled_mm(a, b, out=c)",
        "convolution(a, b, transposed=True, groups=2)",
    ],
)
def test_other_calls_stay(text: str) -> None:
    assert with_split_products(f"from x import extern_kernels\nextern_kernels.{text}\n") is None


PREFIXES = ("split", "conv_", "cuda", "direct", "attend_", "fused_", "epilogue_")
PREFIXES += ("gather", "staged", "small", "skinny", "tf32", "window", "row")


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name != "imports"])
def test_names_of_a_template_are_its_own(name: str) -> None:
    """They stand beside those of Inductor's code and of the user's file."""
    tree = ast.parse(template(name))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    names += [one.name for one in declared(template(name))]
    assert names
    assert all(name.lower().startswith(PREFIXES) for name in names)


def test_tiles_fit_into_shared_memory() -> None:
    text = f"{template('split_products')}\n{template('convolution_product')}"
    assert fits(text, values_of(text))
    assert not fits(text, values_of(text) | {"SPLIT_K": "64", "SPLIT_STAGES": "4"})
    assert not fits(text, values_of(text) | {"CONV_N": "128", "CONV_K": "64", "CONV_STAGES": "4"})


def test_tiles_of_a_template_that_no_call_has_chosen_have_no_effect() -> None:
    source = with_split_products(CODE) or ""
    tiles = {one.name for one in declared(template("split_products"))}
    assert idle(source, values_of(source) | {"PRODUCT_0": "0"}) == set()
    assert idle(source, values_of(source) | {"PRODUCT_0": "0", "PRODUCT_1": "0"}) == tiles


@pytest.mark.parametrize(
    ("sectors", "rows"), [(0, [226, 58, 256, 56]), (1, [232, 58, 262, 56]), (2, [232, 64, 262, 56])]
)
def test_rows_of_pixels_begin_where_sectors_do(sectors: int, rows: list[int]) -> None:
    cdiv = SimpleNamespace(cdiv=lambda a, b: -(-a // b))
    row = template_functions("convolution_steps", CONV_SECTORS=sectors, triton=cdiv)["conv_row"]
    assert [row(*size) for size in ((224, 226), (56, 58), (254, 256), (56, 56))] == rows


def test_filters_stay_in_shared_memory_where_they_fit_beside_the_pixels() -> None:
    held = template_functions("convolution_steps", CONV_STAGES=4)["conv_held"]
    assert held(64, 64, 576, 32) == (18, 18)  # 147456 bytes, and 65536 of pixels
    assert held(64, 64, 1152, 32) == (14, 18)
    assert held(128, 128, 576, 32) == (5, 9)
    assert held(64, 64, 576, 64) == (1, 5)
    assert held(65, 64, 576, 32) == held(192, 192, 64, 32) == (0, 4)
    for columns in (32, 64, 96, 128, 160):
        for bk in (16, 32):
            kept, slots = held(columns, columns, 16 * bk, bk)
            assert 0 <= kept <= slots
            assert 4 * bk * (columns * slots + 128 * 4) <= 212992


@pytest.mark.parametrize(
    ("inputs", "filters", "stride", "padding"),
    [
        ((256, 3, 1, 224, 224), (96, 3, 1, 11, 11), (1, 4, 4), (0, 2, 2)),
        ((64, 3, 1, 224, 224), (64, 3, 1, 7, 7), (1, 2, 2), (0, 3, 3)),
        ((128, 3, 16, 32, 32), (16, 3, 3, 3, 3), (1, 1, 1), (0, 0, 0)),
        ((3, 4, 1, 1, 400), (200, 4, 1, 1, 5), (1, 1, 2), (0, 0, 1)),
    ],
)
def test_what_a_staged_convolution_holds_fits_into_shared_memory(
    inputs: tuple[int, ...], filters: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> None:
    scope = template_functions(
        "cuda_convolution",
        "staged_convolution",
        STAGED_SOURCE=cuda_text("staged_convolution"),
        EPILOGUES_IN_CUDA=("", "value = 2 * value;"),
    )
    found = scope["staged_constants"](inputs, filters, stride, padding)
    held = found["BN"] * (64 * found["STEPS"] + 8) + 16 * found["STEPS"]
    assert held + found["SLOTS"] * (found["SLOT"] + 16) + 8 <= 232448
    assert found["SLOTS"] % 4 == 0
    assert found["SLOTS"] >= min(127 // found["OW"] + 1, found["OH"] - 1) * stride[1] + filters[3]
    assert found["BN"] * found["BLOCKS"] >= filters[0]
    source = scope["staged_source"](found, 1)
    assert "value = 2 * value;" in source
    assert f"m64n{found['BN']}k16" in source
    assert not any(word in source for word in ("CONSTANTS", "PRODUCT", "EPILOGUE", "@"))


@pytest.mark.parametrize(
    ("inputs", "filters", "stride", "padding", "dilation", "turned"),
    [
        ((128, 8, 1, 256, 256), (64, 8, 1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), False),
        ((16, 16, 1, 1024, 1024), (128, 16, 1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1), False),
        ((8, 32, 1, 512, 1024), (32, 32, 1, 3, 7), (1, 1, 1), (0, 1, 3), (1, 1, 1), True),
        ((3, 13, 1, 37, 45), (70, 13, 1, 3, 4), (1, 1, 1), (0, 2, 1), (1, 2, 3), False),
        ((2, 8, 9, 21, 33), (24, 8, 3, 3, 3), (2, 1, 1), (1, 1, 1), (1, 1, 1), False),
        ((2, 8, 1, 1, 7), (8, 8, 1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), False),
    ],
)
def test_what_a_convolution_by_windows_holds_fits_into_shared_memory(
    inputs: tuple[int, ...],
    filters: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    turned: bool,
) -> None:
    scope = template_functions(
        "cuda_convolution",
        "window_convolution",
        WINDOW_SOURCE=cuda_text("window_convolution"),
        EPILOGUES_IN_CUDA=("", "value = 2 * value;"),
    )
    found = scope["window_constants"](inputs, filters, stride, padding, dilation, turned, 132)
    units = found["KD"] * found["KH"] * found["KW"] * found["G"]
    buffer = found["KD"] * found["G"] * (found["LINES"] + (found["KH"] - 1) * found["AH"]) * found["PITCH"] * 32
    held = found["BLOCKS"] * scope["window_packed"](found["FB"], units)
    assert 2 * buffer + held + 64 + 8 * 16 * 72 * 4 <= 232448
    assert found["PITCH"] % 2 == 0
    assert found["COLUMNS"] == found["OW"] or found["COLUMNS"] % 8 == 0
    assert found["PITCH"] >= found["COLUMNS"] + (found["KW"] - 1) * found["AW"]
    assert found["FB"] * found["BLOCKS"] >= found["F"] == filters[1 if turned else 0]
    truth = torch.convolution(
        torch.empty(inputs, device="meta"),
        torch.empty(filters, device="meta"),
        None,
        stride,
        padding,
        dilation,
        turned,
        (0, 0, 0),
        1,
    )
    assert tuple(found[name] for name in ("IMAGES", "F", "OD", "OH", "OW")) == truth.shape
    source = scope["window_source"](found, 1)
    assert "value = 2 * value;" in source
    assert not any(word in source for word in ("CONSTANTS", "PRODUCT", "EPILOGUE", ".cu@"))
    other_steps = (stride[0], 1, 2)
    assert scope["window_constants"](inputs, filters, other_steps, padding, dilation, turned, 132) is None
