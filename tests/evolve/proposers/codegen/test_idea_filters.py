"""Ideas that cannot help are filtered, where enough is known."""

from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Backend, Kernel, Launch, LaunchCost, Operator, ProblemCard, Profile
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.settings import Precision
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.idea_filters import (
    filters_for,
    helpful,
    is_launch_heavy,
    is_library_bound,
    limit_of,
)
from kbevolve.evolve.proposers.codegen.ideas import shortlist
from kbevolve.evolve.state.normalise import ARITHMETIC, LATENCY, LAUNCHES, MEMORY, bottleneck_class
from kbevolve.islands.island import Member
from tests.evolve.doubles import DEVICE, KnownEvaluator, brief_of, kernel, problem

HOPPER, PASCAL = "NVIDIA H200, 132 SMs, 141 GB, sm_90", "Tesla P100, 56 SMs, 16 GB, sm_60"


def brief(device: str = HOPPER, *, time_ms: float = 2.0, memory_ms: float = 1.0, **facts: Any) -> Brief:
    found = changed(KnownEvaluator().evaluate(problem(), kernel()), time_ms=time_ms)
    card = ProblemCard(problem="p", device=DEVICE, precision="fp32", memory_ms=memory_ms)
    parent = Member(kernel=kernel(), evaluation=found, niche="m0")
    return brief_of(Operator.MUTATE, parent, **{"device_type": "cuda", "device": device, "card": card} | facts)


def shown(asked: Brief, precision: Precision) -> list[Any]:
    entries = [one for one in load_playbook().ideas if "cuda" in one.devices]
    return list(helpful(entries, filters_for(asked, precision)))


@pytest.mark.parametrize(
    ("device", "precision", "plain", "split"),
    [(HOPPER, "fp32", False, True), (HOPPER, "tf32", True, True), (PASCAL, "fp16", False, False)],
)
def test_matrix_units_need_the_device_and_the_accuracy(
    device: str, precision: Precision, plain: bool, split: bool
) -> None:
    techniques = {one.technique for one in shown(brief(device), precision)}
    assert ("tensor-cores" in techniques, "split-precision" in techniques) == (plain, split)


def test_arithmetic_cannot_help_a_memory_bound_kernel() -> None:
    bound, free = brief(time_ms=1.2), brief(time_ms=1.3)
    assert not any(bottleneck_class(one.bottleneck) == ARITHMETIC for one in shown(bound, "tf32"))
    assert any(bottleneck_class(one.bottleneck) == ARITHMETIC for one in shown(free, "tf32"))
    (found,) = filters_for(bound, "tf32")
    assert "at 83 % of the bandwidth" in found.reason


@pytest.mark.parametrize(
    "unknown", [{"card": None}, {"parents": ()}, {"memory_ms": 0.0}, {"feedback": frozenset()}, {"device": "some GPU"}]
)
def test_what_is_unknown_filters_nothing(unknown: dict[str, Any]) -> None:
    asked = brief(**{"time_ms": 1.3 if "device" in unknown else 1.0} | unknown)
    assert filters_for(asked, "tf32") == []


def test_some_ideas_always_remain() -> None:
    entries = [one for one in load_playbook().ideas if one.technique == "tensor-cores"]
    assert helpful(entries, filters_for(brief(), "fp32")) == entries


def profiled(bottleneck: str, *, library: bool, bound_by: str = "arithmetic") -> Brief:
    """A brief whose parent has a profile, for a problem that is bound so."""
    launch = Launch(name="gemm", share=1.0, microseconds=1e3, launches=1, library=library)
    found = changed(
        KnownEvaluator().evaluate(problem(), kernel()), profile=Profile(launches=(launch,), bottleneck=bottleneck)
    )
    card = ProblemCard(
        problem="p", device=DEVICE, precision="fp32", memory_ms=0.1,
        roofline_ms={"fp32": 7.0 if bound_by == "arithmetic" else 0.1},
    )  # fmt: skip
    parent = Kernel(id="k", backend=Backend.CUDA, source="…")
    return brief(card=card, parents=(Member(kernel=parent, evaluation=found, niche="m0"),))


def test_the_limit_is_the_profiles_and_under_a_library_the_problems() -> None:
    own = profiled("latency-bound: 12 % occupancy", library=False)
    assert (limit_of(own), is_library_bound(own)) == (LATENCY, False)
    under = profiled("library-bound: 98 % of the time is the libraries' (gemm)", library=True)
    assert (limit_of(under), is_library_bound(under)) == (ARITHMETIC, True)
    remedies = "compute-bound: 89 % of the roofline; little is left but to move fewer bytes or do less arithmetic"
    assert limit_of(profiled(remedies, library=False, bound_by="memory")) == ARITHMETIC
    assert limit_of(profiled("spilling: gemm keeps 96 bytes", library=False)) == ARITHMETIC
    assert limit_of(profiled("", library=False, bound_by="memory")) == MEMORY
    assert limit_of(brief(card=None, parents=())) == ""


@pytest.mark.parametrize("seed", range(8))
def test_a_librarys_fp32_products_are_always_answered_with_split_operands(seed: int) -> None:
    entries = load_playbook().ideas_for("torch.matmul(a, b)", device_type="cuda", device=HOPPER)
    entries = tuple(helpful(entries, filters_for(brief(), "fp32")))

    def kinds(asked: Brief) -> list[str]:
        asked.rng.seed(seed)
        return [one.technique for one in shortlist(entries, asked, 6)]

    assert kinds(profiled("", library=True)).count("split-precision") == 2
    latency = shortlist(entries, profiled("latency-bound: waits", library=False), 6)
    assert sum(bottleneck_class(one.bottleneck) == LATENCY for one in latency) >= 4
    assert len(latency) == 6


def with_host_ms(asked: Brief, host_ms: float) -> Brief:
    """The brief with a parent whose host needs so long to launch a call; its device needs 1 ms."""
    cost = LaunchCost(
        host_ms=host_ms,
        reference_host_ms=0.1,
        kernelbench_ms=1.0,
        kernelbench_reference_ms=2.0,
        kernelbench_speedup=2.0,
    )
    (parent,) = asked.parents
    assert parent.evaluation.profile is not None
    found = changed(parent.evaluation, profile=replace(parent.evaluation.profile, launch_cost=cost))
    return replace(asked, parents=(replace(parent, evaluation=found),))


@pytest.mark.parametrize("seed", range(8))
def test_where_the_host_takes_long_to_launch_ideas_against_launches_are_always_shown(seed: int) -> None:
    entries = load_playbook().ideas_for("torch.matmul(a, b)", device_type="cuda", device=HOPPER)

    def count(asked: Brief) -> int:
        asked.rng.seed(seed)
        return sum(bottleneck_class(one.bottleneck) == LAUNCHES for one in shortlist(entries, asked, 6))

    bound = profiled("compute-bound: 70 % of the roofline", library=False)
    light, heavy = with_host_ms(bound, 0.1), with_host_ms(bound, 0.3)
    assert (is_launch_heavy(bound), is_launch_heavy(light), is_launch_heavy(heavy)) == (False, False, True)
    assert count(heavy) >= 2
    assert not is_launch_heavy(replace(heavy, feedback=frozenset()))
    limit = profiled("launch-bound: the host takes longer to launch a call than the device to run it", library=False)
    assert limit_of(limit) == LAUNCHES
    assert count(with_host_ms(limit, 2.0)) >= 4
