"""Prices of models by name; the list is `prices.yaml`, and a user may add a file of prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from kbevolve.configs.errors import SettingsError
from kbevolve.configs.text_file import read_text

_FILE = Path(__file__).with_name("prices.yaml")
_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per million tokens."""

    prompt: float
    completion: float

    def dollars(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Dollars for these tokens."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / _MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Price lists, in order of precedence."""

    #: Pattern of model names -> price, for each list.
    lists: tuple[Mapping[str, Price], ...] = ()

    def of(self, model: str) -> Price | None:
        """The price under the longest pattern that fits, in the first list that has one; None without one."""
        for prices in self.lists:
            fitting = [pattern for pattern in prices if fnmatchcase(model.lower(), pattern.lower())]
            if fitting:
                return prices[max(fitting, key=len)]
        return None


def read_prices(own: Path | None = None) -> Prices:
    """The prices that come with kbevolve, after those of the user's own file.

    Raises:
        SettingsError: a file cannot be read, or is no list of prices.
    """
    return Prices(lists=tuple(_read(file) for file in (own, _FILE) if file is not None))


def _read(file: Path) -> dict[str, Price]:
    text = read_text(file, option="budget.prices", wants="YAML file of prices", error=SettingsError)
    try:
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: not YAML: {' '.join(str(error).split())}") from None
    prices = tree.get("prices") if isinstance(tree, dict) else None
    if not isinstance(prices, dict):
        raise SettingsError(
            f"{file}: no prices; write `prices:` and under it `gpt-5: {{prompt: 1.25, completion: 10}}`"
        )
    return {str(pattern): _price(file, str(pattern), stated) for pattern, stated in prices.items()}


def _price(file: Path, pattern: str, stated: Any) -> Price:
    names = ("prompt", "completion")
    if isinstance(stated, dict) and set(stated) == set(names) and all(_is_amount(stated[name]) for name in names):
        return Price(prompt=float(stated["prompt"]), completion=float(stated["completion"]))
    raise SettingsError(
        f"{file}: {pattern}: {stated!r} is no price; write {{prompt: 1.25, completion: 10}}, dollars per million tokens"
    )


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
