"""The numbers of the rule that decides whether an output is accurate enough; the prompts state it from here.

What they mean: `evaluators.correctness.truth` (errors) and `evaluators.correctness.inputs` (distributions). No torch
here, because the search's process reads them.
"""

#: Accepted E by the task's precision: above the E of honest kernels, below that of the next coarser class.
CAPS = {"fp32": 5e-5, "tf32": 2e-3, "fp16": 2e-2, "bf16": 2e-2}
#: The bound is this multiple of the reference's own E where that is more than the cap.
SLACK = 4.0
#: Elements of a tile: one row of a large one, several of a small one.
RUN = 256
#: The bound of T is this multiple of the bound of E, or of the reference's own T. A tile of zeros has T = 0.7, and 64
#: zeros have 0.35: both are above 8 times every cap.
TILE_SLACK = 8.0
#: A row's error may be this share of the row itself, or this multiple of the reference's own error in it. Loose bounds:
#: they are for rows that are lost beside larger ones, not for their rounding.
ROW_BOUND = 0.3
ROW_SLACK = 8.0
#: An element's error in a row may always be as large as this, four times the smallest normal number of fp32: honest
#: kernels flush subnormal numbers to zero (`--use_fast_math`, ex2.approx.ftz), or stop an exponential before them.
ROW_FLOOR = 4 * 2.0**-126
#: Share of a sample of elements that may be off by more than `ROW_BOUND` of themselves, on inputs as the problem draws
#: them. Where a sum cancels, honest kernels are: 3 % of a product in bf16.
MOST_LOST = 0.1
#: Share of an output that may be NaN although it does not depend on the inputs that are.
POISONED = 0.01

#: Powers of two that rows and columns are multiplied by, 2^-this to 2^this, with random signs.
SCALE_EXPONENT = 2
#: Power of two that enlarged inputs are multiplied by, and that diminished ones have as root mean square.
ENLARGED_EXPONENT = 7
DIMINISHED_EXPONENT = -16
#: Powers of two of the finite outliers, the smallest and the largest.
OUTLIER_EXPONENTS = (20, 40)
