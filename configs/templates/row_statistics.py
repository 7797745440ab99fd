ROWS_BLOCK = 8192  # tune: 4096, 8192, 16384
ROWS_WARPS = 8  # tune: 4, 8, 16
ROWS_EACH = 4  # tune: 1, 2, 3, 4, 6
# tune if: 16 <= ROWS_BLOCK // (32 * ROWS_WARPS) <= 32 and ROWS_EACH * ROWS_WARPS <= 32


@triton.jit
def rows_partial(x, inside, count, KIND: tl.constexpr):
    # Two numbers of a part of a row: the largest and the sum of exponentials, the sum and the squares around the mean,
    # or one sum.
    if KIND < 2:
        first = tl.max(tl.where(inside, x, -float("inf")), 0)
        safe = tl.where(first == -float("inf"), 0.0, first)
        second = tl.sum(tl.where(inside, tl.exp(x - safe), 0.0), 0)
    elif KIND == 2:
        first = tl.sum(tl.where(inside, x, 0.0), 0)
        apart = tl.where(inside, x - first / count, 0.0)
        second = tl.sum(apart * apart, 0)
    else:
        size = tl.abs(x) if KIND == 3 else x * x
        first = tl.sum(tl.where(inside, size, 0.0), 0)
        second = first
    return first, second


@triton.jit
def rows_joined(firsts, seconds, counts, known, WIDTH, KIND: tl.constexpr):
    # The same of a whole row.
    if KIND < 2:
        first = tl.max(tl.where(known, firsts, -float("inf")), 0)
        safe = tl.where(first == -float("inf"), 0.0, first)
        second = tl.sum(tl.where(known, seconds * tl.exp(firsts - safe), 0.0), 0)
    elif KIND == 2:
        first = tl.sum(tl.where(known, firsts, 0.0), 0)
        apart = firsts / counts - first / WIDTH
        second = tl.sum(tl.where(known, seconds + counts * apart * apart, 0.0), 0)
    else:
        first = tl.sum(tl.where(known, firsts, 0.0), 0)
        second = first
    return first, second


@triton.jit
def rows_result(x, first, second, WIDTH, eps, KIND: tl.constexpr):
    if KIND == 0:
        value = tl.exp(x - first) / second
    elif KIND == 1:
        value = x - first - tl.log(second)
    elif KIND == 2:
        value = (x - first / WIDTH) * (1.0 / tl.sqrt_rn(second / WIDTH + eps))
    elif KIND == 3:
        value = x / (first / WIDTH)
    else:
        value = x / tl.sqrt_rn(first)
    return value


