def conv_chunks(numbers):
    """Numbers of a chunk, and chunks, of so many side by side for each group of taps."""
    bk = max(16 + 16 * CONV_FP8, min(CONV_K, triton.next_power_of_2(numbers)))
    return bk, triton.cdiv(numbers, bk)


def conv_row(out, needed):
    """Places of a padded row of `needed` numbers, of which `out` have results.

    The memory writes sectors of 32 bytes, and takes several times as long for parts of them. A row that is a multiple of
    eight longer than its results begins where sectors do, if the first one does. CONV_SECTORS 1: where it grows by at
    most a sixteenth; 2: always.
    """
    whole = out + triton.cdiv(needed - out, 8) * 8
    return whole if CONV_SECTORS == 2 or (CONV_SECTORS == 1 and 16 * whole <= 17 * needed) else needed


def conv_held(filters, columns, total, bk):
    """Chunks of filters that stay in shared memory for all tiles of pixels, and slots for all chunks of filters.

    Else each tile of 128 pixels copies them again: 64 filters of 3x3 over 64 channels are a third of its copies, which
    take longer than its products. Of more columns the products take longer (`split_widths`).
    """
    chunks, room = total // bk, 212992 // (4 * bk) - 128 * CONV_STAGES
    if filters > columns or columns > 160:
        return 0, CONV_STAGES
    if columns * chunks <= room:
        return chunks, chunks
    held = max(0, room // columns - CONV_STAGES)
    return held, held + CONV_STAGES


class SplitSteps:
    """How a convolution with steps reads its input: a step's positions among the channels, or in a tensor each.

    The first has few taps that are wide, and zeros for taps that the filter has not; the second has the filter's own.
    """

    def __init__(self, channels, taps, stride, padding, dilation, phased):
        self.phased = phased
        ones = (1, 1, 1)
        self.fold = ones if phased else stride
        self.step = stride if phased else ones
        self.taps = list(taps) if phased else [triton.cdiv(t, s) for t, s in zip(taps, stride)]
        #: Rows of a step before the first position, and where the first tap is behind their beginning.
        self.rows = [triton.cdiv(p, s) for p, s in zip(padding, self.step)] if phased else [0, 0, 0]
        self.lead = [r * s for r, s in zip(self.rows, self.step)] if phased else list(padding)
        self.first = [a - p for a, p in zip(self.lead, padding)] if phased else [0, 0, 0]
        self.phases = [min(t, s // math.gcd(s, d)) for t, s, d in zip(self.taps, self.step, dilation)]
        #: The last tap's place, in rows.
        self.reach = [(b + d * (t - 1)) // s for b, d, t, s in zip(self.first, dilation, self.taps, self.step)]
        self.octets = triton.cdiv(channels * math.prod(self.fold), 8 + 8 * CONV_FP8) * (1 + CONV_FP8)
        # Taps side by side read pixels side by side: one row of joined x cp numbers, which overlaps with the next.
        self.joined = self.taps[2] if dilation[2] == self.step[2] == 1 else 1
        self.groups = (self.taps[0], self.taps[1], self.taps[2] // self.joined)
        self.bk, self.chunks = conv_chunks(self.joined * 8 * self.octets)
        self.total = math.prod(self.groups) * self.chunks * self.bk


def conv_steps(channels, taps, stride, padding, dilation):
    """Of both ways the one that multiplies less; where taps with steps are apart, each position in a tensor."""
    given = (channels, taps, stride, padding, dilation)
    phased = SplitSteps(*given, True)
    if any(s > 1 and d > 1 for s, d in zip(stride, dilation)):
        return phased
    folded = SplitSteps(*given, False)
    return min(folded, phased, key=lambda one: one.total)
