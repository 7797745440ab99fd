"""What the end of a run says of its best kernel."""

from dataclasses import replace

from kbevolve.archive.records import Accuracy
from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.cli.render.summary import best_words, coarser_words
from tests.small_archive import confirmation


def test_eager_is_a_baseline_itself() -> None:
    champion = confirmation("r", "k", speedup=3.0)
    slow = Baseline(name="compile", speedup=0.5, low=0.4, high=0.6)
    assert best_words(champion, ()) == "3.00× over eager (confirmed)"
    assert best_words(champion, (), 0.61) == "3.00× over eager (confirmed), 61 % of the roofline"
    unsure = replace(champion, speedup_low=0.978, speedup_high=3.4)
    assert best_words(unsure, ()) == "3.00× over eager (confirmed), although its interval [0.978, 3.40] includes 1"
    assert best_words(champion, (slow,)).endswith("3.00× over the best of eager and compile (eager)")
    tf32 = Baseline(name="default-flags", speedup=4.0)
    assert best_words(champion, (tf32,)).endswith("(confirmed), 0.750× of eager's speed with default flags")
    behind = best_words(confirmation("r", "k", speedup=0.5), (slow,))
    assert behind == "0.500× of eager's speed (confirmed), 0.500× of the speed of the best of eager and compile (eager)"


def test_a_kernel_far_less_accurate_than_the_reference_is_said_to_be() -> None:
    assert coarser_words(Accuracy(error=5e-6, reference_error=1.4e-6)) == coarser_words(Accuracy()) == ""
    assert coarser_words(Accuracy(error=4e-7, reference_error=0.0)) == "", "a few roundings of fp32"
    assert coarser_words(Accuracy(error=1.41e-5, reference_error=1.4e-6)).endswith(
        "an error of 1.4e-05 against 1.4e-06."
    )
