"""Small convolutions and products of few rows: which have a template of their own, and which begin with it."""

import ast
from unittest.mock import MagicMock

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.constraints import idle
from kbevolve.evolve.proposers.tuning.tunables import values_of
from tests.evolve.proposers.seeds.template_functions import template_functions


def _templated(*lines: str) -> str:
    text = with_split_products("\n".join(("from x import extern_kernels", *lines)))
    assert text is not None
    ast.parse(text)
    return text


def _small(channels: int, batch: int, taps: str = "1, 1") -> str:
    """A file with one convolution, of 320 000 times channels, batch and taps operations."""
    call = "found = extern_kernels.convolution(a, b, stride=(2,), transposed=False, groups=1, bias=None)"
    weights = f"assert_size_stride(b, (64, {channels}, {taps}), ())"
    result = f"assert_size_stride(found, ({batch}, 64, 50, 50), ())"
    return _templated(call, weights, result)


def test_a_small_convolution_begins_with_one_launch() -> None:
    source = _small(46, 100)
    choice = "small_convolution if PRODUCT_0 == 2 else split_convolution if PRODUCT_0 else extern_kernels.convolution"
    assert f"found = ({choice})(a, b" in source
    assert "PRODUCT_0 = 2  # tune: 2, 1, 0\n" in source
    values = values_of(source)
    assert not {"SMALL_F", "SMALL_STAGES"} & idle(source, values)
    assert {"SMALL_F", "SMALL_STAGES"} <= idle(source, values | {"PRODUCT_0": "1"})
    assert "CONV_N" in idle(source, values)


def test_a_larger_convolution_may_be_one_launch() -> None:
    assert "PRODUCT_0 = 1  # tune: 1, 0, 2\n" in _small(47, 100)
    assert "small_convolution if PRODUCT_0 == 2" in _small(125, 100)
    assert "small_convolution" not in _small(125, 101)


def test_of_more_taps_only_the_smallest_begin_so() -> None:
    assert "PRODUCT_0 = 2  # tune: 2, 1, 0\n" in _small(13, 10, "3, 3")
    assert "PRODUCT_0 = 1  # tune: 1, 0, 2\n" in _small(14, 10, "3, 3")


def test_a_small_convolution_of_few_channels_begins_with_what_is_for_those() -> None:
    source = _small(8, 1)
    assert "small_convolution if PRODUCT_0 == 3" in source
    assert "PRODUCT_0 = 2  # tune: 2, 1, 0, 3\n" in source


def test_a_filter_of_many_taps_is_not_one_launch() -> None:
    assert "small_convolution" in _small(16, 1, "1, 31")
    assert "small_convolution" not in _small(16, 1, "4, 8")


def _by_windows(filters: str, *, stride: str = "(1, 1)", turned: bool = False) -> str:
    """A file with one large convolution."""
    call = f"extern_kernels.convolution(a, b, stride={stride}, transposed={turned}, groups=1, bias=None)"
    return _templated(f"assert_size_stride(b, ({filters}), ())", f"found = {call}")


def test_a_convolution_whose_filters_fit_into_shared_memory_is_computed_by_windows() -> None:
    for filters in ("64, 8, 3, 3", "128, 16, 3, 3", "64, 32, 3, 3", "16, 12, 5, 5"):
        source = _by_windows(filters)
        values = values_of(source)
        chosen = values["PRODUCT_0"]
        assert f"window_convolution if PRODUCT_0 == {chosen} else " in source
        assert "WINDOW_READ" not in idle(source, values)
        assert {"WINDOW_READ"} <= idle(source, values | {"PRODUCT_0": "1"})
        assert "EPILOGUES_IN_CUDA" in source
    assert "window_convolution if PRODUCT_0 == 2" in _by_windows("32, 48, 3, 3", turned=True)


def test_others_are_not() -> None:
    for filters in ("64, 3, 3, 3", "64, 9, 3, 3", "64, 96, 3, 3", "256, 32, 3, 3"):
        assert "window" not in _by_windows(filters)
    assert "window" not in _by_windows("64, 8, 3, 3", stride="(1, 2)")
    assert "window" not in _by_windows("96, 32, 3, 3", turned=True)


def _few_rows(rows: int, columns: int, strides: str = "(1, 4096)") -> str:
    """A file with one product of so many rows of 4096 numbers."""
    call = f"extern_kernels.addmm(c, a, reinterpret_tensor(b, (4096, {columns}), {strides}, 0), alpha=1, beta=1, out=d)"
    known = f"assert_size_stride(a, ({rows}, 4096), (4096, 1))"
    return _templated(known, call)


def test_a_product_of_few_rows_may_read_its_weights_once() -> None:
    for rows, columns in ((1, 4096), (128, 8192), (256, 8192)):
        source = _few_rows(rows, columns)
        assert "(skinny_addmm if PRODUCT_0 == 2 else split_addmm if PRODUCT_0 else extern_kernels.addmm)(c, a" in source
        # With few columns too few programs would read weights.
        assert f"PRODUCT_0 = {'1  # tune: 1, 0, 2' if columns < 8192 else '2  # tune: 2, 1, 0'}\n" in source
        values = values_of(source)
        assert "SKINNY_STAGES" in idle(source, values | {"PRODUCT_0": "1"})
        assert "SPLIT_N" in idle(source, values | {"PRODUCT_0": "2"})


def test_other_products_do_not() -> None:
    assert "skinny" not in _few_rows(257, 8192)
    assert "skinny" not in _few_rows(10, 4095)
    assert "skinny" not in _few_rows(128, 8192, "(8192, 1)")


def test_what_follows_a_product_of_few_rows_is_computed_with_it() -> None:
    call = "torch.ops.kbevolve.product.default(a, reinterpret_tensor(b, (4096, 8192), (1, 4096), 0), c, [d], 1)"
    known = "assert_size_stride(a, (4, 32, 4096), (131072, 4096, 1))"
    source = _templated("import torch", known, f"found = {call}")
    assert "fused_skinny if PRODUCT_0 == 2 else fused_product if PRODUCT_0 else fused_product_by_library" in source
    assert template("fused_skinny").strip("\n") in source


def test_long_sums_of_few_programs_have_two_groups_of_warps() -> None:
    given = {"SMALL_STAGES": 3, "SMALL_GROUPS": 2, "gluon": MagicMock(), "gl": MagicMock()}
    groups = template_functions("small_convolution", **given)["small_groups"]
    assert groups(64, 64, 832, 96, 132) == 2
    assert groups(64, 64, 255, 96, 132) == groups(64, 64, 832, 133, 132) == groups(128, 128, 832, 96, 132) == 1
