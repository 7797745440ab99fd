"""The feedback on a kernel for a proposer."""

from dataclasses import replace

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Launch, ProblemCard, Profile, Verdict
from kbevolve.evaluators.feedback.message import INACCURATE, MESSAGE_LENGTH, clipped, feedback, is_inaccurate

CORRECT = grouped(
    Evaluation,
    kernel="k",
    problem="p",
    device="cuda/H",
    precision="fp32",
    verdict=Verdict.CORRECT,
    precision_class="fp32",
    time_ms=0.5,
    reference_ms=1.0,
    speedup=2.0,
    speedup_low=1.95,
    speedup_high=2.05,
)
CARD = ProblemCard(
    problem="p",
    device="cuda/H",
    precision="fp32",
    input_bytes=10**9,
    flops=10**12,
    roofline_ms={"fp32": 0.4},
    peaks={"copy": 4e12},
)
LAUNCHES = tuple(
    Launch(name=f"k{number}", share=share, microseconds=share * 500, launches=1.0)
    for number, share in enumerate((0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02))
)


def test_a_correct_kernel_against_its_parent_the_reference_and_the_roofline() -> None:
    text = feedback(CORRECT, changed(CORRECT, speedup=1.6), CARD)
    assert text.splitlines() == [
        "2.00 times as fast as eager PyTorch, 95 % interval 1.95 to 2.05; 1.25 times its parent's speed; 0.5 ms a call",
        "Effective: 80 % of the roofline at fp32, 2000 GB/s (50 % of a copy's), 2000 TFLOP/s.",
    ]


def test_the_best_of_pytorch_is_named_when_it_is_not_eager() -> None:
    assert "; 1.30 times as fast as compile;" in feedback(changed(CORRECT, speedup_best=1.3, best_baseline="compile"))
    assert "eager;" not in feedback(changed(CORRECT, speedup_best=2.0, best_baseline="eager"))


def test_kernels_counters_and_bottleneck() -> None:
    main = replace(
        LAUNCHES[0], registers=168, spilled=96, shared_memory=49152, occupancy=0.25, blocks_per_sm=7.75, library=True
    )
    profile = Profile(
        launches=(main, *LAUNCHES[1:]),
        counters={"DRAM busy": 81.2, "registers a thread": 168.0, "DRAM GB/s": 2130.4, "SM clock MHz": 1755.0},
        bottleneck="memory-bound: move less",
    )
    text = feedback(replace(CORRECT, profile=profile))
    assert (
        "- 50 % k0: 250 µs, 168 registers, 96 bytes spilled a thread, 48 KiB shared memory, 7.75 blocks in "
        "all for each multiprocessor, 25 % occupancy (library)"
    ) in text
    assert "- 5 % 2 others" in text
    assert "DRAM busy 81 %, registers a thread 168, DRAM 2130 GB/s, SM clock 1755 MHz." in text
    assert text.endswith("Bottleneck (a guess): memory-bound: move less.")


def test_times_are_of_a_call_and_of_a_launch() -> None:
    main = replace(LAUNCHES[0], launches=2.0, microseconds=1510.0, blocks=2048, threads=256)
    text = feedback(replace(CORRECT, profile=Profile(launches=(main,))))
    assert "- 50 % k0: 3.02 ms in 2 launches of 1.51 ms, 2,048 blocks of 256 threads" in text


@pytest.mark.parametrize(
    ("profile", "heading"),
    [
        (Profile(launches=LAUNCHES), "Where the time of a call goes:"),
        (
            Profile(launches=LAUNCHES, profiled_ms=0.992),
            "Where the time of a call goes (profiled calls took 992 µs, at other clocks or with kernels that overlap; "
            "times are scaled to 500 µs):",
        ),
        (
            Profile(launches=(replace(LAUNCHES[0], share=1.0),)),
            "Where the time of a call goes (kernels run 250 µs of its 500 µs):",
        ),
    ],
)
def test_the_sum_of_the_times_agrees_with_the_call_or_the_difference_is_named(profile: Profile, heading: str) -> None:
    assert heading in feedback(replace(CORRECT, profile=profile)).splitlines()


@pytest.mark.parametrize("verdict", [verdict for verdict in Verdict if verdict < Verdict.CORRECT])
def test_a_failure_has_its_stage_and_the_first_lines_of_the_message(verdict: Verdict) -> None:
    message = "\n".join(f"line {number} {'x' * 40}" for number in range(200))
    text = feedback(changed(CORRECT, verdict=verdict, message=message, speedup=None))
    lines = text.splitlines()
    assert len(lines) <= 25
    assert lines[0].startswith("It ")
    assert lines[1].startswith("line 0 ")
    assert "eager" not in text


def test_the_feedback_has_at_most_25_lines() -> None:
    profile = Profile(launches=LAUNCHES, counters={"DRAM busy": 1.0}, bottleneck="x")
    assert len(feedback(replace(CORRECT, profile=profile), CORRECT, CARD).splitlines()) <= 25


def test_the_feedback_holds_none_of_the_judges_secrets() -> None:
    found = changed(CORRECT, sandbox="landlock 7", device_instance="host/cuda:0", binary_hash="0123")
    text = feedback(found, found, CARD)
    for secret in ("landlock", "host", "0123", "seed"):
        assert secret not in text


def test_rounding_is_not_called_a_wrong_result() -> None:
    rounded = changed(CORRECT, verdict=Verdict.WRONG, message=f"{INACCURATE} on large inputs", speedup=None)
    assert feedback(rounded).startswith("It ran, and its result is right but for rounding")
    assert is_inaccurate(rounded)
    assert not is_inaccurate(changed(rounded, verdict=Verdict.CRASHED))
    mistaken = changed(rounded, message="wrong values on large inputs")
    assert feedback(mistaken).startswith("It ran, and its result is wrong.")


def test_a_short_message_is_left_as_it_is_and_a_long_one_is_cut_at_a_line() -> None:
    assert clipped(" one\ntwo \n") == "one\ntwo"
    assert len(clipped("y" * 9000)) <= MESSAGE_LENGTH + 2
    assert clipped(f"a\n{'y' * 9000}") == "a\n…"
