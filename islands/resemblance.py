"""How alike two kernels are, without comparing them token by token.

The resemblance of two texts is the share of their shingles, runs of a few tokens, that they have in common (Broder
1997, "On the resemblance and containment of documents"). The smallest hashes of all shingles are a fair sample of
them, the same for every text, so it is estimated from some hundred numbers a kernel.
"""

import heapq
from hashlib import blake2b

from kbevolve.islands.canonical import canonical_tokens

#: Tokens of a shingle. One changed token changes this many of them.
_SHINGLE = 5
#: Hashes kept of a kernel: the estimate's standard deviation is at most 1 / (2 sqrt(256)) = 3 %.
_KEPT = 256

#: The smallest hashes of a kernel's shingles, in order.
Sample = tuple[int, ...]


def sample(source: str) -> Sample:
    """What is kept of a kernel; the same for kernels that differ in names and comments only."""
    # Without their numbers: one name more would change those of all that follow.
    tokens = ["$" if token.startswith("$") else token for token in canonical_tokens(source)]
    runs = max(1, len(tokens) - _SHINGLE + 1)
    hashes = {_hash("\x1f".join(tokens[start : start + _SHINGLE])) for start in range(runs)}
    return tuple(heapq.nsmallest(_KEPT, hashes))


def resemblance(one: Sample, other: Sample) -> float:
    """Estimated share of shingles that two kernels have in common, 0 to 1; exact for short ones."""
    both = heapq.nsmallest(_KEPT, {*one, *other})
    shared = {*one} & {*other}
    return sum(value in shared for value in both) / len(both)


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
