"""Whether other programs keep this machine busy: times would scatter."""

import os


def load_warning() -> str:
    """A line for the user when more programs want to run than there are cores; "" when not."""
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    if load <= cores:
        return ""
    return f"This machine is busy (load {load:.1f} on {cores} cores): times will scatter, and judging takes longer."
