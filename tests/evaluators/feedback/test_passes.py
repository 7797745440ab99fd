"""Passes over data, and the launch that computes the products; with times of kernels on an H200 (2026-11-22)."""

import pytest

from kbevolve.archive.records import Launch, ProblemCard
from kbevolve.evaluators.feedback.bottleneck import bottleneck
from kbevolve.evaluators.feedback.passes import is_pass, kernel_ms, passes_words, product_launch

#: A product of 1024 x 8192 by 8192 x 8192, with the rates that its roofline of 556 us and cuBLAS' 2.69 ms show.
CARD = ProblemCard(
    problem="p",
    device="cuda/H",
    precision="fp32",
    flops=137_438_953_472,
    required_flops=137_438_953_472,
    peaks={"copy": 4.4e12, "fp32": 51e12, "tf32": 371e12, "fp16": 742e12, "bf16": 742e12},
)


def launches(**microseconds: float) -> list[Launch]:
    total = sum(microseconds.values())
    return [
        Launch(name=name, share=time / total, microseconds=time, launches=1.0, registers=168)
        for name, time in microseconds.items()
    ]


@pytest.mark.parametrize(
    ("name", "passes"),
    [
        ("split_rows", True), ("absmax_kernel", True), ("_batch_scale", True), ("at::native::elementwise_kernel", True),
        ("triton_poi_fused_convolution_0", True), ("Memcpy DtoD (Device -> Device)", True), ("castF32toF16", True),
        ("aten::transpose", True), ("pad_kernel", True), ("convert_layout", True),
        ("gemm_split", False), ("conv_kernel", False), ("convolve_common_engine_float_NHWC", False),
        ("splitKreduce_kernel", False), ("_attention", False), ("triton_red_fused_add_copy_0", False),
        ("softmax_warp_forward", False), ("mine", False), ("own code", False), ("scaled_mm_kernel", False),
    ],
)  # fmt: skip
def test_passes_are_known_by_their_names(name: str, passes: bool) -> None:
    assert is_pass(Launch(name=name, share=1.0, microseconds=1.0, launches=1.0)) is passes


def test_passes_are_named_with_their_times_and_share() -> None:
    found = launches(gemm_kernel=270.0, split_kernel=75.1, absmax_kernel=48.1, Memset=1.15)
    assert passes_words(found) == (
        "passes that by their names only move, convert or scale data, and could be fused or dropped: "
        "split_kernel 75.1 µs, absmax_kernel 48.1 µs and 1 more (32 % of the time)"
    )
    assert passes_words(launches(gemm_kernel=592.0, split_kernel=17.0)) == ""
    assert passes_words(launches(transpose_kernel=100.0)) == ""  # that is the problem


def test_a_product_is_compared_with_each_way_that_it_may_be_computed() -> None:
    found = product_launch(launches(_linear_bias_relu=1381.4, _split_x=24.5), CARD)
    assert found is not None
    assert str(found) == (
        "If the longest launch computes all products, it reaches 99.5 TFLOP/s; of the measured peak that is 80 % in 3 "
        "TF32, 40 % in 3 fp16, 80 % in 6 bf16."
    )
    assert (found.fastest, found.slowest) == ("3 fp16", "3 TF32 or 6 bf16")


def test_no_rate_without_products_peaks_or_a_single_launch_that_computes() -> None:
    one = launches(gemm_split=588.0, split_rows=102.0)
    assert product_launch(one, CARD) is not None
    assert product_launch(one, None) is None
    assert product_launch(one, ProblemCard(problem="p", device="d", precision="fp32", flops=10**12)) is None
    assert product_launch(launches(_gemm=1250.0, _attention=651.0, _split_rows=105.0), CARD) is None
    assert product_launch(launches(split_rows=1250.0, _gemm=651.0), CARD) is None
    assert product_launch(launches(gemm_split=10.0), CARD) is None  # faster than all peaks: it computes something else
    assert product_launch([], CARD) is None


@pytest.mark.parametrize(
    ("found", "share", "begins"),
    [
        (
            launches(gemm_split=588.0, split_rows=102.0),
            0.81,
            "compute-bound: gemm_split takes 85 % of the time, and computes at 95 % of the measured peak in 3 fp16; "
            "passes that by their names only move, convert or scale data, and could be fused or dropped: split_rows",
        ),
        (
            launches(_linear_bias_relu=1381.4, _split_x=24.5),
            0.39,
            "compute-bound: _linear_bias_relu computes at 80 % of the measured peak in 3 TF32 or 6 bf16, if it uses "
            "that; 3 fp16 has 2 times the peak",
        ),
        (launches(gemm_split=666.1, split_rows=16.8), 0.81, "compute-bound: 81 % of the roofline; at most 1.23 times"),
        (launches(gemm_kernel=592.0, split_kernel=17.8), 0.92, "compute-bound: 92 % of the roofline; little is left"),
        (launches(_fused_linear=1746.2), 0.32, "far from the roofline (32 %)"),
    ],
)
def test_little_is_left_only_at_the_right_floor(found: list[Launch], share: float, begins: str) -> None:
    line = bottleneck(found, time_ms=kernel_ms(found), roofline_share=share, limit="arithmetic", card=CARD)
    assert line.startswith(begins)
    assert ("little is left" in line) == (share > 0.9)
