"""What a run has spent, what it may spend, and the sentence it stops with.

Nothing here counts by itself: every figure comes from facts of the archive, so that limits hold over all sittings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kbevolve.archive.records import StopReason
from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.prices import Prices, read_prices
from kbevolve.configs.settings import BudgetSettings, Settings
from kbevolve.evolve.state.population import Population

#: Reason -> the setting of its limit. The first that is reached is told; reaching what was asked for comes before
#: having spent what was allowed.
LIMITS: Mapping[StopReason, str] = {
    StopReason.TARGET_REACHED: "target_speedup",
    StopReason.ROOFLINE_REACHED: "roofline_share",
    StopReason.EVALUATIONS_SPENT: "evaluations",
    StopReason.DEVICE_TIME_SPENT: "device_seconds",
    StopReason.DOLLARS_SPENT: "dollars",
    StopReason.TOKENS_SPENT: "tokens",
    StopReason.WALL_TIME_SPENT: "wall_seconds",
}
#: Providers that do not tell how many tokens they used: their limits could not be kept.
UNCOUNTED = ("claude_code", "copilot_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has cost so far and what came of it; limits are settings of the same names."""

    #: Kernels judged for this run.
    evaluations: int = 0
    #: Seconds that their phases held a device.
    device_seconds: float = 0.0
    #: Dollars for models; None where a price, or the tokens, are not known.
    dollars: float | None = 0.0
    #: Models without a known price.
    unpriced: tuple[str, ...] = ()
    #: Tokens sent and received.
    tokens: int = 0
    #: Seconds of all sittings.
    wall_seconds: float = 0.0
    #: Published speedup over eager, and that kernel's share of the roofline; None while there is none.
    target_speedup: float | None = None
    roofline_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a run, and the prices of its models."""

    limits: BudgetSettings = field(default_factory=BudgetSettings)
    prices: Prices = field(default_factory=Prices)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The budget that the settings ask for.

        Raises:
            SettingsError: the file of prices is none.
        """
        return cls(limits=settings.budget, prices=read_prices(settings.budget.prices))

    def check(self, settings: Settings) -> None:
        """See to it that every limit can be kept, before anything is spent.

        Raises:
            SettingsError: dollars are limited and the model's price is not known, or its tokens are not told.
        """
        limited = [name for name in ("dollars", "tokens") if getattr(self.limits, name) is not None]
        if not limited or settings.proposer not in ("auto", "llm", "ask"):
            return  # no model, or one that only a third party knows
        limit = f"budget.{limited[0]} = {getattr(self.limits, limited[0])}"
        if settings.llm.provider in UNCOUNTED:
            raise SettingsError(
                f"{limit}: provider {settings.llm.provider} does not tell how many tokens it used; "
                "limit evaluations or time instead"
            )
        for model in (one.model for one in settings.llm.each()):
            if "dollars" in limited and model is not None and self.prices.of(model) is None:
                raise SettingsError(f"{limit}, but the price of model {model!r} is not known; {_remedy(model)}")

    def spent(
        self,
        population: Population,
        *,
        wall_seconds: float = 0.0,
        speedup: float | None = None,
        roofline_share: float | None = None,
    ) -> Spent:
        """What a run has spent, by what its population was told."""
        tokens = {model: used for model, used in population.tokens.items() if sum(used)}
        priced = {model: self.prices.of(model) for model in tokens}
        unpriced = tuple(sorted(model for model, price in priced.items() if price is None))
        dollars = sum(price.dollars(*tokens[model]) for model, price in priced.items() if price is not None)
        # Models were asked and not one of them told its tokens: that is not for nothing, it is not known.
        uncounted = not tokens and any(population.tokens)
        return Spent(
            evaluations=population.evaluations,
            device_seconds=population.device_seconds,
            dollars=None if unpriced or uncounted else dollars,
            unpriced=unpriced,
            tokens=sum(map(sum, tokens.values())),
            wall_seconds=wall_seconds,
            target_speedup=speedup,
            roofline_share=roofline_share,
        )

    def exceeded(self, spent: Spent) -> StopReason | None:
        """The reason to stop, None as long as every limit is kept.

        Raises:
            ProposerError: dollars are limited, and a model has turned out to have no known price.
        """
        if self.limits.dollars is not None and spent.unpriced:
            model = spent.unpriced[0]
            raise ProposerError(
                f"budget.dollars = {self.limits.dollars}, but the price of model {model!r}, as its endpoint calls it, "
                f"is not known; {_remedy(model)}"
            )
        for reason, name in LIMITS.items():
            limit, reached = getattr(self.limits, name), getattr(spent, name)
            if limit is not None and reached is not None and reached >= limit:
                return reason
        return None

    def has_room(self, evaluations: int) -> bool:
        """Whether another generation may be bred while so many kernels are judged or on their way."""
        return self.limits.evaluations is None or evaluations < self.limits.evaluations


def _remedy(model: str) -> str:
    return (
        f"write `prices:` and under it `{model}: {{prompt: …, completion: …}}` (dollars per million tokens) to a file "
        "and name it with --set budget.prices=FILE, or limit tokens instead"
    )
