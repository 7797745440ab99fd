"""Describes where the wrong elements of an output are: stretches, residues and tiles, each with its share."""

import torch

#: Widths of vectors, warps and tiles, by which mistakes repeat.
_PERIODS = (8, 16, 32, 64, 128)
#: A residue counts from this share of the fullest one's wrong elements on; those that count must hold the second share
#: of all wrong elements, and tiles that are wrong to the third share are wrong as a whole.
_COUNTS = 0.1
_COVERED = 0.98
_WHOLE = 0.9
#: Single indices shown.
_SHOWN = 4


def describe_places(wrong: torch.Tensor, first: int, to_the_end: bool) -> str:
    """Where the elements of a mask are, e.g. ``columns 9 to 15 modulo 128; rows: everywhere``.

    `first` is the index of the mask's first element along axis 0; with `to_the_end` it reaches that axis's end.
    """
    if tail := _tail(wrong, first, to_the_end):
        return tail
    parts = [
        words
        for axis in range(wrong.ndim)
        if wrong.shape[axis] > 1 and (words := _along(wrong, axis, 0 if axis else first))
    ]
    return "; ".join([*parts, *filter(None, [_tiles(wrong)])])


def _tail(wrong: torch.Tensor, first: int, to_the_end: bool) -> str:
    """The wrong elements, where they are one stretch at the end of an axis, e.g. a last tile; else ""."""
    for axis in range(0 if to_the_end else 1, wrong.ndim):
        lines = _lines(wrong, axis) > 0
        offset = 0 if axis else first
        start = int(lines.nonzero()[0])
        if start and bool(lines[start:].all()):
            return f"only index {offset + start} and above of {offset + lines.numel()} along axis {axis} (a last tile?)"
    return ""


def _along(wrong: torch.Tensor, axis: int, offset: int) -> str:
    """The indices along one axis at which elements are wrong; "" where they are everywhere or without a pattern."""
    counts = _lines(wrong, axis)
    indices = counts.nonzero().flatten() + offset
    size = counts.numel()
    if len(indices) == size:
        low, high = float(counts.min()), float(counts.max())
        return "" if low * 2 > high else _modulo(counts, axis, offset)
    if len(indices) <= _SHOWN:
        return f"along axis {axis} only index {', '.join(map(str, indices.tolist()))}"
    start, end = int(indices[0]), int(indices[-1])
    if end - start + 1 == len(indices):
        return f"along axis {axis} only index {start} to {end}"
    whole = float(counts.sum()) >= _WHOLE * len(indices) * wrong.numel() / size
    return _modulo(counts, axis, offset) or (f"at {len(indices)} of {size} indices along axis {axis}" if whole else "")


def _modulo(counts: torch.Tensor, axis: int, offset: int) -> str:
    """The residues that hold the wrong elements, by the period for which they are the smallest share of all."""
    best, words = 0.5, ""
    places = torch.arange(offset, offset + counts.numel(), device=counts.device)
    for period in _PERIODS:
        held = torch.zeros(period, dtype=torch.float64, device=counts.device)
        held.index_add_(0, places % period, counts.double())
        chosen = held > _COUNTS * held.max()
        share = float(chosen.double().mean())
        covered = float(held[chosen].sum()) >= _COVERED * float(held.sum())
        # Fewer than two indices for each residue would be a coincidence.
        repeated = counts.numel() >= 2 * period and int((counts > 0).sum()) >= 2 * int(chosen.sum())
        if covered and repeated and (share <= best if not words else share < best):
            residues = _ranges(chosen.nonzero().flatten().tolist())
            best, words = share, f"along axis {axis} only index {residues} modulo {period}"
    return words


def _ranges(numbers: list[int]) -> str:
    """``0 to 3, 7`` for 0, 1, 2, 3, 7."""
    starts = [number for number in numbers if number - 1 not in numbers]
    ends = [number for number in numbers if number + 1 not in numbers]
    return ", ".join(f"{one} to {other}" if one < other else f"{one}" for one, other in zip(starts, ends, strict=True))


def _tiles(wrong: torch.Tensor) -> str:
    """The tiles of the last two axes that are wrong as a whole, where these are at most half of all; else ""."""
    if wrong.ndim < 2:
        return ""
    table = wrong.reshape(1, -1, *wrong.shape[-2:]).float()
    for edge in reversed(_PERIODS):
        if min(wrong.shape[-2:]) < 2 * edge:
            continue
        shares = torch.nn.functional.avg_pool2d(table, edge, ceil_mode=True, count_include_pad=False)
        hit = shares[shares > 0]
        if 2 * len(hit) <= shares.numel() and float(hit.mean()) >= _WHOLE:
            return f"in {len(hit)} of {shares.numel()} tiles of {edge} x {edge}, which are wrong as a whole"
    return ""


def _lines(wrong: torch.Tensor, axis: int) -> torch.Tensor:
    """Wrong elements at each index of an axis."""
    others = [other for other in range(wrong.ndim) if other != axis]
    return wrong.sum(dim=others) if others else wrong.long()
