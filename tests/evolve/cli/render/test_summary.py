"""What the end of a run says of its best kernel."""

from dataclasses import replace

from kbevolve.evaluators.timing.baselines import Baseline
from kbevolve.evolve.cli.render.summary import best_words
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
