import pytest

from kbevolve.configs.playbook import load_playbook
from kbevolve.evolve.state.bottlenecks import ARITHMETIC, IDLE, LATENCY, LAUNCHES, MEMORY, bottleneck_class


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("memory bandwidth", MEMORY), ("DRAM traffic", MEMORY), ("uncoalesced loads", MEMORY),
        ("shared memory", MEMORY),
        ("memory latency", LATENCY), ("dependency chains", LATENCY), ("launch overhead", LAUNCHES),
        ("idle SMs, low occupancy", IDLE), ("compute bound", ARITHMETIC), ("instruction issue", ARITHMETIC),
        ("special functions", ARITHMETIC), ("", ""), ("something else", ""),
    ],
)  # fmt: skip
def test_words_have_a_class(words: str, expected: str) -> None:
    assert bottleneck_class(words) == expected


def test_all_of_the_playbook_has_one() -> None:
    assert all(bottleneck_class(idea.bottleneck) for idea in load_playbook().ideas)
