"""How convolutions by windows write results: on a CPU, with a thread for each lane of a warp."""

import ctypes
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from kbevolve.configs.templates import template
from tests.evolve.proposers.seeds.template_functions import template_functions

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
SOURCE = """
#include <algorithm>
#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>
#define __device__
#define __forceinline__ inline
using std::max, std::min;
struct float2 { float x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static thread_local struct { int x; } threadIdx;
static thread_local std::barrier<>* lanes;
static thread_local int phase;   // results of one phase are written by one instruction of each lane
static void __syncwarp() { lanes->arrive_and_wait(); phase++; }
static void store_if(bool there, float* to, float2 two) {
  if (there) to[0] = two.x, to[1] = two.y;
}
constexpr int PIXELS = 128;
CONSTANTS
static int32_t *times, *phases;
static float followed(float value, const float*, const float*, const float*, const float*, int64_t at, int filter) {
  __atomic_fetch_add(times + at, at / (OD * OH * OW) % F == filter ? 1 : 1000, __ATOMIC_RELAXED);
  phases[at] = phase;
  return value;
}
RESULTS
static void warp(int group, int warp, float* out, const float* right) {
  std::vector<float> kept(16 * APART, NAN);
  std::barrier<> all(32);
  std::vector<std::thread> threads;
  for (int lane = 0; lane < 32; lane++) threads.emplace_back([&, lane] {
    threadIdx.x = lane, lanes = &all, phase = (group * 4 + warp) << 24;
    Writer writer = {kept.data(), out, nullptr, nullptr, nullptr, nullptr, 0};
    for (int work = 0; work < WORK; work++) {
      const Strip s = strip_of(work);
      const Turns turns = turns_of(s, group, work);
      for (int turn = turns.from; turn < turns.until; turn++) {
        const int filter = turns.block(turn) * 64 + warp * 16, first = turns.tile(turn) * PIXELS;
        if (filter >= F) continue;
        const int64_t origin = (((int64_t)s.image * F + filter) * OD + s.od) * (OH * OW) + s.first * OW + s.side;
        const auto at = [&](int k, int r) {
          const int pixel = first + k / 4 * 8 + lane % 4 * 2 + k % 2, row = pixel / PITCH, column = pixel % PITCH;
          const bool there = row < s.lines && column < s.columns && filter + lane / 4 + 8 * r < F;
          return there ? right[origin + (lane / 4 + 8 * r) * RESULTS + row * OW + column] : NAN;
        };
        writer.write(s, first, origin, filter, turns.begins(turn), turns.ends(turn),
                     [&](int k, int r) { return make_float2(at(k, r), at(k + 1, r)); });
      }
    }
  });
  for (auto& thread : threads) thread.join();
}
extern "C" void run(float* out, const float* right, int32_t* to_times, int32_t* to_phases) {
  times = to_times, phases = to_phases;
  for (int i = 0; i < 8; i++) warp(i / 4, i % 4, out, right);
}
"""
SIZES = ("IMAGES", "F", "OD", "OH", "OW")


def constants(inputs: tuple[int, ...], filters: tuple[int, ...]) -> dict[str, int]:
    """Of a convolution without padding, as the template chooses them for two multiprocessors."""
    scope = template_functions("window_convolution")
    found: dict[str, int] = scope["window_constants"](inputs, filters, (1, 1, 1), (0, 0, 0), (1, 1, 1), False, 2)
    return found


@pytest.mark.parametrize(
    ("inputs", "filters", "changed"),
    [
        pytest.param((2, 8, 1, 40, 72), (64, 8, 1, 3, 3), {}, id="whole rows, sectors across rows"),
        pytest.param((1, 24, 1, 31, 35), (40, 24, 1, 3, 3), {}, id="odd rows, few filters"),
        pytest.param((2, 8, 5, 11, 5), (24, 8, 3, 3, 3), {}, id="rows shorter than a sector"),
        pytest.param(
            (1, 16, 1, 20, 300),
            (70, 16, 1, 3, 3),
            {"LINES": 3, "COLUMNS": 40, "PITCH": 42},
            id="several rows of 64 pixels",
        ),
        pytest.param(
            (1, 16, 1, 9, 301), (128, 16, 1, 3, 3), {"LINES": 5, "COLUMNS": 152, "PITCH": 154}, id="odd sides"
        ),
    ],
)
def test_each_result_is_written_once_and_in_whole_sectors(
    inputs: tuple[int, ...], filters: tuple[int, ...], changed: dict[str, int], tmp_path: Path
) -> None:
    chosen = constants(inputs, filters) | changed
    lines = "\n".join(f"constexpr int {name} = {value};" for name, value in chosen.items())
    text = SOURCE.replace("CONSTANTS\n", f"{lines}\n").replace("RESULTS\n", template("window_results.cu") + "\n", 1)
    (tmp_path / "results.cpp").write_text("#include <cmath>\n" + text)
    command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", "results.cpp", "-o", "results.so"]
    subprocess.run(command, cwd=tmp_path, check=True)
    shape = tuple(chosen[name] for name in SIZES)
    right = np.random.default_rng(0).random(shape, np.float32)
    room = np.full(right.size + 8, np.nan, np.float32)  # so that the results begin with a sector
    found = room[-(room.ctypes.data // 4) % 8 :][: right.size]
    times, phases = np.zeros((2, right.size), np.int32)
    ctypes.CDLL(str(tmp_path / "results.so")).run(
        *(ctypes.c_void_p(one.ctypes.data) for one in (found, right, times, phases))
    )
    assert (times == 1).all()
    assert (found == right.ravel()).all()
    of_sectors = phases[: right.size // 8 * 8].reshape(-1, 8)
    parts = (of_sectors != of_sectors[:, :1]).any(axis=1).sum()
    images, count, depth, height, width = shape
    whole = chosen["COLUMNS"] >= width
    runs = 2 * math.ceil(height / chosen["LINES"]) if whole else height * math.ceil(width / chosen["COLUMNS"])
    assert parts <= images * count * depth * runs
