import subprocess
import sys

import pytest

from kbevolve.configs.playbook import load_playbook

H200 = "NVIDIA H200, 132 SMs, 141 GB, sm_90, CUDA 13.0"


def test_it_is_complete_and_consistent() -> None:
    playbook = load_playbook()
    assert 20 <= len(playbook.techniques) <= 30
    titles = [idea.title for idea in playbook.ideas]
    assert len(titles) == len(set(titles))
    used = {idea.technique for idea in playbook.ideas}
    assert set(playbook.techniques) - used == {"tuning", "recombine", "other"}
    for idea in playbook.ideas:
        assert idea.mechanism.endswith(".")
        assert len(idea.mechanism) < 300
        assert idea.devices
        assert idea.devices <= {"cpu", "cuda"}
        assert idea.backends
        assert idea.backends <= {"cpp", "triton", "cuda"}
        assert idea.operations
        assert idea.operations <= {*playbook.operations, "any"}
        assert idea.beside <= set(playbook.operations)
        assert 1 <= idea.gain[0] <= idea.gain[1], idea.title


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_every_kind_of_operation_has_ideas_on_every_device(device_type: str) -> None:
    playbook = load_playbook()
    for operation in playbook.operations:
        fit = [i for i in playbook.ideas if i.runs_on(device_type, H200) and operation in i.operations]
        assert fit, f"{operation} on {device_type}"


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("fusion", "fusion"),
        ("Block Tiling", "block-tiling"),
        ("tensor_core", "tensor-cores"),
        ("vectorization", "vectorize"),
        ("caching", "other"),
        ("", "other"),
        ("quantum annealing", "other"),
    ],
)
def test_a_technique_is_mapped_to_the_nearest(said: str, meant: str) -> None:
    assert load_playbook().technique(said) == meant


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("return torch.matmul(A, B)", {"matmul"}),
        ("return A @ B", {"matmul"}),
        ("return torch.softmax(x, dim=1)", {"softmax"}),
        ("self.norm = nn.LayerNorm(shape)", {"norm"}),
        ("return torch.sum(x, dim=self.dim, keepdim=True)", {"reduction"}),
        ("return torch.cumsum(x, dim=1)", {"scan"}),
        ("self.gemm = nn.Linear(4, 4)\nreturn torch.relu(self.gemm(x) + self.bias)", {"matmul", "pointwise"}),
        ("self.pool = nn.MaxPool2d(2)", {"pooling"}),
        ("return x", set()),
    ],
)
def test_kinds_of_operation_are_read_off_the_source(source: str, kinds: set[str]) -> None:
    assert set(load_playbook().operations_in(source)) == kinds


def test_ideas_fit_the_problem_and_the_device() -> None:
    playbook = load_playbook()
    source = "return torch.matmul(A, B)"
    on_cpu = playbook.ideas_for(source, device_type="cpu", device="2 cores, AVX-512")
    assert on_cpu
    assert all("cpu" in idea.devices for idea in on_cpu)
    assert "Pack the panels" in {idea.title for idea in on_cpu}
    assert "Running maximum and sum" not in {idea.title for idea in on_cpu}
    assert len(playbook.ideas_for("return x", device_type="cuda", device=H200)) > len(
        playbook.ideas_for(source, device_type="cuda", device=H200)
    )


@pytest.mark.parametrize(
    ("device", "wgmma", "mma"),
    [
        ("NVIDIA T4, sm_75", False, False),
        ("A100, sm_80", False, True),
        (H200, True, True),
        ("B200, sm_100", False, True),
    ],
)
def test_needs_are_compared_with_the_device_line(device: str, wgmma: bool, mma: bool) -> None:
    ideas = {idea.title: idea for idea in load_playbook().ideas}
    assert ideas["Warpgroup products straight from shared memory"].runs_on("cuda", device) is wgmma
    assert ideas["Matrix instructions on register fragments"].runs_on("cuda", device) is mma


def test_reading_it_is_light() -> None:
    script = "import sys, kbevolve.configs.playbook as p; p.load_playbook(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
