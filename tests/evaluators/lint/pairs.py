"""All pairs of kernels that look alike, by what one of them hides."""

from tests.evaluators.lint.pairs_of_products import PRODUCTS
from tests.evaluators.lint.pairs_of_techniques import TECHNIQUES
from tests.evaluators.lint.pairs_of_tricks import TRICKS

PAIRS = PRODUCTS | TECHNIQUES | TRICKS
