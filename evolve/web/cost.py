"""What a run has cost so far, for its page and its report."""

import json
from dataclasses import replace
from pathlib import Path

from kbevolve.archive.records import Run
from kbevolve.archive.store import Archive
from kbevolve.archive.throughput import DEVICE_PHASES
from kbevolve.configs.errors import SettingsError
from kbevolve.configs.prices import read_prices
from kbevolve.evolve.search.budget import Budget, Spent
from kbevolve.evolve.state.totals import RunTotals


def cost_of(archive: Archive, run: Run) -> Spent:
    """Evaluations, device time, tokens, dollars and wall time; dollars are None where a price is unknown here."""
    runs = archive.runs
    evaluations, seconds = runs.device_use(run, DEVICE_PHASES)
    totals = RunTotals(since=0.0, tokens=runs.tokens_by_model(run.id), evaluations=evaluations, device_seconds=seconds)
    own = json.loads(run.settings).get("budget", {}).get("prices")
    try:
        prices, known = read_prices(Path(own) if own else None), True
    except SettingsError:  # the file of prices is elsewhere
        prices, known = read_prices(), False
    spent = Budget(prices=prices).spent(totals, wall_seconds=runs.wall_seconds(run.id))
    return spent if known or not spent.tokens else replace(spent, dollars=None)
