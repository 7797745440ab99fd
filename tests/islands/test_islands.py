"""Islands, niches, selection and migration, without anything else."""

from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.islands.island import Entry, Island, Member
from kbevolve.islands.migration import deal, restart, ring
from kbevolve.islands.niches import describe
from kbevolve.islands.selection import NicheSelection, RankSelection, RivalSelection, inspirations


def member(speedup: float, niche: str = "m0c0d0l0", *, name: str = "", children: int = 0) -> Member:
    kernel = Kernel.from_source(f"name = {name or speedup!r}\n")
    evaluation = grouped(
        Evaluation,
        kernel=kernel.id,
        problem="p",
        device="d",
        precision="fp32",
        verdict=Verdict.CORRECT,
        speedup=speedup,
        speedup_low=speedup,
    )
    return Member(kernel=kernel, evaluation=evaluation, niche=niche, children=children)


def island(*members: Member, index: int = 0) -> Island:
    made = Island(index=index)
    for one in members:
        made = made.with_member(one)
    return made


def test_a_niche_keeps_its_fittest_and_a_tie_changes_nothing() -> None:
    home = island(member(2.0))
    assert home.entry(member(2.0, name="later")) is Entry.NONE
    assert home.entry(member(2.5)) is Entry.IMPROVED
    assert home.entry(member(0.1, "m1c0d0l0")) is Entry.NEW
    assert home.with_member(member(2.5)).best == member(2.5)
    assert home.best == member(2.0), "islands are values: arriving makes a new one"


def test_of_one_machine_code_an_island_keeps_the_first() -> None:
    def coded(speedup: float, code: str, niche: str = "m0c0d0l0") -> Member:
        one = member(speedup, niche)
        return replace(one, evaluation=changed(one.evaluation, binary_hash=code))

    home = island(coded(2.0, "a"), coded(1.0, "b", "m1c0d0l0"))
    assert home.entry(coded(2.1, "a")) is Entry.NONE, "measured better by luck"
    assert home.entry(coded(2.1, "b", "m2c0d0l0")) is Entry.NONE, "the words of another niche"
    assert home.with_member(coded(2.1, "a")) == home
    assert home.entry(coded(2.1, "c")) is Entry.IMPROVED
    assert home.entry(coded(2.1, "")) is Entry.IMPROVED, "its code is not known"
    assert home.with_member(coded(2.0, "a")) == home, "it is its own twin no more than before"


def test_an_unquiet_measurement_takes_little_off_the_rank() -> None:
    """What it was made from was measured quietly, and would keep its place by the lower ends."""
    quiet, unquiet = member(1.2), member(1.5)
    unquiet = replace(unquiet, evaluation=changed(unquiet.evaluation, speedup_low=1.0))
    assert quiet.shown > unquiet.shown
    assert 1.3 < unquiet.fitness < 1.4
    assert island(quiet, unquiet).best == unquiet
    assert replace(quiet, evaluation=changed(quiet.evaluation, speedup=None, speedup_low=None)).fitness == 0


def test_selection_prefers_rank_and_discounts_children() -> None:
    home = island(*(member(speed, f"m{speed:.0f}c0d0l0") for speed in (3.0, 2.0, 1.0)))
    draws = Counter(RankSelection()(home, Random(seed), lambda _: True)[0].fitness for seed in range(3000))
    assert draws[3.0] > draws[2.0] > draws[1.0] > 150
    tired = island(member(3.0, children=50), member(2.0, "m1c0d0l0"))
    draws = Counter(RankSelection()(tired, Random(seed), lambda _: True)[0].fitness for seed in range(1000))
    assert draws[2.0] > draws[3.0]


def test_a_rival_is_the_fittest_that_does_without_a_trait_of_the_best() -> None:
    home = island(
        member(3.0, "m2c1d0l0"),
        member(2.0, "m3c2d1l1"),  # has the traits, and more
        member(1.5, "m0c1d0l0"),
        member(1.2, "m0c3d0l0"),
        member(1.1, "m2c0d0l0"),
    )
    by_rank = RankSelection(pressure=20.0, elite_share=0.0)
    always = RivalSelection(otherwise=by_rank, share=1.0)
    drawn = [always(home, Random(seed), lambda _: True) for seed in range(60)]
    assert {parents[0].fitness for parents in drawn} == {1.5, 1.1}
    assert all(len(parents) == 2 and parents[0] != parents[1] for parents in drawn)
    some = RivalSelection(otherwise=by_rank, share=0.5)
    first = Counter(some(home, Random(seed), lambda _: True)[0].fitness for seed in range(400))
    assert 150 < first[3.0] < 250
    for niches in (("m0c0d0l0", "m1c0d0l0"), ("m1c0d0l0", "m2c0d0l0")):  # no trait; a trait that all have
        alike = island(member(2.0, niches[0]), member(1.0, niches[1]))
        assert always(alike, Random(1), lambda _: True)[0].fitness == 2.0
    assert always(island(), Random(1), lambda _: True) == ()


