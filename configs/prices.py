"""Prices of models by name; the list is `prices.yaml`, and a user may add a file of prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from kbevolve.configs.errors import SettingsError
from kbevolve.configs.sections import Section
from kbevolve.configs.text_file import read_yaml

_FILE = Path(__file__).with_name("prices.yaml")
_MILLION = 1e6


_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False, strict=True)]


class Price(Section):
    """Dollars per million tokens."""

    prompt: _Amount
    completion: _Amount

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
    return Prices(lists=(_ours(),) if own is None else (_read(own), _ours()))


@cache
def _ours() -> Mapping[str, Price]:
    """Those that come with kbevolve: each page of a run asks for them, and reading them takes 20 ms."""
    return _read(_FILE)


def _read(file: Path) -> dict[str, Price]:
    tree = read_yaml(file, option="budget.prices", wants="YAML file of prices")
    prices = tree.get("prices") if isinstance(tree, dict) else None
    if not isinstance(prices, dict):
        raise SettingsError(
            f"{file}: no prices; write `prices:` and under it `gpt-5: {{prompt: 1.25, completion: 10}}`"
        )
    found = {}
    for pattern, stated in prices.items():
        try:
            found[str(pattern)] = Price.model_validate(stated)
        except ValidationError:
            raise SettingsError(
                f"{file}: {pattern}: {stated!r} is no price; write {{prompt: 1.25, completion: 10}}, "
                "dollars per million tokens"
            ) from None
    return found
