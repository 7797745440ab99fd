import pytest

from kbevolve.archive.records import Backend
from kbevolve.configs.playbook import OTHER, RECOMBINE, load_playbook
from kbevolve.islands.policy import DIVISION, FLOOR, FREE, TRAFFIC, WARM, WORK, policy_of


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_islands_differ_in_what_they_are_for(device_type: str) -> None:
    assert policy_of(0, islands=1, device_type=device_type) == FREE
    for islands in (2, 3, 4):
        policies = [policy_of(island, islands=islands, device_type=device_type) for island in range(islands)]
        assert len({policy.name for policy in policies}) == islands
    assert policies[-1].floor > FLOOR
    assert [policy.temperature_factor for policy in policies] == [1.0, 1.0, 1.0, WARM]
    assert len({policy_of(island, islands=40, device_type=device_type).name for island in range(40)}) == 4


def test_a_gpu_has_an_island_for_each_language() -> None:
    backends = [policy_of(island, islands=4, device_type="cuda").backend for island in range(4)]
    assert backends == [Backend.TRITON, Backend.CUDA, None, None]


def test_islands_that_write_one_language_differ_in_techniques() -> None:
    policies = [policy_of(island, islands=4, device_type="cuda", backend=Backend.TRITON) for island in range(4)]
    assert {policy.backend for policy in policies} == {Backend.TRITON}
    assert [policy.techniques for policy in policies] == [TRAFFIC, WORK, DIVISION, frozenset()]
    alone = policy_of(0, islands=1, device_type="cuda", backend=Backend.CUDA)
    assert (alone.backend, alone.techniques) == (Backend.CUDA, FREE.techniques)


def test_the_families_are_of_the_playbook_and_apart() -> None:
    known = set(load_playbook().techniques) - {OTHER, RECOMBINE, "tuning"}
    assert known == TRAFFIC | WORK | DIVISION
    assert len(known) == len(TRAFFIC) + len(WORK) + len(DIVISION)
