"""Matrix products of many tile sizes from one text of CUDA, and from one of Triton."""

from benchmarks.throughput.child import declared, edited
from benchmarks.throughput.shells import filled


def tiled(code: str, bm: int, bn: int, bk: int, tm: int, tn: int, *changes: tuple[str, str]) -> str:
    """CUDA with tiles of (bm, bk) and (bk, bn) in shared memory, and tm x tn outputs in the registers of a thread."""
    return declared(BM=bm, BN=bn, BK=bk, TM=tm, TN=tn) + edited(code, *changes)


def blocked(
    text: str, bm: int, bn: int, bk: int, warps: int, stages: int, precision: str, *changes: tuple[str, str]
) -> str:
    """Triton with blocks of (bm, bk) and (bk, bn)."""
    return filled(edited(text, *changes), BM=bm, BN=bn, BK=bk, WARPS=warps, STAGES=stages, PRECISION=precision)
