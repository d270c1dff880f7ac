// Kernels that try out the emulation of a GPU. test_emulation.py builds a program of this and of the
// emulation, and runs it case by case: it prints what the kernel made, or the error.
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <vector>

#include "base/error.h"
#include "cuda/driver/backend.h"
#include "cuda/emulation/device.h"

#include "cuda/device/grid.h"

namespace dyc::cuda {

// Each thread takes what the thread before it in the block has stored.
__global__ void neighbours(float* out) {
  DYC_SHARED(float, held, 64);
  held[threadIdx.x] = 100.f * blockIdx.x + threadIdx.x;
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = held[(threadIdx.x + blockDim.x - 1) % blockDim.x];
}

// The same without the barrier.
__global__ void neighbours_too_early(float* out) {
  DYC_SHARED(float, held, 64);
  held[threadIdx.x] = 100.f * blockIdx.x + threadIdx.x;
  out[blockIdx.x * blockDim.x + threadIdx.x] = held[(threadIdx.x + blockDim.x - 1) % blockDim.x];
}

__global__ void dynamic(float* out) {
  float* const held = dynamic_shared<float>();
  held[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

__global__ void sums(float* out) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  float a = static_cast<float>(i);
  for (int k = 0; k < 3; ++k) a = warp_sum(a) / kWarp;  // the mean stays
  out[i] = a;
}

__global__ void shuffles(float* out) {
  const uint32_t i = threadIdx.x;
  const float other = __shfl_xor_sync(kAllLanes, static_cast<float>(i), 1);
  const double third = __shfl_sync(kAllLanes, static_cast<double>(i), 3);
  out[i] = other + 100.f * static_cast<float>(third);
}

// Every block adds to each cell in turn, after all have done the one before.
__global__ void relay(float* out, uint32_t* arrived) {
  for (uint32_t step = 0; step < 4; ++step) {
    if (threadIdx.x == 0) atomicAdd(&out[step], step ? out[step - 1] : 1.f);
    wait_for_grid(arrived, nullptr, 0);
  }
}

// Each block takes what the block before it has made, after a wait that lacks one of its parts.
enum Lack : uint32_t { nothing, first_meeting, first_fence, second_fence, second_meeting };
template <Lack lack>
__global__ void handed_on(float* out, uint32_t* arrived) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1.f;
  if constexpr (lack != first_meeting) __syncthreads();
  if (threadIdx.x == 0) {
    if constexpr (lack != first_fence) __threadfence();
    atomicAdd(arrived, 1u);
    while (*static_cast<volatile uint32_t*>(arrived) < gridDim.x) relax();
    if constexpr (lack != second_fence) __threadfence();
  }
  if constexpr (lack != second_meeting) __syncthreads();
  const uint32_t from = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
  out[gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x] = out[from];
}

// A sum over a warp, left for the others, who read it after a shuffle (which orders no memory), or __syncwarp().
template <bool meets>
__global__ void left_in_a_warp(float* out) {
  DYC_SHARED(float, held, 1);
  if (threadIdx.x == 0) *held = 3.f;
  if constexpr (meets) __syncwarp();
  out[threadIdx.x] = warp_sum(0.f) + *held;
}

// All threads of a warp write the same word: the same value, or each its own.
template <bool same>
__global__ void written_by_all(float* out) {
  out[threadIdx.x / kWarp] = same ? 7.f : static_cast<float>(threadIdx.x);
}

// Reads what it copies, after a wait for the copies that comes before or after the block meets.
template <bool late>
__global__ void copied(float* out) {
  DYC_SHARED(float, held, 64);
  copy_async(held + threadIdx.x, out + threadIdx.x);
  if constexpr (!late) wait_for_copies();
  __syncthreads();
  if constexpr (late) wait_for_copies();
  out[blockDim.x + threadIdx.x] = held[blockDim.x - 1 - threadIdx.x];
}

// Each thread takes what the same thread of the next block has stored, without waiting for that block.
__global__ void next_block_too_early(float* out) {
  float* const stored = out + gridDim.x * blockDim.x;
  stored[blockIdx.x * blockDim.x + threadIdx.x] = 1.f;
  for (int i = 0; i < 3; ++i) __syncthreads();
  out[blockIdx.x * blockDim.x + threadIdx.x] =
      stored[(blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x];
}

__global__ void some_wait(float* out) {
  if (threadIdx.x != 3) __syncthreads();
  out[threadIdx.x] = 1.f;
}

__global__ void waits_for_nobody(float* out) {
  while (*static_cast<volatile float*>(out) != 1.f) relax();
}

__global__ void behind(float* out) { out[16 + threadIdx.x] = 1.f; }

__global__ void before(float* out, float* read) { out[0] = read[-1]; }

__global__ void fresh(float* out) {
  DYC_SHARED(float, held, 8);
  out[threadIdx.x] = held[threadIdx.x] == held[threadIdx.x] ? 1.f : 0.f;
}

__global__ void too_deep(float* out) {
  volatile float much[100000];
  much[threadIdx.x] = 1.f;
  out[0] = much[threadIdx.x];
}

const emulation::Registration kSource([](emulation::Kernels& to) {
  using emulation::run;
#define CASE(name) to.push_back({"cases", #name, run<name>})
  CASE(neighbours);
  CASE(neighbours_too_early);
  CASE(dynamic);
  CASE(sums);
  CASE(shuffles);
  CASE(relay);
  CASE(next_block_too_early);
  CASE(some_wait);
  CASE(waits_for_nobody);
  CASE(behind);
  CASE(before);
  CASE(fresh);
  CASE(too_deep);
  CASE(handed_on<nothing>);
  CASE(handed_on<first_meeting>);
  CASE(handed_on<first_fence>);
  CASE(handed_on<second_fence>);
  CASE(handed_on<second_meeting>);
  CASE(left_in_a_warp<true>);
  CASE(left_in_a_warp<false>);
  CASE(written_by_all<true>);
  CASE(written_by_all<false>);
  CASE(copied<false>);
  CASE(copied<true>);
#undef CASE
});

}  // namespace dyc::cuda

#undef dyc

namespace {

using namespace dyc::cuda;

void show(Backend& device, Backend::Address from, size_t n) {
  std::vector<float> values(n);
  device.download(values.data(), from, n * sizeof(float));
  for (float v : values) std::printf("%g ", v);
  std::printf("\n");
}

// A kernel of one argument, the memory of n floats.
void run_one(const char* name, Grid grid, size_t n) {
  const auto device = make_emulation();
  Backend::Address memory = device->allocate(n * sizeof(float));
  device->clear(memory, n * sizeof(float));
  void* args[] = {&memory};
  device->launch(device->kernel({"cases", name}), grid, args);
  device->wait();
  show(*device, memory, n);
}

void run_relay(uint32_t blocks, bool cooperative, const char* name = "relay") {
  const auto device = make_emulation();
  Backend::Address memory = device->allocate(1024), arrived = device->allocate(4);
  device->clear(memory, 1024);
  device->clear(arrived, 4);
  void* args[] = {&memory, &arrived};
  device->launch(device->kernel({"cases", name}), {blocks, 16, 0, cooperative}, args);
  device->wait();
  show(*device, memory, 4);
}

void run_after_failure() {
  const auto device = make_emulation();
  Backend::Address memory = device->allocate(64);
  void* args[] = {&memory};
  for (int i = 0; i < 3; ++i) {
    try {
      device->launch(device->kernel({"cases", i == 1 ? "sums" : "some_wait"}), {1, 16}, args);
      device->wait();
      show(*device, memory, 16);
    } catch (const dyc::RuntimeError& e) {
      std::printf("%s\n", e.what());
    }
  }
}

void run_memory() {
  const auto device = make_emulation();
  const Backend::Address kept = device->allocate(600);
  try {
    device->allocate(500);
  } catch (const dyc::MemoryError& e) {
    std::printf("%s\n", e.what());
  }
  device->release(kept);
  device->allocate(500);
  float f = 1.f;
  try {
    device->upload(kept + 600, &f, 4);
  } catch (const dyc::RuntimeError& e) {
    std::printf("%s\n", e.what());
  }
}

void run_before() {
  const auto device = make_emulation();
  Backend::Address out = device->allocate(4), read = device->allocate(64);
  void* args[] = {&out, &read};
  device->launch(device->kernel({"cases", "before"}), {}, args);
  device->wait();
}

const std::vector<std::pair<std::string, std::function<void()>>> kCases = {
    {"neighbours", [] { run_one("neighbours", {2, 16}, 32); }},
    {"neighbours_too_early", [] { run_one("neighbours_too_early", {2, 16}, 32); }},
    {"dynamic", [] { run_one("dynamic", {2, 8, 32}, 16); }},
    {"dynamic_too_small", [] { run_one("dynamic", {2, 8, 28}, 16); }},
    {"sums", [] { run_one("sums", {2, 16}, 32); }},
    {"shuffles", [] { run_one("shuffles", {1, 8}, 8); }},
    {"relay", [] { run_relay(2, true); }},
    {"handed_on_nothing", [] { run_relay(4, true, "handed_on<nothing>"); }},
    {"handed_on_first_meeting", [] { run_relay(4, true, "handed_on<first_meeting>"); }},
    {"handed_on_first_fence", [] { run_relay(4, true, "handed_on<first_fence>"); }},
    {"handed_on_second_fence", [] { run_relay(4, true, "handed_on<second_fence>"); }},
    {"handed_on_second_meeting", [] { run_relay(4, true, "handed_on<second_meeting>"); }},
    {"left_in_a_warp_true", [] { run_one("left_in_a_warp<true>", {1, 8}, 16); }},
    {"left_in_a_warp_false", [] { run_one("left_in_a_warp<false>", {1, 8}, 16); }},
    {"written_by_all_true", [] { run_one("written_by_all<true>", {1, 8}, 16); }},
    {"written_by_all_false", [] { run_one("written_by_all<false>", {1, 8}, 16); }},
    {"copied_true", [] { run_one("copied<true>", {1, 8}, 16); }},
    {"copied_false", [] { run_one("copied<false>", {1, 8}, 16); }},
    {"relay_apart", [] { run_relay(2, false); }},
    {"relay_too_wide", [] { run_relay(100, true); }},
    {"next_block_too_early", [] { run_one("next_block_too_early", {2, 4, 0, true}, 16); }},
    {"some_wait", [] { run_one("some_wait", {1, 16}, 16); }},
    {"waits_for_nobody", [] { run_one("waits_for_nobody", {1, 2}, 1); }},
    {"after_failure", run_after_failure},
    {"behind", [] { run_one("behind", {1, 8}, 16); }},
    {"before", run_before},
    {"fresh", [] { run_one("fresh", {1, 8}, 8); }},
    {"too_many_threads", [] { run_one("sums", {1, 4096}, 4096); }},
    {"unknown", [] { run_one("nothing", {1, 1}, 1); }},
    {"too_deep", [] { run_one("too_deep", {1, 1}, 1); }},
    {"memory", run_memory},
};

}  // namespace

int main(int, char** args) {
  for (const auto& [name, run] : kCases) {
    if (name != args[1]) continue;
    try {
      run();
      return 0;
    } catch (const std::exception& e) {
      std::cout << e.what() << '\n';
      return 1;
    }
  }
  return 2;
}
