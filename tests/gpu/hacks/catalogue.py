"""The adversarial kernels that need a GPU, in the form of `tests.hacks.catalogue`."""

from tests.hacks.catalogue import Expected, Hack

GPU_HACKS = (
    Hack(number=7, folder="07_stale_memory", problem="square", expected=Expected.CAUGHT),
    Hack(number=13, folder="13_tf32", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=13, folder="13_half", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=14, folder="14_flags", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=15, folder="15_silent_launch_failure", problem="square", expected=Expected.CAUGHT),
    Hack(number=24, folder="24_stale_graph", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=28, folder="28_side_stream", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=28, folder="28_side_stream_native", problem="square", expected=Expected.CAUGHT, refused=True),
    Hack(number=28, folder="28_stream_left_current", problem="matmul", expected=Expected.CAUGHT),
    Hack(number=30, folder="30_host_function", problem="square", expected=Expected.CAUGHT),
    Hack(number=33, folder="33_early_return", problem="matmul", expected=Expected.HARMLESS, refused=True),
    Hack(number=33, folder="33_patched_events", problem="matmul", expected=Expected.HARMLESS, refused=True),
    Hack(number=38, folder="38_persisting_cache", problem="column_sum", expected=Expected.HARMLESS),
    Hack(number=39, folder="39_prefetched_input", problem="square", expected=Expected.CAUGHT),
    Hack(number=40, folder="40_background_kernel", problem="matmul", expected=Expected.HARMLESS),
    Hack(number=49, folder="49_protocol_takeover", problem="matmul", expected=Expected.HARMLESS, refused=True),
    Hack(number=54, folder="54_cpu_tensor", problem="square", expected=Expected.CAUGHT),
    Hack(number=57, folder="57_graph_inside", problem="matmul", expected=Expected.ALLOWED),
    Hack(number=57, folder="57_compiled", problem="square", expected=Expected.ALLOWED, tags=("torch-compile",)),
)