@triton.jit
def rows_apply(x_ptr, w_ptr, b_ptr, out_ptr, part_ptr, turn_ptr, ROWS, WIDTH, GROUPS, eps, KIND: tl.constexpr,
               PARTS: tl.constexpr, SLOTS: tl.constexpr, EACH: tl.constexpr, CHUNK: tl.constexpr, REPEAT: tl.constexpr,
               WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    # PARTS programs have a row in their registers, so it is read once. They all run at once, and wait for each other;
    # meanwhile a multiprocessor's others read and write their rows.
    group, part = tl.program_id(0) // PARTS, tl.program_id(0) % PARTS
    at = part * BLOCK + tl.arange(0, BLOCK)
    inside = at < WIDTH
    slots = tl.arange(0, SLOTS)
    counts = tl.minimum(BLOCK, WIDTH - slots * BLOCK).to(tl.float32)
    own = tl.minimum(BLOCK, WIDTH - part * BLOCK).to(tl.float32)
    turn = 0
    wide = tl.zeros((), dtype=tl.int64) + WIDTH
    for row in range(group, ROWS, GROUPS):
        x = tl.load(x_ptr + row * wide + at, mask=inside, other=0.0)
        first, second = rows_partial(x, inside, own, KIND)
        if PARTS > 1:
            # Those of this turn and of the one before lie apart: a program may be one turn ahead.
            here = part_ptr + (group * 2 + turn % 2) * 2 * PARTS
            tl.store(here + part, first)
            tl.store(here + PARTS + part, second)
            tl.debug_barrier()
            tl.atomic_add(turn_ptr + group, 1, sem="release")
            while tl.atomic_add(turn_ptr + group, 0, sem="acquire") < (turn + 1) * PARTS:
                pass
            tl.debug_barrier()
            known = slots < PARTS
            firsts = tl.load(here + slots, mask=known, other=0.0, volatile=True)
            seconds = tl.load(here + PARTS + slots, mask=known, other=0.0, volatile=True)
            first, second = rows_joined(firsts, seconds, counts, known, WIDTH, KIND)
            turn += 1
        value = rows_result(x, first, second, WIDTH, eps, KIND)
        if WEIGHTED:
            of = row % REPEAT * CHUNK + at // EACH
            value = value * tl.load(w_ptr + of, mask=inside, other=0.0) + tl.load(b_ptr + of, mask=inside, other=0.0)
        tl.store(out_ptr + row * wide + at, value, mask=inside)


ROWS_KINDS = ("softmax", "log_softmax", "normalise", "over_mean", "over_norm")


class RowStatistics:
    """What place and sizes decide of a function of each number and of two statistics of its row."""

    def __init__(self, place, kind, rows, width, channels, each, eps):
        self.parts = triton.cdiv(width, ROWS_BLOCK)
        count = torch.cuda.get_device_properties(place[0]).multi_processor_count * ROWS_EACH
        self.fits = self.parts <= count
        if not self.fits:
            return
        self.groups = min(rows, count // self.parts)
        # All of a multiprocessor's programs share its 65536 registers.
        most = min(255, 65536 // (32 * ROWS_WARPS * ROWS_EACH) // 8 * 8)
        together = {"launch_cooperative_grid": True} if self.parts > 1 else {}
        self.apply = PlannedLaunch(
            rows_apply, (self.groups * self.parts,), (rows, width, self.groups, eps), KIND=ROWS_KINDS.index(kind),
            PARTS=self.parts, SLOTS=triton.next_power_of_2(self.parts), EACH=each, CHUNK=width // each,
            REPEAT=max(1, channels * each // width), WEIGHTED=channels > 0, BLOCK=ROWS_BLOCK, num_warps=ROWS_WARPS,
            maxnreg=most, **together)


row_statistics_of = functools.lru_cache(maxsize=None)(RowStatistics)


def row_statistics(x, weight, bias, kind, width, each, eps):
    """A function of each number and of two statistics of its row: `width` numbers that follow each other in memory.

    `weight` and `bias` have a number for each `each` that follow each other, and begin again after their last.
    """
    x = x.contiguous()
    channels = 0 if weight is None else weight.numel()
    found = row_statistics_of(place_of(x, weight, bias), kind, x.numel() // width, width, channels, each, eps)
    if not found.fits or x.dtype != torch.float32:
        return rows_by_library(x, weight, bias, kind, width, each, eps)
    out = torch.empty_like(x)
    parts = torch.empty(4 * found.groups * found.parts, device=x.device, dtype=torch.float32)
    turns = torch.zeros(found.groups, device=x.device, dtype=torch.int32)
    w, b = (out if one is None else one.contiguous() for one in (weight, bias))
    found.apply(x, w, b, out, parts, turns)
    return out


def rows_by_library(x, weight, bias, kind, width, each, eps):
    """The same by torch's own functions."""
    rows = x.reshape(-1, width)
    if kind == "softmax":
        found = torch.softmax(rows, 1)
    elif kind == "log_softmax":
        found = torch.log_softmax(rows, 1)
    elif kind == "normalise":
        found = torch.nn.functional.layer_norm(rows, (width,), eps=eps)
    elif kind == "over_mean":
        found = rows / rows.abs().mean(1, keepdim=True)
    else:
        found = rows / rows.norm(dim=1, keepdim=True)
    if weight is not None:
        found = torch.addcmul(bias.view(-1, 1), found.view(-1, weight.numel(), each), weight.view(-1, 1))
    return found.view(x.shape)
