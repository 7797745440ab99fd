"""How far an author's claims may be trusted: which share of what its ideas claimed its children gained.

Gains and claims are logs of factors. The share is the slope of a weighted least-squares fit through the origin, begun
at a prior; the error of a claim grows with the claim, so its weight is 1 / (FINE**2 + claim**2).
"""

from dataclasses import dataclass

from kbevolve.islands.credit.posterior import LARGEST_GAIN

#: Below this claim, errors do not shrink any further.
FINE = 0.3
#: Weight from which a slope changes no more slowly: an author's habits may change with the problem.
MOST_WEIGHT = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What the claims of one author are worth.

    The defaults are fitted on 23 children of a strong model on three problems (`tests/islands/credit/claims.csv`), and
    count as three children with large claims.
    """

    slope: float = 0.76
    weight: float = 3.0

    @property
    def trusted(self) -> bool:
        """Whether larger claims were followed by larger gains at all."""
        return self.slope > 0

    def after(self, claim: float, gain: float) -> "Calibration":
        """After a valid child: what its idea claimed, at least 0, and what it gained."""
        claim, gain = min(claim, LARGEST_GAIN), min(max(gain, -LARGEST_GAIN), LARGEST_GAIN)
        says = 1 / (FINE**2 + claim**2)
        weight = self.weight + says * claim**2
        slope = self.slope + says * claim * (gain - self.slope * claim) / weight
        return Calibration(slope=slope, weight=min(weight, MOST_WEIGHT))
