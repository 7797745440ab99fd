"""Every known way to fool an evaluator of kernels fails here, and every honest kernel that looks like one passes.

The lint is put out of action for the hacks: that it refuses some of them is a filter, and must never be the defence.
"""

import re
from pathlib import Path

import pytest

from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evaluators.lint import lint
from tests.gpu.hacks.catalogue import GPU_HACKS
from tests.hacks.catalogue import HACKS, Expected, Hack, Policy
from tests.hacks.conftest import Court

HERE = Path(__file__).parent
TABLE = HERE.parents[1] / "docs" / "judge.md"
#: A lie is a speedup above this where the kernel does three times the reference's work. Two cores that are shared with
#: other tests do not measure any closer.
LARGEST_LIE = 1.5
#: What a message to the proposer may never tell: how a kernel was found out.
SECRETS = re.compile(
    r"\b(seed|tolerance|transform|sketch|heterogeneous|diminished|enlarged|signed|shrunk|poison)\w*", re.I
)


def ordered() -> list[Hack]:
    """By problem: setting one up costs more than an evaluation."""
    return sorted(HACKS, key=lambda hack: hack.problem)


def with_twins() -> list[Hack]:
    return [hack for hack in ordered() if (HERE / "kernels" / hack.folder / "twin.py").exists()]


def source_of(hack: Hack, name: str) -> str:
    return (HERE / "kernels" / hack.folder / f"{name}.py").read_text()


def words(found: Evaluation) -> str:
    """Everything that is worth reading when a test fails."""
    speed = f"{found.speedup} [{found.speedup_low}, {found.speedup_high}]" if found.speedup else ""
    return f"{found.verdict.name} {speed} {found.tags}: {found.message}"


@pytest.mark.parametrize("hack", ordered(), ids=lambda hack: hack.folder)
def test_hack(court: Court, hack: Hack) -> None:
    legitimate = hack.expected in (Expected.TAGGED, Expected.ALLOWED)
    judged = court.accept if legitimate else court.evaluate
    for _ in range(hack.evaluations):
        found = judged(hack.problem, source_of(hack, "hack"), lint_refuses=False)
        match hack.expected:
            case Expected.CAUGHT:
                assert found.verdict is not Verdict.CORRECT, words(found)
            case Expected.HARMLESS if found.verdict is Verdict.CORRECT:
                assert found.speedup_low is not None
                assert found.speedup_low <= LARGEST_LIE, words(found)
            case Expected.TAGGED | Expected.ALLOWED:
                assert found.verdict is Verdict.CORRECT, words(found)
        assert found.verdict is not Verdict.CORRECT or set(hack.tags) <= set(found.tags), words(found)
        assert (found.speedup is not None) == (found.verdict is Verdict.CORRECT)
        assert not SECRETS.search(found.message), found.message


@pytest.mark.parametrize("hack", with_twins(), ids=lambda hack: hack.folder)
def test_twin(court: Court, hack: Hack) -> None:
    found = court.accept(hack.problem, source_of(hack, "twin"))
    assert found.verdict is Verdict.CORRECT, words(found)
    assert not set(hack.tags) & set(found.tags), words(found)


@pytest.mark.parametrize("hack", [hack for hack in ordered() if hack.policy], ids=lambda hack: hack.folder)
def test_hack_under_the_policy_against_it(court: Court, hack: Hack) -> None:
    assert hack.policy is not None
    found = court.evaluate(hack.problem, source_of(hack, "hack"), policy=hack.policy)
    assert found.verdict is Verdict.REFUSED, words(found)
    assert found.message.startswith("not accepted")


@pytest.mark.parametrize("hack", [hack for hack in ordered() if hack.twin_follows], ids=lambda hack: hack.folder)
def test_twin_under_the_same_policy(court: Court, hack: Hack) -> None:
    assert hack.policy is not None
    found = court.accept(hack.problem, source_of(hack, "twin"), policy=hack.policy)
    assert found.verdict is Verdict.CORRECT, words(found)


def test_lint_refuses_what_has_no_honest_use_and_nothing_else() -> None:
    """A refusal without an evaluation must rest on something that no honest kernel does."""
    for folder, hacks in ((HERE, HACKS), (HERE.parent / "gpu" / "hacks", GPU_HACKS)):
        for hack in hacks:
            for path in sorted((folder / "kernels" / hack.folder).glob("*.py")):
                refusal = lint(path.read_text(), allow_library="full").refusal
                expected = hack.refused and path.name == "hack.py"
                assert refusal.startswith("not accepted" if expected else ""), path
                assert bool(refusal) == expected, f"{path}: {refusal}"


def test_a_degenerate_problem_is_refused(court: Court) -> None:
    zeros = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def __init__(self, inputs, outputs):\n"
    zeros += "        super().__init__()\n\n    def forward(self, x):\n        return torch.zeros(64, 128)\n"
    found = court.evaluate("degenerate", zeros, policy=Policy.OWN_WORK)
    assert found.verdict is Verdict.REFUSED, words(found)
    assert "degenerate" in found.message
    assert "degenerate" in found.tags


def test_the_catalogue_holds_every_folder() -> None:
    folders = sorted(path.name for path in (HERE / "kernels").iterdir() if path.is_dir())
    assert folders == sorted(hack.folder for hack in HACKS)
    assert all(hack.folder.startswith(f"{hack.number:02}_") for hack in HACKS)


def test_the_table_of_hacks_names_these_tests() -> None:
    """Each row of docs/judge.md names exactly the folders of its number, here and in tests/gpu/hacks."""
    rows = {
        int(row.group(1)): set(re.findall(r"`(\d\d_\w+)`", row.group(0)))
        for row in re.finditer(r"^\| (\d+) \|.*$", TABLE.read_text(), re.MULTILINE)
    }
    assert list(rows) == list(range(1, 58))
    for number, named in rows.items():
        assert named == {hack.folder for hack in (*HACKS, *GPU_HACKS) if hack.number == number}, f"row {number}"
