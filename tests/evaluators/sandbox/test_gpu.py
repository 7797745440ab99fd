"""The GPU of a device is found by its driver's name, and no other GPU can be opened."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox import gpu
from kbevolve.evaluators.sandbox.gpu import Gpu, all_gpus, find_gpu, special_files

#: As the driver writes them.
DESCRIPTION = """\
Model: \t\t NVIDIA H200
IRQ:   \t\t 62
GPU UUID: \t GPU-{number}2222222-0000-0000-0000-000000000000
Video BIOS: \t 96.00.a5.00.01
Bus Type: \t PCIe
Bus Location: \t 0000:0{number}:00.0
Device Minor: \t {number}
GPU Excluded:\t No
"""
CPU = Device(type="cpu", index=0, fingerprint="cpu", description="a CPU")
NAME = "GPU-{}2222222-0000-0000-0000-000000000000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (0, 1, 12):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
        (tmp_path / f"0000:0{number}:00.0" / "information").write_text(DESCRIPTION.format(number=number))
    return tmp_path


def test_gpus_are_listed_in_the_order_of_their_special_files(folder: Path) -> None:
    names = [(NAME.format(number), f"/dev/nvidia{number}") for number in (0, 1, 12)]
    assert [(gpu.name, str(gpu.node)) for gpu in all_gpus(folder)] == names


def test_a_gpu_without_a_number_is_left_out(folder: Path) -> None:
    path = folder / "0000:01:00.0" / "information"
    path.write_text(path.read_text().replace("Device Minor", "Something"))
    assert [gpu.node.name for gpu in all_gpus(folder)] == ["nvidia0", "nvidia12"]
    assert all_gpus(folder / "nowhere") == ()


@pytest.mark.parametrize(
    ("number", "node"),
    [(12, "nvidia12"), (1, "nvidia1"), (0, ""), (2, "")],
    ids=["12", "1", "no file", "not described"],
)
def test_a_device_is_the_gpu_of_its_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, node: str
) -> None:
    for name in ("nvidia1", "nvidia12"):
        (tmp_path / name).touch()
    monkeypatch.setattr(gpu, "_SPECIAL_FILES", tmp_path)
    monkeypatch.setattr(gpu, "all_gpus", lambda: all_gpus(folder))
    uuid = NAME.format(number).removeprefix("GPU-")
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda index: SimpleNamespace(uuid=uuid))
    found = find_gpu.__wrapped__(replace(CPU, type="cuda"))
    assert (found.node.name if found else "") == node


def test_special_files_of_other_gpus_are_left_out(tmp_path: Path) -> None:
    needed = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps", "nvidia-nvswitchctl"}
    for name in (*needed, "nvidia0", "nvidia1", "nvidia12", "sda"):
        (tmp_path / name).touch()
    gpu = Gpu(name="GPU-1", node=Path("/dev/nvidia1"))
    assert {path.name for path in special_files(gpu, tmp_path)} == needed | {"nvidia1"}
    # For a slice of a GPU, or an unknown special file, only CUDA_VISIBLE_DEVICES chooses.
    assert {path.name for path in special_files(None, tmp_path)} == needed | {"nvidia0", "nvidia1", "nvidia12"}


def test_a_cpu_has_no_gpu() -> None:
    assert find_gpu(CPU) is None
