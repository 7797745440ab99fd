"""Profiles: the report of a worker, its checks, and the profile made of it."""

import math
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Launch, ProblemCard, Profile
from kbevolve.evaluators.analysis.roofline import Roofline
from kbevolve.evaluators.feedback.bottleneck import DRAM, SM, bottleneck
from kbevolve.evaluators.feedback.profile import (
    MOST_LAUNCHES,
    MOST_NAME,
    read_launches,
    read_profile,
    shortened,
    with_counters,
)
from kbevolve.evaluators.worker.profiling import OWN_CODE, _launches, profile

#: 1 GB moved and 2 TFLOP done: at 1 TB/s and 1 PFLOP/s, 1 ms and 2 ms.
CARD = ProblemCard(
    problem="p",
    device="cuda/H",
    precision="fp32",
    input_bytes=400_000_000,
    weight_bytes=100_000_000,
    output_bytes=500_000_000,
    flops=2_000_000_000_000,
    roofline_ms={"fp32": 2.0, "half": 1.0},
)
RATES = Roofline(bytes_per_second=1e12, operations_per_second={"fp32": 1e15, "fp16": 3e15}, l2_bytes=0, headroom=1.3)


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "mine", "microseconds": 100.0, "launches": 1.0, **fields}


def launch(**fields: Any) -> Launch:
    return Launch(**{"name": "mine", "share": 1.0, "microseconds": 1000.0, "launches": 1.0, "registers": 64} | fields)


# ---- the worker's side -------------------------------------------------------------------------------------------


def test_on_a_cpu_operations_are_named_and_the_rest_is_own_code() -> None:
    matrix = torch.rand(256, 256)

    def call() -> None:
        torch.mm(matrix, matrix)
        sum(range(20_000))

    reported = {one["name"]: one for one in profile(call)}
    assert reported["aten::mm"]["launches"] == 1
    assert reported["aten::mm"]["microseconds"] > 1
    assert reported[OWN_CODE]["microseconds"] > 50  # 20,000 additions in Python take some 300 µs


def test_launches_of_a_trace_are_summed_and_divided_by_the_calls() -> None:
    facts = {"registers per thread": 40, "shared memory": 512, "blocks per SM": 0.5, "est. achieved occupancy %": 25}
    events = [
        {"cat": "kernel", "name": "a", "dur": 10, "args": facts},
        {"cat": "kernel", "name": "a", "dur": 30, "args": facts},
        {"cat": "gpu_memcpy", "name": "Memcpy DtoD", "dur": 4, "args": {}},
        {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 99, "args": {}},
        {"ph": "M", "name": "process_name"},
    ]
    kernel, copy = _launches(events, calls=2)
    assert kernel == {
        "name": "a", "microseconds": 20.0, "launches": 1.0, "registers": 40, "shared_memory": 512,
        "blocks_per_sm": 0.5, "occupancy": 0.25,
    }  # fmt: skip
    assert copy == {"name": "Memcpy DtoD", "microseconds": 2.0, "launches": 0.5}


def test_one_kernel_in_two_shapes_is_two_entries() -> None:
    shapes = [([64, 2, 1], 500), ([64, 2, 1], 510), ([8, 1, 1], 30)]
    events = [
        {"cat": "kernel", "name": "a", "dur": time, "args": {"grid": grid, "block": [32, 4, 1]}}
        for grid, time in shapes
    ]
    large, small = read_launches(_launches(events, calls=1))
    assert (large.blocks, large.threads, large.launches, large.microseconds) == (128, 128, 2, 505)
    assert (small.blocks, small.threads, small.launches, small.microseconds) == (8, 128, 1, 30)


# ---- the judge's side --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reported",
    [
        None, "launches", 7, {"name": "x"}, [3], [[]], [{}], [entry(name=4)], [entry(microseconds="1")],
        [entry(microseconds=math.nan)], [entry(microseconds=math.inf)], [entry(microseconds=-1.0)],
        [entry(launches=0)], [entry(launches=True)], [entry(microseconds=1e300)], [entry(microseconds=10**400)],
    ],
)  # fmt: skip
def test_an_invalid_entry_is_left_out(reported: Any) -> None:
    assert read_launches(reported) == ()


@pytest.mark.parametrize("field", ["registers", "spilled", "shared_memory", "occupancy", "blocks_per_sm", "blocks"])
@pytest.mark.parametrize("value", ["a", [], -1, 1e99, math.nan, True, {}])
def test_a_wrong_detail_is_unknown(field: str, value: Any) -> None:
    (found,) = read_launches([entry(**{field: value})])
    assert getattr(found, field) is None


def test_shares_order_and_length() -> None:
    reported = [entry(name=f"k{number}", microseconds=float(number), launches=2) for number in range(1, 40)]
    found = read_profile(reported, time_ms=1.0).launches
    assert len(found) == MOST_LAUNCHES
    assert found[0].name == "k39"
    assert found[0].microseconds == 19.5
    assert found[0].share == pytest.approx(39 / sum(range(1, 40)))


