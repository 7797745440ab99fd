"""What claims are worth: the prior is that of a recorded model, and each author's own children change it."""

import csv
import math
from pathlib import Path
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbevolve.islands.credit.claims import FINE, Calibration

LOGS = st.floats(-3.0, 3.0)


def recorded() -> list[tuple[float, float]]:
    """Claim and gain (logs) of each valid child of a model on three problems."""
    with open(Path(__file__).with_name("claims.csv")) as file:
        return [(math.log(float(row["claimed"])), math.log(float(row["gained"]))) for row in csv.DictReader(file)]


def test_the_prior_is_fitted_on_recorded_children() -> None:
    children, prior = recorded(), Calibration()
    weights = [1 / (FINE**2 + claim**2) for claim, _ in children]
    pairs = list(zip(weights, children, strict=True))
    slope = sum(w * claim * gain for w, (claim, gain) in pairs) / sum(w * claim**2 for w, (claim, _) in pairs)
    assert prior.slope == pytest.approx(slope, abs=0.01)
    # docs/results/2026-11-23-claims.md
    assert fmean((gain - slope * claim) ** 2 for claim, gain in children) == pytest.approx(0.09, abs=0.005)
    assert fmean(gain**2 for _, gain in children) == pytest.approx(0.53, abs=0.005)


def test_an_author_is_trusted_as_far_as_its_claims_come_true() -> None:
    honest = braggart = Calibration()
    for claim in (1.2, 0.3, 0.8, 0.1) * 3:
        honest = honest.after(claim, 0.9 * claim)
        braggart = braggart.after(claim, -0.5)
    assert honest.trusted
    assert honest.slope == pytest.approx(0.9, abs=0.05)
    assert not braggart.trusted


def test_a_claim_of_nothing_teaches_no_slope() -> None:
    assert Calibration().after(0.0, 0.5).slope == Calibration().slope


@given(st.lists(st.tuples(st.floats(0.0, 8.0), LOGS), max_size=60))
def test_any_history_leaves_numbers_that_can_be_used(children: list[tuple[float, float]]) -> None:
    found = Calibration()
    for child in children:
        found = found.after(*child)
    assert math.isfinite(found.slope)
    assert 3 <= found.weight <= 30
