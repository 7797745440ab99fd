"""The data sheets are whole, and agree with what an H200 says of itself."""

import re

import pytest

from kbevolve.configs.errors import UsageError
from kbevolve.configs.hardware import data_sheet, data_sheets, lines_of


def test_every_gpu_of_the_literature_is_there() -> None:
    assert set(data_sheets()) == {
        "L40S", "H100", "A100-40GB", "A100-80GB", "L4", "T4", "A10G", "H200", "B200", "MI300X",
    }  # fmt: skip
    for sheet in data_sheets().values():
        assert sheet.shared[1] <= sheet.shared[0]
        assert re.fullmatch(r"sm_\d+|gfx\w+", sheet.architecture)
        assert list(sheet.peaks.values()) == sorted(sheet.peaks.values()), "a narrower format is never slower"
        assert sheet.peaks["fp32"] > 0
        assert 100 < sheet.bandwidth < 10_000
    descriptions = [sheet.description for sheet in data_sheets().values()]
    assert len(set(descriptions)) == len(descriptions), "a description finds its lines"


def test_a_gpu_is_found_by_its_name_and_described_like_a_device() -> None:
    sheet = data_sheet("h200")
    assert sheet.description == "NVIDIA H200 SXM, 132 SMs, 141 GB, sm_90"
    assert lines_of(sheet.description) == sheet.lines
    assert "4800 GB/s" in sheet.lines[1]
    assert "bf16 989" in sheet.lines[1]
    # As torch describes the card: the judge measures it, and no data sheet is quoted.
    assert lines_of("NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.13.0, Triton 3.6.0") == []
    with pytest.raises(UsageError, match=r"no data sheet of a GPU 'A100'. Nearest: .*A100-80GB"):
        data_sheet("A100")