def test_selection_gives_two_different_eligible_parents() -> None:
    home = island(*(member(speed, f"m{speed:.0f}c0d0l0") for speed in (3.0, 2.0, 1.0)))
    for seed in range(50):
        parents = RankSelection()(home, Random(seed), lambda one: one.fitness < 3.0)
        assert {parent.fitness for parent in parents} == {1.0, 2.0}
    assert RankSelection()(home, Random(0), lambda _: False) == ()


def test_going_back_breeds_from_niches_that_were_hardly_bred_from() -> None:
    home = island(
        member(3.0, "m1c0d0l0", children=9), member(2.9, "m1c0d0l0"), member(2.0, "m2c0d0l0", children=4),
        member(1.0, "m3c0d0l0", children=1),
    )  # fmt: skip
    select = NicheSelection(otherwise=RankSelection(pressure=5.0, elite_share=0.0))
    firsts = Counter(select(home, Random(seed), lambda _: True)[0].fitness for seed in range(1000))
    assert 450 < firsts[1.0] < 600, "half of the draws are the elite of the niche with the fewest children"
    for seed in range(50):
        parents = select(home, Random(seed), lambda one: one.fitness < 3.0)
        assert len({parent.kernel.id for parent in parents}) == 2
        assert all(parent.fitness < 3.0 for parent in parents)
    assert select(home, Random(0), lambda _: False) == ()


def test_inspirations_are_others_the_best_first() -> None:
    members = [member(speed, f"m{index}c0d0l0") for index, speed in enumerate((4.0, 3.0, 2.0, 1.0))]
    shown = inspirations(island(*members), members[:1], Random(1))
    assert shown[0] == members[1]
    assert len(shown) == 2
    assert members[0] not in shown


def test_dealing_gives_every_island_something_to_breed() -> None:
    assert deal(["eager"], ["triton", "cuda"], 4) == [["eager", name] for name in ("triton", "cuda", "triton", "cuda")]
    assert deal(["eager"], ["a", "b", "c"], 2) == [["eager", "a", "c"], ["eager", "b"]]
    assert deal(["eager"], [], 2) == [["eager"], ["eager"]]


def test_the_ring_sends_each_best_one_island_further() -> None:
    islands = [island(member(3.0), index=0), island(member(1.0), index=1), island(member(2.0), index=2)]
    moves = {(migrant.origin, migrant.target): migrant.member.fitness for migrant in ring(islands)}
    assert moves == {(0, 1): 3.0}, "1.0 and 2.0 would improve nothing where they arrive"
    assert ring(islands[:1]) == []


def test_the_worst_island_begins_anew_with_the_best_of_another() -> None:
    islands = [island(member(2.0), index=0), island(member(1.0), index=1), island(member(3.0), index=2)]
    fresh = restart(islands)
    assert fresh is not None
    assert (fresh.origin, fresh.target, fresh.member.fitness) == (2, 1, 3.0)
    alike = [island(member(3.0), index=0), island(member(3.0), index=1)]
    assert (again := restart(alike)) is not None
    assert (again.origin, again.target) == (0, 1)
    assert restart([island(member(3.0)), island(index=1)]) is None, "an island that never had a kernel cannot lose"


@pytest.mark.parametrize(
    ("source", "key"),
    [
        ("import torch\nclass ModelNew:\n    def forward(self, x):\n        return torch.relu(x)\n", "l3"),
        ('C = r"""\nextern "C" void f(float* x, int n) {\nfor (int i = 0; i < n; i++) x[i] = 0;\n}\n"""\n', "m0c0d0l0"),
        ('C = r"""\nextern "C" void f(float* x, int n) {\n#pragma omp parallel for\nfor (;;) {}\n}\n"""\n', "d1"),
        (
            'C = r"""\n__global__ void k(float4* x) { __shared__ float s[32]; }\nvoid f() { k<<<1, 1>>>(0); }\n"""\n',
            "m2",
        ),
        ("@triton.jit\ndef k(x):\n    tl.store(x, tl.dot(tl.load(x), tl.load(x)))\nk[grid](x)\n", "c3"),
    ],
)
def test_niches_are_read_off_the_source(source: str, key: str) -> None:
    assert key in describe(Kernel.from_source(source))
