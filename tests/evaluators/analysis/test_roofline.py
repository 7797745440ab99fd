"""The rates of a device, and the times that follow."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch

from kbevolve.evaluators.analysis import roofline
from kbevolve.evaluators.analysis.roofline import CLASSES, Roofline, measure, roofline_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache

GPU = Roofline(
    bytes_per_second=4e12,
    operations_per_second={"fp64": 60e12, "fp32": 50e12, "tf32": 380e12, "fp16": 720e12, "fp8": 1400e12},
    l2_bytes=50 << 20,
    headroom=1.25,
)
FP32_RATE = 1 / (1 / 720e12 + 2 / 1400e12)


def test_a_class_may_use_every_unit_that_is_accurate_enough() -> None:
    assert GPU.peak("half") == GPU.peak("tf32") == 720e12
    older = replace(GPU, operations_per_second={**GPU.operations_per_second, "fp8": 0.0})
    assert older.peak("fp32") == GPU.peak("fp64") == 720e12 / 3  # three fp16 products are an fp32 product
    assert GPU.peak("fp32") == pytest.approx(FP32_RATE)  # the small ones may be of fp8
    plain = Roofline(
        bytes_per_second=1e10, operations_per_second={"fp64": 1e11, "fp32": 2e11}, l2_bytes=0, headroom=1.0
    )
    assert [plain.peak(name) for name in CLASSES] == [2e11] * 4


def test_the_roofline_is_the_slower_of_bytes_and_operations() -> None:
    assert GPU.roofline_ms("fp32", moved_bytes=4_000_000_000, operations=0) == pytest.approx(1.0)
    assert GPU.roofline_ms("fp32", moved_bytes=4_000_000_000, operations=2 * FP32_RATE * 1e-3) == pytest.approx(2.0)
    assert GPU.roofline_ms("half", moved_bytes=4_000_000_000, operations=480e9) == pytest.approx(1.0)


def test_the_floor_counts_only_certain_work_at_raised_rates() -> None:
    assert GPU.floor_ms("fp32", written_bytes=50 << 20, operations=0) == 0.0  # may still lie in the cache
    beyond = (50 << 20) + 4_000_000_000
    assert GPU.floor_ms("fp32", written_bytes=beyond, operations=0) == pytest.approx(1.0 / 1.25)
    assert GPU.floor_ms("fp32", written_bytes=beyond, operations=2 * FP32_RATE * 1e-3) == pytest.approx(2.0 / 1.25)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that take milliseconds."""
    monkeypatch.setitem(roofline._EDGE, "cpu", 256)
    monkeypatch.setitem(roofline._COPIED, "cpu", 1 << 22)


@pytest.mark.usefixtures("small")
def test_the_measurement_restores_torchs_settings() -> None:
    threads, flag = torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32
    found = measure(find_device("cpu"))
    assert (torch.get_num_threads(), torch.backends.cuda.matmul.allow_tf32) == (threads, flag)
    # Any machine that runs this moves 0.1 to 10,000 GB/s and does 0.1 to 100,000 GFLOP/s.
    assert 1e8 < found.bytes_per_second < 1e13
    assert found.operations_per_second.keys() == {"fp64", "fp32", "bf16"}
    assert all(1e8 < rate < 1e14 for rate in found.operations_per_second.values())
    assert found.headroom > 1


@pytest.mark.usefixtures("small")
def test_the_rates_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk_cache, device = DiskCache(tmp_path), find_device("cpu")
    first = roofline_of(device, disk_cache=disk_cache)
    with monkeypatch.context() as patch:
        patch.setattr(roofline, "measure", lambda device: pytest.fail("measured again"))
        assert roofline_of(device, disk_cache=disk_cache) == first
    monkeypatch.setattr(roofline, "measure", lambda device: GPU)
    # A new measurement never lowers a rate: a busy machine must not reject an honest kernel.
    again = roofline_of(device, disk_cache=disk_cache, fresh=True)
    assert again == first.raised_to(GPU)
    assert again.bytes_per_second == max(first.bytes_per_second, GPU.bytes_per_second)


@pytest.mark.parametrize(
    "change",
    [{"bytes_per_second": "fast"}, {"operations_per_second": {}}, {"operations_per_second": 3}, {"l2_bytes": None}],
)
def test_a_damaged_entry_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object) -> None:
    disk_cache, device = DiskCache(tmp_path), find_device("cpu")
    disk_cache.put("roofline", f"{device.fingerprint}|{roofline._FORMAT}", asdict(GPU) | dict(change))  # type: ignore[call-overload]
    monkeypatch.setattr(roofline, "measure", lambda device: GPU)
    assert roofline_of(device, disk_cache=disk_cache) == GPU
