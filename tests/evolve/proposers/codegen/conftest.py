"""A model that answers by script."""

import pytest

from tests.evolve.doubles import ScriptedModel


@pytest.fixture
def model() -> ScriptedModel:
    return ScriptedModel()
