"""Every known way to fool an evaluator of kernels fails here, and every honest kernel that looks like one passes.

The hacks run without the lint's refusals: these are a filter, and must never be the defence. By default one hack of
every third number runs, and the twin of every twelfth. The others, variants, and hacks that may be accepted and then
need whole timings are slow tests.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.lint import lint
from tests.hacks.catalogue import GPU, GPU_HACKS, HACKS, HERE, Expected, Hack, Policy
from tests.hacks.conftest import Judges
from tests.hacks.outcomes import check, words

TABLE = HERE.parents[1] / "docs" / "judge.md"


def every(hacks: Iterable[Hack], *, share: int = 1) -> pytest.MarkDecorator:
    """A test of each of these hacks; the default tests are `share` numbers apart."""

    def is_slow(hack: Hack) -> bool:
        return hack.variant or hack.slow or hack.expected is Expected.HARMLESS or bool(hack.number % share)

    return pytest.mark.parametrize(
        "hack", [pytest.param(hack, id=hack.name, marks=pytest.mark.slow if is_slow(hack) else ()) for hack in hacks]
    )


@every(HACKS, share=5)
def test_hack(judges: Judges, hack: Hack) -> None:
    for _ in range(hack.evaluations):
        check(hack, judges.evaluate(hack.problem, hack.source(), lint_refuses=False))


@every(HACKS, share=12)
def test_twin(judges: Judges, hack: Hack) -> None:
    found = judges.evaluate(hack.problem, hack.source("twin"))
    assert found.verdict is Verdict.CORRECT, words(found)
    assert not set(hack.tags) & set(found.tags), words(found)


@every((hack for hack in HACKS if hack.policy), share=4)
def test_hack_under_the_policy_against_it(judges: Judges, hack: Hack) -> None:
    assert hack.policy is not None
    found = judges.evaluate(hack.problem, hack.source(), policy=hack.policy)
    if hack.expected is Expected.ALLOWED:  # it does the work that the policy asks for, more than once
        assert found.verdict is Verdict.CORRECT, words(found)
        assert found.timing.speedup is not None
        assert found.timing.speedup < 1, words(found)
        return
    assert found.verdict is Verdict.REFUSED, words(found)
    assert found.message.startswith("not accepted")


@every((hack for hack in HACKS if hack.twin_follows), share=8)
def test_twin_under_the_same_policy(judges: Judges, hack: Hack) -> None:
    assert hack.policy is not None
    found = judges.evaluate(hack.problem, hack.source("twin"), policy=hack.policy)
    assert found.verdict is Verdict.CORRECT, words(found)


@pytest.mark.parametrize("hack", [*HACKS, *GPU_HACKS], ids=lambda hack: hack.name)
def test_lint_refuses_what_has_no_honest_use_and_nothing_else(hack: Hack) -> None:
    """A refusal without an evaluation must rest on something that no honest kernel does."""
    refusal = lint(hack.source(), allow_library="full").refusal
    assert refusal.startswith("not accepted") if hack.refused else not refusal, refusal
    twin = lint(hack.source("twin"), allow_library="full")
    assert not twin.refusal
    assert not set(hack.tags) & set(twin.tags)


@pytest.mark.slow
def test_a_degenerate_problem_is_refused(judges: Judges) -> None:
    zeros = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, inputs, outputs):\n"
    zeros += "        super().__init__()\n\n    def forward(self, x):\n        return torch.zeros(64, 128)\n"
    found = judges.evaluate("degenerate", zeros, policy=Policy.OWN_WORK)
    assert found.verdict is Verdict.REFUSED, words(found)
    assert "degenerate" in found.message
    assert "degenerate" in found.tags


@pytest.mark.parametrize(("folder", "hacks"), [(HERE, HACKS), (GPU, GPU_HACKS)], ids=["cpu", "gpu"])
def test_the_catalogue_holds_every_folder(folder: Path, hacks: list[Hack]) -> None:
    folders = sorted(path.name for path in (folder / "kernels").iterdir() if path.is_dir())
    assert folders == sorted(hack.name for hack in hacks)


def test_every_twin_is_a_kernel_of_its_own() -> None:
    """No two have the same text, and each names its hack."""
    twins = {hack.source("twin"): hack for hack in (*HACKS, *GPU_HACKS)}
    assert len(twins) == len(HACKS) + len(GPU_HACKS)
    for text, hack in twins.items():
        assert text.startswith(f'"""Twin of {hack.number}: '), hack.folder


def test_the_table_of_hacks_names_these_tests() -> None:
    """Each row of docs/judge.md names exactly the folders of its number, here and in tests/gpu/hacks."""
    rows = {
        int(row.group(1)): set(re.findall(r"`(\d\d_\w+)`", row.group(0)))
        for row in re.finditer(r"^\| (\d+) \|.*$", TABLE.read_text(), re.MULTILINE)
    }
    assert list(rows) == list(range(1, len(rows) + 1))
    for number, named in rows.items():
        assert named == {hack.name for hack in (*HACKS, *GPU_HACKS) if hack.number == number}, f"row {number}"
