"""Tunables in the kernels of torch.compile: which kernels get them, and that nothing else of the file changes."""

import ast

import pytest

from kbevolve.evolve.proposers.seeds.tunable_kernels import with_tunable_kernels
from kbevolve.evolve.proposers.tuning.constraints import fits
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values

KERNEL = """

{name} = async_compile.triton('{name}', '''
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
triton_helpers.set_driver_to_gpu()

@triton.jit
def _triton_helper_fn_add0(arg0_0, arg1_0):
    return arg0_0 + arg1_0

@triton_heuristics.{kind}(
    size_hints={sizes},
    {hint}filename=__file__,
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'xnumel': 'i32'}}, 'constants': {{}}}},
    inductor_meta={{'grid_type': 'Grid1D', 'autotune_hints': set(), 'num_load': {loads}, 'num_store': 1}}
)
@triton.jit
def {name}(in_ptr0, xnumel{blocks}):
    xnumel = 4096
    tl.store(in_ptr0 + tl.arange(0, XBLOCK), 0.0, None)
''', device_str='cuda')
"""


def kernel(
    kind: str,
    sizes: dict[str, int],
    blocks: tuple[str, ...],
    *,
    name: str = "triton_poi_fused_0",
    hint: str = "",
    loads: int = 2,
) -> str:
    """A generated kernel as Inductor writes it."""
    arguments = "".join(f", {block} : tl.constexpr" for block in blocks)
    hint = f"reduction_hint=ReductionHint.{hint},\n    " if hint else ""
    return KERNEL.format(name=name, kind=kind, sizes=sizes, hint=hint, loads=loads, blocks=arguments)


def tuned(*kernels: str) -> str:
    found = with_tunable_kernels(f"import torch\n{''.join(kernels)}\nclass ModelNew: ...\n")
    assert found is not None
    for text in found.split("'''")[1::2]:
        ast.parse(text)
    return found


@pytest.mark.parametrize(
    ("kind", "sizes", "blocks", "hint", "values"),
    [
        ("pointwise", {"x": 1 << 20}, ("XBLOCK",), "", {"XBLOCK": "1024", "WARPS": "4"}),
        (
            "pointwise",
            {"y": 1 << 12, "x": 1 << 12},
            ("YBLOCK", "XBLOCK"),
            "",
            {"YBLOCK": "32", "XBLOCK": "32", "WARPS": "4"},
        ),
        (
            "reduction",
            {"x": 1 << 10, "r0_": 1 << 20},
            ("XBLOCK", "R0_BLOCK"),
            "INNER",
            {"XBLOCK": "1", "R0_BLOCK": "2048", "WARPS": "8", "STAGES": "1"},
        ),
        (
            "reduction",
            {"x": 1 << 20, "r0_": 1 << 10},
            ("XBLOCK", "R0_BLOCK"),
            "DEFAULT",
            {"XBLOCK": "64", "R0_BLOCK": "32", "WARPS": "8", "STAGES": "1"},
        ),
        ("persistent_reduction", {"x": 1 << 10, "r0_": 512}, ("XBLOCK",), "INNER", {"XBLOCK": "2", "WARPS": "4"}),
        # Its rows are launched one by one.
        ("persistent_reduction", {"x": 1 << 10, "r0_": 1024}, (), "INNER", {"WARPS": "4"}),
        ("split_scan", {"x": 1, "r0_": 1 << 24}, ("R0_BLOCK",), "DEFAULT", {"R0_BLOCK": "2048", "WARPS": "8"}),
    ],
)
def test_each_form_has_its_blocks_and_warps(
    kind: str, sizes: dict[str, int], blocks: tuple[str, ...], hint: str, values: dict[str, str]
) -> None:
    source = tuned(kernel(kind, sizes, blocks, hint=hint))
    assert values_of(source) == {f"KERNEL_0_{name}": value for name, value in values.items()}
    assert "@triton_heuristics.fixed_config(" in source
    assert f"@triton_heuristics.{kind}(" not in source


def test_choices_are_powers_of_two_within_the_sizes() -> None:
    source = tuned(kernel("reduction", {"x": 16, "r0_": 1024}, ("XBLOCK", "R0_BLOCK"), hint="INNER"))
    choices = {one.name: one.choices for one in declared(source)}
    assert choices["KERNEL_0_XBLOCK"] == ("1", "2", "4", "8", "16")
    assert choices["KERNEL_0_R0_BLOCK"] == ("256", "512", "1024")


