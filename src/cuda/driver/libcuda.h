// The CUDA driver API as far as it is used here, found at run time: nothing of CUDA is needed to build, and
// the module runs on machines without a driver. Declarations are our own, after NVIDIA's documentation of the
// API.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver/backend.h"

namespace dyc::cuda {

using Result = int;  // CUresult; 0 is success
using DeviceId = int;
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;          // CUgraph
using MadeGraph = struct MadeGraphTag*;  // CUgraphExec
using Address = uint64_t;                // CUdeviceptr

enum : Result {
  kOutOfMemory = 2,
  kDeinitialized = 4,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kInvalidContext = 201,
  kNoBinary = 209,
  kUncorrectable = 214,
  kUnsupportedPtx = 222,
  kNotFound = 500,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kTimeout = 702,
  kNotReady = 600,
  kContextDestroyed = 709,
  kAssert = 710,
  kHardwareStack = 714,
  kLaunchFailed = 719,
  kTooLargeTogether = 720,
  kDriverMismatch = 803,
  kNotCompatible = 804,
  kUnknown = 999,
};

enum Attribute : int {
  kThreadsPerBlock = 1,
  kSharedPerBlock = 8,
  kClockRate = 13,
  kProcessors = 16,
  kMemoryClockRate = 36,
  kBusWidth = 37,
  kMajor = 75,
  kMinor = 76,
  kTogether = 95,  // cooperative launches
  kSharedPerBlockOptIn = 97,
};

constexpr int kPointerMemoryType = 2, kPointerDevice = 9;
constexpr unsigned kMemoryOfDevice = 2;

constexpr unsigned kEventTimed = 0, kEventUntimed = 2;
constexpr unsigned kStreamApart = 1;                 // no waiting for the default stream
constexpr int kCaptureThisThread = 1;                // other threads may do what they like
constexpr int kFunctionSharedBytes = 8;              // most dynamic shared memory
constexpr uint32_t kSharedWithoutAsking = 48 << 10;  // dynamic shared memory that needs no attribute

// X(member, symbol, parameters...)
#define DYC_LIBCUDA(X)                                                                                      \
  X(init, "cuInit", unsigned flags)                                                                         \
  X(driver_version, "cuDriverGetVersion", int* version)                                                     \
  X(device_count, "cuDeviceGetCount", int* count)                                                           \
  X(device_get, "cuDeviceGet", DeviceId* device, int number)                                                \
  X(device_name, "cuDeviceGetName", char* name, int size, DeviceId device)                                  \
  X(device_memory, "cuDeviceTotalMem_v2", size_t* bytes, DeviceId device)                                   \
  X(device_attribute, "cuDeviceGetAttribute", int* value, int attribute, DeviceId device)                   \
  X(retain, "cuDevicePrimaryCtxRetain", Context* context, DeviceId device)                                  \
  X(release, "cuDevicePrimaryCtxRelease_v2", DeviceId device)                                               \
  X(set_current, "cuCtxSetCurrent", Context context)                                                        \
  X(stream_create, "cuStreamCreate", Stream* stream, unsigned flags)                                        \
  X(stream_destroy, "cuStreamDestroy_v2", Stream stream)                                                    \
  X(stream_wait, "cuStreamSynchronize", Stream stream)                                                      \
  X(stream_wait_event, "cuStreamWaitEvent", Stream stream, Event event, unsigned flags)                     \
  X(wait_for_all, "cuCtxSynchronize")                                                                       \
  X(event_create, "cuEventCreate", Event* event, unsigned flags)                                            \
  X(event_destroy, "cuEventDestroy_v2", Event event)                                                        \
  X(event_record, "cuEventRecord", Event event, Stream stream)                                              \
  X(event_wait, "cuEventSynchronize", Event event)                                                          \
  X(event_query, "cuEventQuery", Event event)                                                               \
  X(event_elapsed, "cuEventElapsedTime", float* milliseconds, Event start, Event end)                       \
  X(memory_info, "cuMemGetInfo_v2", size_t* free, size_t* total)                                            \
  X(pointer_fact, "cuPointerGetAttribute", void* value, int attribute, Address memory)                      \
  X(allocate, "cuMemAlloc_v2", Address* memory, size_t bytes)                                               \
  X(free, "cuMemFree_v2", Address memory)                                                                   \
  X(allocate_host, "cuMemHostAlloc", void** memory, size_t bytes, unsigned flags)                           \
  X(free_host, "cuMemFreeHost", void* memory)                                                               \
  X(copy_up, "cuMemcpyHtoDAsync_v2", Address to, const void* from, size_t bytes, Stream stream)             \
  X(copy_down, "cuMemcpyDtoHAsync_v2", void* to, Address from, size_t bytes, Stream stream)                 \
  X(copy_across, "cuMemcpyDtoDAsync_v2", Address to, Address from, size_t bytes, Stream stream)             \
  X(fill, "cuMemsetD8Async", Address to, unsigned char value, size_t bytes, Stream stream)                  \
  X(module_load, "cuModuleLoadData", Module* module, const void* image)                                     \
  X(module_unload, "cuModuleUnload", Module module)                                                         \
  X(function_get, "cuModuleGetFunction", Function* function, Module module, const char* name)               \
  X(function_set, "cuFuncSetAttribute", Function function, int attribute, int value)                        \
  X(resident, "cuOccupancyMaxActiveBlocksPerMultiprocessor", int* blocks, Function function, int threads,   \
    size_t shared_bytes)                                                                                    \
  X(launch, "cuLaunchKernel", Function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,        \
    unsigned by, unsigned bz, unsigned shared_bytes, Stream stream, void** args, void** extra)              \
  X(launch_together, "cuLaunchCooperativeKernel", Function function, unsigned gx, unsigned gy, unsigned gz, \
    unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes, Stream stream, void** args)               \
  X(error_name, "cuGetErrorName", Result result, const char** text)                                         \
  X(error_text, "cuGetErrorString", Result result, const char** text)

// Those that a driver may lack: then all of them are null.
#define DYC_LIBCUDA_GRAPHS(X)                                                                          \
  X(capture_begin, "cuStreamBeginCapture_v2", Stream stream, int mode)                                 \
  X(capture_end, "cuStreamEndCapture", Stream stream, Graph* graph)                                    \
  X(graph_make, "cuGraphInstantiateWithFlags", MadeGraph* made, Graph graph, unsigned long long flags) \
  X(graph_launch, "cuGraphLaunch", MadeGraph made, Stream stream)                                      \
  X(graph_destroy_made, "cuGraphExecDestroy", MadeGraph made)                                          \
  X(graph_destroy, "cuGraphDestroy", Graph graph)

struct Libcuda {
#define DYC_MEMBER(member, symbol, ...) Result (*member)(__VA_ARGS__) = nullptr;
  DYC_LIBCUDA(DYC_MEMBER)
  DYC_LIBCUDA_GRAPHS(DYC_MEMBER)
#undef DYC_MEMBER
  bool graphs() const { return capture_begin; }
  int version = 0;  // of CUDA, as the driver reports it: 12040 for 12.4
};

// Loads the library and starts it, once. Throws RuntimeError that says what is missing.
// DYNET_COMPAT_LIBCUDA: the library's path, for tests.
const Libcuda& libcuda();

// "CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)", and what to do about it.
std::string describe(const Libcuda& cuda, Result result);

// Why no device can be used, where counting them gave this result, or none.
std::string no_device(const Libcuda& cuda, Result result);

// After these a context answers everything with the same error: what it holds is gone.
bool loses_context(Result result);

// What a machine has, without starting a context.
struct Found {
  std::string missing;  // why there is no device to use; "": there is one
  int version = 0;
  struct Device : Limits {
    double bandwidth = 0;  // bytes per second; 0: not reported
    double flops = 0;      // float32, without tensor cores; 0: not known
  };
  std::vector<Device> devices;
};
Found find_devices();  // never throws

// What the driver reports about device `number`; throws RuntimeError.
Found::Device device_facts(const Libcuda& cuda, int number);

}  // namespace dyc::cuda
