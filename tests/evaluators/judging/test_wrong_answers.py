"""Wrong answers get their verdict, and messages that say what is wrong."""

import re

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.feedback.message import is_inaccurate
from tests.evaluators.judging.layer import Evaluate, candidate

WRONG = {
    "wrong value": ("return torch.relu(x @ self.weight) * 1.5", "1.5 times the right value"),
    "wrong shape": ("return torch.relu(x @ self.weight)[:-1]", "shape (47, 64); the reference's has (48, 64)"),
    "wrong dtype": ("return torch.relu(x @ self.weight).double()", "dtype float64; the reference's has float32"),
    "NaN": ("return torch.relu(x @ self.weight) * float('nan')", "all NaN"),
    "two outputs": ("return (torch.relu(x @ self.weight), 3)", "a tuple of 2"),
    "nothing": ("return None", "None"),
    "a subclass": ("return torch.relu(x @ self.weight).as_subclass(type('T', (torch.Tensor,), {}))", "subclass"),
    "half precision inside": (
        "return torch.relu((x.half() @ self.weight.half()).float())",
        "not accurate enough",
    ),
    "unwritten memory": ("return torch.empty(x.shape)", "wrong values"),
    "a skipped branch": ("return x @ self.weight", "wrong values"),
    "an answer kept for its input's address": (
        """
        if not hasattr(self, 'kept') or self.kept[0] != x.data_ptr():
            self.kept = (x.data_ptr(), torch.relu(x @ self.weight))
        return self.kept[1]
        """,
        "wrong values",
    ),
    "the first answer for ever": (
        """
        if not hasattr(self, 'kept'):
            self.kept = torch.relu(x @ self.weight)
        return self.kept
        """,
        "wrong values",
    ),
}


#: Their form is wrong, so there is nothing to compare.
FORMLESS = ("wrong shape", "wrong dtype", "two outputs", "nothing", "a subclass")


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_answers_are_wrong(evaluate: Evaluate, kind: str) -> None:
    body, words = WRONG[kind]
    found = evaluate(candidate(body))
    assert found.verdict is Verdict.WRONG, (found.verdict, found.message)
    # Unwritten memory may hold anything, and whether the trials or the timed calls catch the kept answer depends on
    # where the allocator puts each trial's input; a kernel that is wrong when timed has no single error.
    if kind == "an answer kept for its input's address":
        words = words if words in found.message else "when it was timed"
    assert words in found.message
    assert found.timing.speedup is None
    if kind not in ("unwritten memory", "an answer kept for its input's address"):
        assert (found.accuracy.error is None) == (kind in (*FORMLESS, "NaN"))


#: Wrong kernels -> what their message says, and whether it is about rounding.
REPORTS = {
    "return torch.relu(x @ self.weight) * (1 - 2e-4)": ("Mostly a bias toward zero", True),
    "self.n = getattr(self, 'n', 0) + 1; y = torch.relu(x @ self.weight); y[:, 8 + self.n % 8] += 3; return y": (
        "A second run on the same inputs made other elements wrong (0 % are wrong in both): a race",
        False,
    ),
    "y = torch.relu(x @ self.weight); y[:, 60:] = 7; return y": (
        "made the same elements wrong by the same values: an index, a bound or the formula, not a race.",
        False,
    ),
    "self.n = getattr(self, 'n', 0) + 1; assert self.n < 2; return x.sqrt()": (
        "\nA second call on the same inputs failed.",
        False,
    ),
    "return torch.relu(x.abs() @ self.weight)": (
        "\nAccepted before, with these errors: inputs as get_inputs() draws them",
        False,
    ),
}


@pytest.mark.parametrize("body", REPORTS)
def test_a_message_names_inputs_limit_and_cause(evaluate: Evaluate, body: str) -> None:
    words, inaccurate = REPORTS[body]
    found = evaluate(candidate(body))
    assert found.verdict is Verdict.WRONG, found.message
    assert words in found.message
    assert is_inaccurate(found) == inaccurate
    first = found.message.splitlines()[0]
    assert ("on inputs as get_inputs() draws them, none negative: " in first) == ("abs" not in body)
    assert ("on inputs of both signs and mixed sizes: " in first) == ("abs" in body)
    assert "limit 5e-05 (the reference: " in first
    assert not re.search(r"\d{12}", found.message)  # seeds have 62 bits