def test_blocks_are_wide_along_neighbours_in_memory() -> None:
    sizes, blocks = {"x": 1 << 20, "r0_": 4096}, ("XBLOCK", "R0_BLOCK")
    scored = kernel("reduction", sizes, blocks, hint="INNER").replace(
        "'num_store': 1", "'num_store': 1, 'tiling_scores': {'x': 9, 'r0_': 0}"
    )
    for source, least in ((tuned(scored), 16), (tuned(kernel("reduction", sizes, blocks, hint="INNER")), 1)):
        choices = {one.name: one.choices for one in declared(source)}
        assert int(choices["KERNEL_0_XBLOCK"][0]) == least


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"KERNEL_0_XBLOCK": "16", "KERNEL_0_R0_BLOCK": "8192"}, False),  # 512 elements a thread
        ({"KERNEL_0_XBLOCK": "2", "KERNEL_0_R0_BLOCK": "8192", "KERNEL_0_WARPS": "32"}, True),
        ({"KERNEL_0_R0_BLOCK": "256", "KERNEL_0_WARPS": "32"}, False),  # threads without an element
    ],
)
def test_a_thread_has_1_to_32_elements(changed: dict[str, str], expected: bool) -> None:
    source = tuned(kernel("reduction", {"x": 1 << 12, "r0_": 1 << 17}, ("XBLOCK", "R0_BLOCK"), hint="INNER"))
    assert fits(source, values_of(source) | changed) == expected


def test_a_row_that_is_in_one_block_counts() -> None:
    source = tuned(kernel("persistent_reduction", {"x": 1 << 10, "r0_": 1000}, ("XBLOCK",), hint="INNER"))
    assert fits(source, values_of(source))
    assert fits(source, values_of(source) | {"KERNEL_0_XBLOCK": "4"})
    assert not fits(source, values_of(source) | {"KERNEL_0_XBLOCK": "8"})


def test_only_the_largest_kernels_have_tunables() -> None:
    sizes = {f"kernel_{power}": 1 << power for power in (20, 21, 22, 23, 12)}
    source = tuned(*(kernel("pointwise", {"x": size}, ("XBLOCK",), name=name) for name, size in sizes.items()))
    tunable = [part.split("'")[0] for part in source.split("triton('")[1:] if "# tune:" in part.split("'''")[1]]
    assert tunable == ["kernel_21", "kernel_22", "kernel_23"]
    # The largest is the first.
    assert "KERNEL_0_XBLOCK" in source.partition("triton('kernel_23'")[2].partition("'''")[2].partition("'''")[0]


def test_the_rest_of_the_file_is_as_it_was() -> None:
    before = f"import torch\n{kernel('pointwise', {'x': 1 << 20}, ('XBLOCK',))}\nclass ModelNew: ...\n"
    source = with_tunable_kernels(before)
    assert source is not None
    head, _, body = before.partition("@triton_heuristics.")
    assert source.startswith(head)
    assert source.endswith(body[body.index("@triton.jit") :])
    for meta in ("triton_meta={'signature'", "inductor_meta={'grid_type'"):
        line = next(line.strip() for line in before.splitlines() if meta in line)
        assert line.rstrip(",") in source


def test_values_are_set_as_in_every_kernel() -> None:
    source = tuned(kernel("pointwise", {"x": 1 << 20}, ("XBLOCK",)))
    assert values_of(with_values(source, {"KERNEL_0_XBLOCK": "256"}))["KERNEL_0_XBLOCK"] == "256"


@pytest.mark.parametrize(
    "source",
    [
        "import torch\nclass ModelNew: ...\n",
        kernel("pointwise", {"x": 64, "y": 64, "z": 64}, ("XBLOCK", "YBLOCK", "ZBLOCK")),
        kernel("reduction", {"x": 64, "r0_": 64, "r1_": 64}, ("XBLOCK", "R0_BLOCK", "R1_BLOCK"), hint="INNER"),
        kernel("template", {"x": 64}, ("XBLOCK",)),
        kernel("cooperative_reduction", {"x": 64, "r0_": 64}, ("XBLOCK", "R0_BLOCK", "RSPLIT"), hint="INNER"),
    ],
)
def test_other_files_have_nothing_to_tune(source: str) -> None:
    assert with_tunable_kernels(source) is None