def test_names_are_shortened_and_hold_no_control_characters() -> None:
    assert shortened("void at::native::add_kernel<4, at::F<float>, std::array<char*, 2> >(int, float)") == (
        "at::native::add_kernel"
    )
    assert shortened("void (anonymous namespace)::mine<(Kind)3>(float const*)") == "mine"
    assert shortened("Memcpy DtoD (Device -> Device)") == "Memcpy DtoD (Device -> Device)"
    assert "\x1b" not in shortened("\x1b[31mred")
    assert len(shortened("x" * 5000)) == MOST_NAME


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("void at::native::vectorized_elementwise_kernel<4>(int)", True),
        ("aten::addmm", True),
        ("ampere_sgemm_128x64_tn", True),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32", True),
        ("nvjet_hsh_128x256_64x4", True),
        ("void cutlass::Kernel2<x>(y)", True),
        ("triton_poi_fused_add_0", False),
        ("my_gemm_kernel", False),
        ("flat::matrix_kernel(float*)", False),
        (OWN_CODE, False),
    ],
)
def test_libraries_are_recognised_by_their_names(name: str, library: bool) -> None:
    assert read_launches([entry(name=name)])[0].library is library


def test_rates_are_the_problems_own_over_the_kernels_time() -> None:
    found = read_profile([entry(registers=32, microseconds=3900.0)], time_ms=4.0, card=CARD, precision_class="fp32")
    assert found.gigabytes_per_second == pytest.approx(250)
    assert found.teraflops == pytest.approx(500)
    assert found.roofline_share == pytest.approx(0.5)
    nothing = read_profile([], time_ms=4.0)
    assert nothing == Profile()


def test_times_are_scaled_to_the_call() -> None:
    # A kernel of 690 us whose launches took 846 and twice 73 us when they were profiled.
    reported = [entry(name="gemm", microseconds=846.2), entry(name="split", microseconds=146.3, launches=2.0)]
    found = read_profile(reported, time_ms=0.6896)
    assert found.profiled_ms == pytest.approx(0.9925)
    assert sum(one.microseconds * one.launches for one in found.launches) == pytest.approx(689.6)
    assert [round(one.share, 3) for one in found.launches] == [0.853, 0.147]
    same = read_profile(reported, time_ms=0.99)
    assert same.profiled_ms is None
    assert same.launches[0].microseconds == 846.2
    many = [entry(name=f"k{number}", microseconds=10.0) for number in range(20)]
    assert read_profile(many, time_ms=0.1).profiled_ms == pytest.approx(0.2)  # with those that are not kept


def test_the_rates_decide_what_bounds_the_problem() -> None:
    reported = [entry(registers=32, microseconds=2400.0)]
    near = read_profile(reported, time_ms=2.5, card=CARD, precision_class="fp32", roofline=RATES)
    assert near.bottleneck.startswith("compute-bound: 80 %")
    half = read_profile(reported, time_ms=1.25, card=CARD, precision_class="half", roofline=RATES)
    assert half.bottleneck.startswith("memory-bound: 80 %")


@pytest.mark.parametrize(
    ("launches", "facts", "begins"),
    [
        ([launch(microseconds=10.0)], {}, "launch-bound: kernels run 10 µs of 1 ms in 1 launch;"),
        ([launch(spilled=96)], {"roofline_share": 0.5}, "spilling: mine keeps 96 bytes a thread"),
        ([launch(spilled=48)], {"roofline_share": 0.5}, "far from the roofline"),
        (
            [launch(spilled=96)],
            {"roofline_share": 0.7},
            "at the roofline: 70 % of the roofline; at most 1.43 times faster",
        ),
        ([launch()], {"roofline_share": 0.9}, "at the roofline: 90 % of the roofline; little is left"),
        ([launch(spilled=96, library=True)], {"roofline_share": 0.9}, "at the roofline"),
        ([launch(share=0.3, launches=4.0)], {}, "many passes: 4 launches a call"),
        ([launch(library=True)], {}, "library-bound: 100 % of the time"),
        ([launch(blocks_per_sm=0.25)], {}, "too few blocks: mine has 0.25"),
        (
            [launch(occupancy=0.125, shared_memory=49152)],
            {},
            "latency-bound: 12 % occupancy (64 registers a thread, 48",
        ),
        ([launch()], {"roofline_share": 0.1, "limit": "memory"}, "far from the roofline (10 %): scattered"),
        ([launch()], {}, ""),
        ([launch(registers=None, microseconds=10.0)], {}, ""),  # a CPU has no launches
        ([], {}, ""),
        ([launch()], {"counters": {DRAM: 81.0, SM: 20.0}}, "memory-bound: DRAM is busy 81 %"),
        ([launch()], {"counters": {DRAM: 21.0, SM: 80.0}}, "compute-bound: multiprocessors are busy 80 %"),
        ([launch()], {"counters": {DRAM: 21.0, SM: 20.0, "stalled: barrier": 60.0}}, "latency-bound: DRAM is busy 21"),
    ],
)
def test_bottlenecks(launches: list[Launch], facts: dict[str, Any], begins: str) -> None:
    line = bottleneck(launches, time_ms=1.0, **facts)
    assert line.startswith(begins)
    assert bool(line) is bool(begins)
    assert "\n" not in line


def test_counters_change_the_bottleneck() -> None:
    before = Profile(launches=(launch(),), roofline_share=0.2, bottleneck="far from the roofline")
    after = with_counters(before, {DRAM: 70.0, SM: 10.0}, time_ms=1.0)
    assert after.counters == {DRAM: 70.0, SM: 10.0}
    assert after.bottleneck.startswith("memory-bound")
    assert after.launches == before.launches
