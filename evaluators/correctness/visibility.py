"""Whether the judge sees what depends on the inputs, and weights with which it does.

A layer of torch draws its weights from +-1/sqrt(fan_in), a third of the variance that preserves a signal, and a ReLU
takes half of what is left (He et al. 2015, section 2.2). After sixteen layers the answer is its biases, and rounding
hides the rest. A problem of which the judge sees too little is therefore judged with weights of another size, because a
kernel must be right for any weights.
"""

import math
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.expected import solve
from kbevolve.evaluators.correctness.inputs import nominal
from kbevolve.evaluators.correctness.mean import MeanOfTruth
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import scale_of
from kbevolve.evaluators.correctness.weights import amplified, varied

#: The judge sees enough if it accepts an E of at most this. An answer that ignores its input has an E of 1 or more.
CLEAR = 0.1
#: It sees something below this, where no weights show it more.
VISIBLE = 0.5
#: Factors of all weights, tried in turn. The first preserves variance from a layer with ReLU to the next one. At 1 only
#: weights that no seed decides are changed. Small and large ones are for answers that saturate.
_GAINS = (math.sqrt(6), 1.0, 4.0, 1 / 8, 1 / 64, 64.0)
#: Standard deviation over the batch that the weights of each layer are scaled to, where no factor of all suffices. At 1
#: a U-Net with softmax as its activation amplifies rounding 50 times as much.
_LAYER_DEVIATION = 0.5
#: Draws of the inputs.
_DRAWS = 3


def accepted_share(reference: Reference) -> float:
    """The largest E that the judge would accept on inputs as the problem draws them.

    Infinite where the answer does not change with the inputs, up to rounding.

    Raises:
        EvaluatorError: the reference fails.
    """
    expected = solve(reference, Draw.of(nominal))[1]
    mean = MeanOfTruth()
    mean.add(expected.truth)
    exact = [None if each.is_floating_point() else each for each in expected.truth]
    changes = False
    for _ in range(1, _DRAWS):
        del expected  # before the next one is computed
        expected = solve(reference, Draw.of(nominal))[1]
        mean.add(expected.truth)
        pairs = zip(exact, expected.truth, strict=True)
        changes |= not all(before is None or torch.equal(before, now) for before, now in pairs)
        del pairs
    scale = scale_of(expected, mean.take(), reference.precision)
    return scale.bound if scale.live or changes else math.inf


def live_weights(
    reference: Reference, share: float
) -> tuple[Mapping[str, float], float, Mapping[str, torch.Tensor]] | None:
    """Weights with which the judge accepts a smaller E than `share`, which it does with those that the reference has.

    Returns:
        The factor of each tensor of random numbers, the E that the judge accepts, and the state by name: these tensors
        times their factors, and other numbers than the defaults. None where `share` is clear, and where nothing helps.
    """
    own = {name: tensor.clone() for name, tensor in reference.model.state_dict().items()}
    if not own or share <= CLEAR:
        return None
    other, seed = reference.reweighted(secrets.randbits(62)), secrets.randbits(62)
    found = None
    for factors in _factors(reference, varied(other, own, seed=seed)):
        state = varied(other, amplified(other, own, factors), seed=seed)
        try:
            with reference.weights(state):
                seen = accepted_share(reference)
        except EvaluatorError:
            continue
        if seen < share:
            share, found = seen, (factors, seen, state)
        if share <= CLEAR:
            break
    return found


def _factors(reference: Reference, state: Mapping[str, torch.Tensor]) -> Iterator[Mapping[str, float]]:
    for gain in _GAINS:
        yield dict.fromkeys(state, gain)
    with suppress(EvaluatorError):
        yield _by_layer(reference, state)


def _by_layer(reference: Reference, state: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """Factors of weights by name, found layer by layer in one call (Mishkin and Matas 2016, "All you need is a good
    init"), in which the weights are scaled as well."""
    names = {id(weight): name for name, weight in reference.model.named_parameters()}
    factors: dict[str, float] = {}

    def scale(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> Any:
        weights = {names[id(one)]: one for one in layer.parameters(recurse=False) if one.ndim > 1}
        if not isinstance(output, torch.Tensor) or not output.ndim or factors.keys() & weights:
            return None
        deviation = float((output - output.mean(0)).std()) if output.is_floating_point() else 0.0
        if weights and 0 < deviation < math.inf:
            factors.update(dict.fromkeys(weights, _LAYER_DEVIATION / deviation))
            for name, weight in weights.items():
                weight.data.mul_(factors[name])
            return layer.forward(*inputs)
        return None

    hooks = [layer.register_forward_hook(scale) for layer in reference.model.modules()]
    try:
        with reference.weights(state):
            reference.output(*reference.inputs(secrets.randbits(62), nominal))
    finally:
        for hook in hooks:
            hook.remove()
    return factors


def share_words(share: float) -> str:
    """What `accepted_share` means, for a message."""
    if share == math.inf:
        return "no part of the answer changes with the input"
    return f"rounding hides all but errors of {share:.1g} of what changes with the input"
