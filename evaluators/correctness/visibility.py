"""Whether the judge sees what depends on the inputs, and weights with which it does.

A layer of torch draws its weights from +-1/sqrt(fan_in), a third of the variance that preserves a signal, and a ReLU
takes half of what is left (He et al. 2015, section 2.2). After sixteen layers the answer is its biases, and rounding
hides the rest. A problem of which the judge sees too little is therefore judged with weights of another size, because a
kernel must be right for any weights.
"""

import math
import secrets

import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.expected import solve
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import scale_of
from kbevolve.evaluators.correctness.weights import amplified, varied

#: The judge sees enough if it accepts an E of at most this. An answer that ignores its input has an E of 1 or more.
CLEAR = 0.1
#: It sees something below this, where no weights show it more.
VISIBLE = 0.5
#: Factors of the weights, tried in turn. The first preserves variance from a layer with ReLU to the next one. At 1 only
#: weights that no seed decides are changed. Small ones are for answers that saturate.
GAINS = (math.sqrt(6), 1.0, 4.0, 1 / 8, 1 / 64, 16.0)
#: Draws of the inputs.
_DRAWS = 3


def accepted_share(reference: Reference) -> float:
    """The largest E that the judge would accept on inputs as the problem draws them.

    Infinite where the answer does not change with the inputs, up to rounding.

    Raises:
        EvaluatorError: the reference fails.
    """
    truth: list[torch.Tensor] = []
    means: list[torch.Tensor | None] = []
    changes = False
    for _ in range(_DRAWS):
        _, expected, _ = solve(reference, Draw.of(nominal))
        if not truth:
            truth = expected.truth
            means = [each.clone() if each.is_floating_point() else None for each in truth]
            continue
        for before, now, mean in zip(truth, expected.truth, means, strict=True):
            if mean is not None:
                mean += now
            elif not torch.equal(before, now):
                changes = True
    scale = scale_of(expected, [mean if mean is None else mean.div_(_DRAWS) for mean in means], reference.precision)
    return scale.bound if scale.live or changes else math.inf


def live_weights(reference: Reference, share: float) -> tuple[float, float, dict[str, torch.Tensor]] | None:
    """Weights with which the judge accepts a smaller E than `share`, which it does with those that the reference has.

    Returns:
        A factor of `GAINS`, the E that the judge accepts, and the state by name: its random numbers times the factor,
        and other numbers than the defaults. None where `share` is clear, and where no factor helps.
    """
    own = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    other = reference.reweighted(secrets.randbits(62)) if own else {}
    found = None
    for gain in GAINS if own else ():
        if share <= CLEAR:
            break
        state = varied(other, amplified(other, own, gain), seed=secrets.randbits(62))
        try:
            with reference.weights(state):
                seen = accepted_share(reference)
        except EvaluatorError:
            continue
        if seen < share:
            share, found = seen, (gain, seen, state)
    return found


def share_words(share: float) -> str:
    """What `accepted_share` means, for a message."""
    if share == math.inf:
        return "no part of the answer changes with the input"
    return f"rounding hides all but errors of {share:.1g} of what changes with the input"
