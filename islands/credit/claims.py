"""How far an author's claims may be trusted, beside what is believed of techniques.

Two predictions are made of what a child gains (log of its speedup over its parent): a share, the author's slope, of
what its idea claims; and the mean gain of its technique. The one with the smaller mean squared error so far is
followed: an author whose claims come true is believed, and one who promises the same for everything is not.
"""

from dataclasses import dataclass

from kbevolve.islands.credit.credit import FADING
from kbevolve.islands.credit.posterior import LARGEST_GAIN

#: Below this claim (log), errors do not shrink any further: a claim's error is in proportion to the claim.
FINE = 0.3
#: Weight from which a slope changes no more slowly: an author's habits may change with the problem.
MOST_WEIGHT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the claims of one author are worth; at first those of a strong model.

    The defaults are fitted on 23 children of such a model on three problems (`tests/islands/credit/claims.csv`), and
    count as three children.
    """

    #: Gain over claim, by weighted least squares through the origin; and the weight that it rests on.
    slope: float = 0.76
    weight: float = 3.0
    #: Mean squared errors of the two predictions, and the children that these rest on.
    claim_error: float = 0.09
    technique_error: float = 0.5
    children: float = 3.0

    @property
    def trusted(self) -> bool:
        """Whether its claims predict gains better than techniques do."""
        return self.claim_error <= self.technique_error

    def promise(self, claim: float) -> float:
        """The gain that a claim (log, at least 0) lets expect, at least 0."""
        return max(self.slope, 0.0) * min(claim, LARGEST_GAIN)

    def after(self, claim: float, gain: float, expected: float) -> "Calibration":
        """After a valid child.

        Args:
            claim: log of the factor that its idea claimed, at least 0.
            gain: what it gained (log).
            expected: what its technique let expect (log).
        """
        claim, gain = min(claim, LARGEST_GAIN), min(max(gain, -LARGEST_GAIN), LARGEST_GAIN)
        says = 1 / (FINE**2 + claim**2)
        weight = self.weight + says * claim**2
        children = FADING * self.children + 1
        return Calibration(
            slope=self.slope + says * claim * (gain - self.slope * claim) / weight,
            weight=min(weight, MOST_WEIGHT),
            claim_error=self.claim_error + ((gain - self.promise(claim)) ** 2 - self.claim_error) / children,
            technique_error=self.technique_error + ((gain - expected) ** 2 - self.technique_error) / children,
            children=children,
        )
