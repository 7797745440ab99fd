"""Measured numbers in words: as many digits as a measurement is good for, everywhere the same."""


def three_digits(value: float) -> str:
    """``0.0512``, ``3.40``, ``12.4`` or ``1234``."""
    return f"{value:#.3g}".rstrip(".") if value < 999.5 else f"{value:.0f}"


def as_times(speedup: float) -> str:
    """A speedup: ``3.40×``."""
    return f"{three_digits(speedup)}×"
