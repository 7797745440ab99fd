"""What a run has spent, and what it may spend.

Every figure is derived from facts of the archive, so a limit holds over all sessions of a run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from kbevolve.archive.records import StopReason
from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.prices import Prices, read_prices
from kbevolve.configs.settings import BudgetSettings, Settings
from kbevolve.evolve.state.totals import RunTotals

#: Reason -> the setting of its limit. The first one that is reached is reported: goals before costs.
LIMITS: Mapping[StopReason, str] = {
    StopReason.TARGET_REACHED: "target_speedup",
    StopReason.ROOFLINE_REACHED: "roofline_share",
    StopReason.EVALUATIONS_SPENT: "evaluations",
    StopReason.DEVICE_TIME_SPENT: "device_seconds",
    StopReason.DOLLARS_SPENT: "dollars",
    StopReason.TOKENS_SPENT: "tokens",
    StopReason.WALL_TIME_SPENT: "wall_seconds",
}
#: Providers that do not report their tokens: limits on tokens or dollars cannot be kept.
UNCOUNTED = ("claude_code", "copilot_cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has cost and reached; the limits are settings of the same names."""

    #: Kernels that were judged for this run.
    evaluations: int = 0
    #: Seconds in which their phases used a device.
    device_seconds: float = 0.0
    #: Dollars for models; None when a price or the tokens are unknown.
    dollars: float | None = 0.0
    #: Models without a known price.
    unpriced: tuple[str, ...] = ()
    #: Tokens sent and received.
    tokens: int = 0
    #: Seconds of all sessions.
    wall_seconds: float = 0.0
    #: Published speedup over eager, and that kernel's share of the roofline; None without a published kernel.
    target_speedup: float | None = None
    roofline_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The limits of a run, and the prices of its models."""

    limits: BudgetSettings = field(default_factory=BudgetSettings)
    prices: Prices = field(default_factory=Prices)

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The budget of the settings.

        Raises:
            SettingsError: the file of prices is not valid.
        """
        return cls(limits=settings.budget, prices=read_prices(settings.budget.prices))

    def check(self, settings: Settings) -> None:
        """Check before anything is spent that every limit can be kept.

        Raises:
            SettingsError: dollars or tokens are limited, and a price is unknown or the provider reports no tokens.
        """
        limited = [name for name in ("dollars", "tokens") if getattr(self.limits, name) is not None]
        if not limited or settings.proposer not in ("auto", "llm", "ask"):
            return  # no model, or a third party's
        limit = f"budget.{limited[0]} = {getattr(self.limits, limited[0])}"
        if settings.llm.provider in UNCOUNTED:
            raise SettingsError(
                f"{limit}: provider {settings.llm.provider} does not report its tokens; "
                "limit evaluations or time instead"
            )
        for model in (one.model for one in settings.llm.each()):
            if "dollars" in limited and model is not None and self.prices.of(model) is None:
                raise SettingsError(f"{limit}, but the price of model {model!r} is unknown; {_remedy(model)}")

    def spent(
        self,
        totals: RunTotals,
        *,
        wall_seconds: float = 0.0,
        speedup: float | None = None,
        roofline_share: float | None = None,
    ) -> Spent:
        """What a run has spent, from its totals."""
        tokens = {model: used for model, used in totals.tokens.items() if sum(used)}
        priced = {model: self.prices.of(model) for model in tokens}
        unpriced = tuple(sorted(model for model, price in priced.items() if price is None))
        dollars = sum(price.dollars(*tokens[model]) for model, price in priced.items() if price is not None)
        # Models were asked and none reported tokens: the cost is unknown, not zero.
        uncounted = not tokens and any(totals.tokens)
        return Spent(
            evaluations=totals.evaluations,
            device_seconds=totals.device_seconds,
            dollars=None if unpriced or uncounted else dollars,
            unpriced=unpriced,
            tokens=sum(map(sum, tokens.values())),
            wall_seconds=wall_seconds,
            target_speedup=speedup,
            roofline_share=roofline_share,
        )

    def exceeded(self, spent: Spent) -> StopReason | None:
        """The limit that is reached; None while all are kept.

        Raises:
            ProposerError: dollars are limited, and a model that answered has no known price.
        """
        if self.limits.dollars is not None and spent.unpriced:
            model = spent.unpriced[0]
            raise ProposerError(
                f"budget.dollars = {self.limits.dollars}, but the price of model {model!r}, as its endpoint calls it, "
                f"is unknown; {_remedy(model)}"
            )
        for reason, name in LIMITS.items():
            limit, reached = getattr(self.limits, name), getattr(spent, name)
            if limit is not None and reached is not None and reached >= limit:
                return reason
        return None

    def has_room(self, evaluations: int) -> bool:
        """Whether another generation may be created with so many kernels judged or in flight."""
        return self.limits.evaluations is None or evaluations < self.limits.evaluations


def _remedy(model: str) -> str:
    return (
        f"write `prices:` and under it `{model}: {{prompt: …, completion: …}}` (dollars per million tokens) to a file "
        "and name it with --set budget.prices=FILE, or limit tokens instead"
    )
