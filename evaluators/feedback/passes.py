"""What the launches of a call do, as far as names and times show it: passes over data, and the problem's products.

A profile has no bytes and no operations of a single launch. But where one launch takes nearly all of the time that is
not passes over data, it computes the products, and its rate follows.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kbevolve.archive.records import Launch, ProblemCard
from kbevolve.evaluators.analysis.rates import duration, percent, product_times, three_digits

#: Names of kernels that only move, convert or scale data: copies, and elementwise kernels of torch and Inductor.
_PASS = re.compile(
    r"copy|memset|memcpy|fill|zero|clone|concat|transpos|permut|layout|nchw|nhwc|im2col|contiguous|cast|convert|split"
    r"|pack|pad(?:_|ding|$)|quant|absmax|amax|scale|elementwise|triton_poi_",
    re.IGNORECASE,
)
#: Names of kernels that compute, whatever else is in the name.
_COMPUTES = re.compile(
    r"gemm|gemv|matmul|(?<![a-z])mm(?![a-z])|conv(?!ert)|attention|attn|flash|fmha|softmax|norm|reduce|linear|dot|scan"
    r"|sort|triton_(?:red|per|tem)_",
    re.IGNORECASE,
)
#: Inductor's elementwise kernels are named after all operations that they belong to.
_ELEMENTWISE = re.compile(r"^triton_poi_|elementwise")
#: Passes are worth a word from this share of the time on.
_WORTH = 0.03
#: Launches shown, each with at least this share of the time.
_SHOWN = 3
_LEAST_SHOWN = 0.005
#: A launch computes all products if other launches that are no passes take no more than this multiple of its time.
_OTHERS = 0.05
#: Ways whose peaks differ by less are equally fast.
_EQUAL = 0.95
#: Peaks are measured with library products, which good kernels exceed by up to so much.
_ABOVE_PEAK = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductLaunch:
    """The longest launch, where it computes all of the problem's products, by its share of the time."""

    launch: Launch
    teraflops: float
    #: Way to compute the products -> the time that they take at the measured peak over the launch's. Ways that would be
    #: faster than their peak are left out.
    shares: Mapping[str, float]

    @property
    def fastest(self) -> str:
        """The fastest way: the launch reaches at least that share of its own limit."""
        return min(self.shares, key=lambda way: self.shares[way])

    @property
    def slowest(self) -> str:
        """The slowest ways, as words: it reaches at most that share of its own limit."""
        most = max(self.shares.values())
        return " or ".join(way for way, share in self.shares.items() if share > _EQUAL * most)

    def __str__(self) -> str:
        """The rate, and its share of the peak of each way."""
        shares = ", ".join(f"{percent(share)} in {way}" for way, share in self.shares.items())
        return (
            f"If the longest launch computes all products, it reaches {three_digits(self.teraflops)} TFLOP/s; of the "
            f"measured peak that is {shares}."
        )


def kernel_ms(launches: Sequence[Launch]) -> float:
    """Milliseconds of all launches in one call, those included that a profile leaves out."""
    shown = sum(one.share for one in launches)
    return sum(one.microseconds * one.launches for one in launches) / 1e3 / shown if shown else 0.0


def is_pass(launch: Launch) -> bool:
    """Whether a launch only moves, converts or scales data, judging by its name."""
    computes = _COMPUTES.search(launch.name) and not _ELEMENTWISE.search(launch.name)
    return bool(_PASS.search(launch.name)) and not computes


def passes_words(launches: Sequence[Launch]) -> str:
    """The passes that could be fused with what writes or reads their data; "" where they take little time."""
    found = [one for one in launches if is_pass(one)]
    share = sum(one.share for one in found)
    if share < _WORTH or len(found) == len(launches):
        return ""
    named = [one for one in found[:_SHOWN] if one.share >= _LEAST_SHOWN]
    shown = ", ".join(f"{one.name} {duration(one.microseconds * one.launches / 1e3)}" for one in named)
    more = f" and {len(found) - len(named)} more" if len(found) > len(named) else ""
    return (
        f"passes that by their names only move, convert or scale data, and could be fused or dropped: {shown}{more} "
        f"({percent(share)} of the time)"
    )


def product_launch(launches: Sequence[Launch], card: ProblemCard | None) -> ProductLaunch | None:
    """The longest launch, if it computes all products; None where others may, or where rates are not known."""
    times = product_times(card) if card else {}
    if not card or not times or not launches:
        return None
    main, *others = launches
    working = sum(one.share for one in others if not is_pass(one))
    if is_pass(main) or working > _OTHERS * main.share or main.registers is None:  # a CPU has no launches
        return None
    main_ms = main.microseconds * main.launches / 1e3
    shares = {way: time / main_ms for way, time in times.items() if time <= _ABOVE_PEAK * main_ms}
    if not shares:
        return None
    return ProductLaunch(launch=main, teraflops=card.required_flops / main_ms / 1e9, shares=shares)
