"""Limits: what counts, which one is reported, and which limits are refused."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Birth, BirthState, Evaluation, Operator, StopReason, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ProposerError, SettingsError
from kbevolve.configs.prices import Price, Prices
from kbevolve.configs.settings import BudgetSettings, Settings
from kbevolve.evolve.cli.render.summary import cost_words
from kbevolve.evolve.cli.settings_options import budget_options
from kbevolve.evolve.search.budget import LIMITS, Budget, Spent
from kbevolve.evolve.state.population import Population
from tests.evolve.doubles import DEVICE, open_run
from tests.evolve.doubles import settings as double_settings

PRICES = Prices(lists=({"paid": Price(prompt=1, completion=10), "free": Price(prompt=0, completion=0)},))


# ---- limits -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "below", "reached", "reason"),
    [
        ({"evaluations": 10}, {"evaluations": 9}, {"evaluations": 10}, StopReason.EVALUATIONS_SPENT),
        ({"device_seconds": 9.5}, {"device_seconds": 9.4}, {"device_seconds": 9.5}, StopReason.DEVICE_TIME_SPENT),
        ({"dollars": 2.0}, {"dollars": 1.99}, {"dollars": 2.01}, StopReason.DOLLARS_SPENT),
        ({"tokens": 100}, {"tokens": 99}, {"tokens": 250}, StopReason.TOKENS_SPENT),
        ({"wall_seconds": 60}, {"wall_seconds": 59.9}, {"wall_seconds": 60.0}, StopReason.WALL_TIME_SPENT),
        ({"target_speedup": 2}, {"target_speedup": None}, {"target_speedup": 2.0}, StopReason.TARGET_REACHED),
        ({"roofline_share": 0.9}, {"roofline_share": 0.89}, {"roofline_share": 0.9}, StopReason.ROOFLINE_REACHED),
    ],
)
def test_each_limit_has_its_reason(limits: Any, below: Any, reached: Any, reason: StopReason) -> None:
    budget = Budget(limits=BudgetSettings(**limits), prices=PRICES)
    assert budget.exceeded(Spent(**below)) is None
    assert budget.exceeded(Spent(**reached)) is reason
    assert Budget().exceeded(Spent(**reached)) is None, "without a limit nothing is exceeded"


def test_every_limit_is_checked_and_goals_are_reported_before_costs() -> None:
    assert {*LIMITS.values(), "prices", "known_evaluations"} == set(BudgetSettings.model_fields)
    everything = dict.fromkeys(LIMITS.values(), 1)
    budget = Budget(limits=BudgetSettings(**everything))
    assert budget.exceeded(Spent(**dict.fromkeys(LIMITS.values(), 1))) is StopReason.TARGET_REACHED
    assert budget.exceeded(Spent(evaluations=1, tokens=1)) is StopReason.EVALUATIONS_SPENT


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"budget.dollars": 1, "llm.model": "nobody"}, r"budget.dollars = 1.0, but the price of model 'nobody'"),
        ({"budget.dollars": 1, "llm.model": "nobody"}, r"name it with --set budget.prices=FILE"),
        ({"budget.tokens": 5, "llm.provider": "claude_code", "llm.model": "gpt-5"}, "does not report its tokens"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(given: Mapping[str, Any], complaint: str) -> None:
    chosen = Settings.load(overrides=given)
    with pytest.raises(SettingsError, match=complaint):
        Budget.of(chosen).check(chosen)


@pytest.mark.parametrize(
    "given",
    [
        {"budget.dollars": 1, "llm.model": "gpt-5"},
        {"budget.dollars": 1},
        {"budget.tokens": 1, "llm.model": "nobody"},
        {"budget.dollars": 1, "llm.model": "nobody", "proposer": "tunables"},
        {"llm.model": "nobody"},
    ],
)
def test_a_limit_that_can_be_kept_is_not(given: Mapping[str, Any]) -> None:
    chosen = Settings.load(overrides=given)
    Budget.of(chosen).check(chosen)


def test_a_command_refuses_before_it_makes_an_archive(kbevolve: Any, tmp_path: Path) -> None:
    done = kbevolve(
        "run", "--problem", "L1/matmul", "--device", "cpu", "--model", "nobody", "--api-base", "http://127.0.0.1:9/v1",
        "--max-dollars", "3", "--archive", tmp_path / "k.db",
    )  # fmt: skip
    assert (done.code, len(done.err.strip().splitlines())) == (2, 1)
    assert "price of model 'nobody' is unknown" in done.err
    assert not (tmp_path / "k.db").exists()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("3h", 10800), ("1h30m", 5400), ("45", 45), ("0.5h", 1800)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert asked("--max-wall", text)["budget__wall_seconds"] == seconds


@pytest.mark.parametrize("text", ["soon", "3 h", "h", "3hours", "-5m", ""])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90s, 20m, 3h or 1h30m"):
        asked("--max-wall", text)


def asked(*words: str) -> dict[str, Any]:
    command = click.Command("run", callback=lambda **given: given)
    for option in budget_options:
        command = option(command)
    given: dict[str, Any] = command.make_context("run", list(words)).params
    return given


# ---- what counts --------------------------------------------------------------------------------------------------


def population_of(*births: tuple[Birth, Evaluation | None], since: float = 0.0) -> Population:
    archive = Archive(":memory:")
    population = Population(1, archive.run_view(open_run(archive, double_settings())), since=since)
    for birth, evaluation in births:
        population.observe(birth, evaluation)
    return population


def birth(number: int, *, model: str = "", tokens: tuple[int, int] = (0, 0), source: str = "") -> Birth:
    return Birth(
        run="r", generation=0, island=0, slot=number, operator=Operator.SEED, state=BirthState.CREATED, model=model,
        kernel=source or f"k{number}", prompt_tokens=tokens[0], completion_tokens=tokens[1],
    )  # fmt: skip


def judged(kernel_id: str, **facts: Any) -> Evaluation:
    return grouped(Evaluation,
        kernel=kernel_id, problem="p", device=DEVICE, precision="fp32", verdict=Verdict.REFUSED,
        **{"phases": {"trials": 1.0, "timing": 2.0, "build": 8.0}} | facts,
    )  # fmt: skip


def test_kernels_of_an_earlier_run_and_duplicates_cost_nothing() -> None:
    population = population_of(
        (birth(0), judged("k0", started_at=2000.0)),
        (birth(1), judged("k1", started_at=999.0)),
        (birth(2, source="k0"), judged("k0", started_at=2000.0)),
        (birth(3), judged("k3", phases={})),
        (birth(4), None),
        since=1000.0,
    )
    spent = Budget().spent(population.totals)
    assert (spent.evaluations, spent.device_seconds) == (2, 3.0)


def test_dollars_are_known_only_where_prices_and_tokens_are() -> None:
    def spent(*births: Birth) -> Spent:
        return Budget(prices=PRICES).spent(population_of(*((one, None) for one in births)).totals)

    paid, free = birth(0, model="paid", tokens=(1_000_000, 200_000)), birth(1, model="free", tokens=(5, 5))
    assert (spent(paid, free, birth(2)).dollars, spent(paid, free).tokens) == (3.0, 1_200_010)
    assert spent(birth(0)).dollars == 0.0, "no model was asked"
    assert spent(birth(0, model="paid")).dollars is None, "a model that reported no tokens was not free"
    assert spent(paid, birth(1, model="free")).dollars == 3.0, "a refused prompt"
    other = spent(paid, birth(1, model="other", tokens=(5, 5)))
    assert (other.dollars, other.unpriced, other.tokens) == (None, ("other",), 1_200_010)
    with pytest.raises(ProposerError, match=r"budget.dollars = 9.0, but the price of model 'other'"):
        Budget(limits=BudgetSettings(dollars=9), prices=PRICES).exceeded(other)


# ---- a population -------------------------------------------------------------------------------------------------


def test_the_cost_is_shown_for_each_percent() -> None:
    spent = Spent(evaluations=204, device_seconds=750, wall_seconds=3725, tokens=1_230_000, dollars=3.2)
    assert cost_words(spent, 120.0) == (
        "Cost: 204 evaluations, 12:30 of device time, 1:02:05 in all, 1,230,000 tokens, $3.20; "
        "per percent of the 120 % gained over the best start: 1.7 evaluations, 6.25 s of device time, $0.027"
    )
    assert cost_words(replace(spent, dollars=None, unpriced=("x",)), None) == (
        "Cost: 204 evaluations, 12:30 of device time, 1:02:05 in all, 1,230,000 tokens, dollars unknown"
    )
    offline = replace(spent, evaluations=1, tokens=0, dollars=0.0)
    assert cost_words(offline, -3.0) == "Cost: 1 evaluation, 12:30 of device time, 1:02:05 in all"
