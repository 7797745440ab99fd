"""Prices of models: found by name, the user's own first, and nothing that is no price is taken for one."""

from pathlib import Path

import pytest

from kbevolve.configs.errors import SettingsError
from kbevolve.configs.prices import Price, Prices, read_prices


def test_the_longest_pattern_wins_and_an_unknown_model_has_no_price() -> None:
    cheap, dear, other = (Price(prompt=value, completion=value) for value in (1, 2, 3))
    prices = Prices(lists=({"word*": dear, "word-mini*": cheap, "*": other}, {"late": cheap}))
    assert prices.of("word-2026") == dear
    assert prices.of("Word-mini-2") == cheap
    assert prices.of("late") == other, "the first list with a match decides"
    assert Prices(lists=({"word": dear},)).of("words") is None
    assert Prices().of("word") is None


def test_the_list_knows_models_by_their_own_names_only() -> None:
    prices = read_prices()
    assert prices.of("gpt-5") == prices.of("gpt-5-2025-08-07")
    assert prices.of("gpt-5-mini") != prices.of("gpt-5")
    assert prices.of("gpt-5-pro") is None, "another model, whose price is another"
    assert prices.of("qwen3-coder") is None
    for price in prices.lists[0].values():
        assert 0 < price.prompt < price.completion


def test_dollars_are_per_million() -> None:
    assert Price(prompt=2, completion=10).dollars(500_000, 100_000) == pytest.approx(2.0)


def test_prices_of_the_user_win(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("prices:\n  gpt-*: {prompt: 0, completion: 0.5}\n")
    prices = read_prices(file)
    assert prices.of("gpt-5") == Price(prompt=0, completion=0.5)
    assert prices.of("o3") == read_prices().of("o3")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "No such file"),
        ("prices: [", "not YAML"),
        ("gpt-5: 3", "no prices; write `prices:`"),
        ("prices:\n  gpt-5: 3", r"gpt-5: 3 is no price; write \{prompt: 1.25"),
        ("prices:\n  gpt-5: {prompt: 1}", "is no price"),
        ("prices:\n  gpt-5: {prompt: -1, completion: 2}", "is no price"),
        ("prices:\n  gpt-5: {prompt: .inf, completion: 2}", "is no price"),
        ("prices:\n  gpt-5: {prompt: true, completion: 2}", "is no price"),
    ],
)
def test_what_is_no_list_of_prices_is_refused(tmp_path: Path, text: str | None, complaint: str) -> None:
    file = tmp_path / "mine.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=complaint):
        read_prices(file)
