import re

import pytest

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.seeds import seed_files
from kbevolve.islands.source.similarity import resemblance, shingles


def test_a_small_change_resembles_and_another_kernel_does_not() -> None:
    seeds = [file.read_text() for name in ("L1/matmul", "L1/softmax") for file in seed_files(name, "cuda")]
    same = shingles(seeds[0])
    assert resemblance(same, same) == 1
    changed = re.sub(r"(?m)^( +)return (\w+)$", r"\1return \2.clone() if \2.numel() > 7 else \2", seeds[0], count=1)
    assert changed != seeds[0]
    assert 0.9 < resemblance(same, shingles(changed)) < 1
    assert all(resemblance(same, shingles(other)) < 0.6 for other in seeds[1:])
    assert resemblance(same, shingles(find_problem("L1/matmul").source)) < 0.2


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_names_and_comments_do_not_count(device: str) -> None:
    source = seed_files("L1/softmax", device)[0].read_text()
    renamed = re.sub(r"\bfolder\b", "directory", source) + "\n# the end\n"
    assert renamed != source
    assert resemblance(shingles(source), shingles(renamed)) == 1


def test_it_is_the_share_in_common() -> None:
    words = [f"value_{number} = compute({number})" for number in range(400)]
    whole, half = shingles("\n".join(words)), shingles("\n".join(words[:200]))
    # Half of the text: the other's shingles are all of its own, and twice as many.
    assert resemblance(whole, half) == pytest.approx(0.5, abs=0.01)
    assert resemblance(half, whole) == resemblance(whole, half)


def test_any_text_has_shingles() -> None:
    assert all(shingles(text) for text in ("", "x", "def f(:", "\x00", "(" * 5000))
