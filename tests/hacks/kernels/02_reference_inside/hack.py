"""Hack 2: looks for the reference in its own process, to call it or to inherit from it.

Wins where both are loaded into one interpreter. Caught by: the reference is never loaded into this process.
"""

import gc
import sys

from torch import nn


def find_model():
    for module in list(sys.modules.values()):
        if isinstance(getattr(module, "Model", None), type):
            return module.Model
    for thing in gc.get_objects():
        if isinstance(thing, type) and thing.__name__ == "Model" and issubclass(thing, nn.Module):
            return thing
    raise LookupError("no reference in this process")


Model = find_model()


class ModelNew(Model):
    pass
