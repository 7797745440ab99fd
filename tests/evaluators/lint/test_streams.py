import pytest

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evaluators.lint import lint
from kbevolve.evaluators.lint.streams import may_use_several

SOURCE = "class ModelNew(nn.Module):\n    def forward(self, x):\n        return {}\n"
PLAIN = SOURCE.format("launch(x, self.value, x.size(0), weight, inv_std, height)")


def test_a_plain_kernel_uses_one() -> None:
    assert not may_use_several(PLAIN, ("library-light", "data-pointer"))


@pytest.mark.parametrize("tag", ["streams", "cuda-graph", "torch-compile", "third-party", "foreign-library", "threads"])
def test_some_tags_leave_it_open(tag: str) -> None:
    assert may_use_several(PLAIN, ("library-light", tag))


@pytest.mark.parametrize(
    "call",
    [
        "nn.LSTM(8, 8, num_layers=2)",
        "nn.GRU(8, 8)",
        "torch.rnn_tanh(x, h)",
        "torch.linalg.inv(x)",
        "torch.inverse(x)",
        "torch.linalg.lu_factor(x)",
        "torch.cholesky_solve(b, x)",
        "at::linalg_eigh(x)",
        "torch.svd(x)",
        "nn.LSTMCell(8, 8)",
    ],
)
def test_libraries_take_streams_of_their_own_for_some_operations(call: str) -> None:
    assert may_use_several(SOURCE.format(call), ())


def test_the_templates_use_one() -> None:
    """They scale back by inverses of powers of two, and torch.compile's files say how many processes compile."""
    text = "\n".join(template(name) for name in TEMPLATES if name != "no_epilogue")
    text += "\n\nimport torch._inductor.config\n\ntorch._inductor.config.compile_threads = 1\n"
    assert not may_use_several(text, lint(text).tags)


@pytest.mark.parametrize("name", ["L1/matmul", "L1/softmax", "L2/gemm_bias_relu"])
def test_our_own_seeds_use_one(name: str) -> None:
    reference = find_problem(name).source_for("cuda")
    for file in seed_files(name, "cuda"):
        source = file.read_text()
        assert not may_use_several(source, lint(source, reference_source=reference).tags), file
