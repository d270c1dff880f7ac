#include "cuda/driver/libcuda.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>

#include "base/error.h"

namespace dyc::cuda {

namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr const char* kInstead = "; without a GPU leave --dynet-gpu away, or set DYNET_COMPAT_DEVICE=cpu";

void* open_library() {
  const char* chosen = std::getenv("DYNET_COMPAT_LIBCUDA");
  void* library = dlopen(chosen && *chosen ? chosen : kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    throw RuntimeError(text("no GPU can be used: NVIDIA's driver is not installed on this machine (",
                            reason ? reason : kLibrary, ")", kInstead));
  }
  return library;
}

void find_graphs(void* library, Libcuda& cuda) {
  bool all = true;
#define DYC_FIND(member, symbol, ...)                                              \
  cuda.member = reinterpret_cast<Result (*)(__VA_ARGS__)>(dlsym(library, symbol)); \
  all = all && cuda.member;
  DYC_LIBCUDA_GRAPHS(DYC_FIND)
#undef DYC_FIND
  if (all) return;
#define DYC_FORGET(member, symbol, ...) cuda.member = nullptr;
  DYC_LIBCUDA_GRAPHS(DYC_FORGET)
#undef DYC_FORGET
}

Libcuda load() {
  void* library = open_library();
  Libcuda cuda;
  const auto find = [&](const char* symbol) {
    void* address = dlsym(library, symbol);
    if (!address)
      throw RuntimeError(text("no GPU can be used: NVIDIA's driver is too old, its libcuda has no ", symbol,
                              "; install a driver for CUDA 12 or later", kInstead));
    return address;
  };
#define DYC_FIND(member, symbol, ...) cuda.member = reinterpret_cast<Result (*)(__VA_ARGS__)>(find(symbol));
  DYC_LIBCUDA(DYC_FIND)
#undef DYC_FIND
  find_graphs(library, cuda);
  if (const Result r = cuda.init(0))
    throw RuntimeError(text("no GPU can be used: ", describe(cuda, r), kInstead));
  if (const Result r = cuda.driver_version(&cuda.version))
    throw RuntimeError(text("no GPU can be used: ", describe(cuda, r), kInstead));
  return cuda;
}

const char* advice(Result result) {
  switch (result) {
    case kNoDevice:
      return "there is no GPU, or this process may not use it: see nvidia-smi; CUDA_VISIBLE_DEVICES hides "
             "what it "
             "does not name, and a container must be started with its GPUs";
    case kInvalidDevice:
      return "the GPU's number is too large, or the GPU is unwell: see nvidia-smi";
    case kInvalidImage:
    case kNoBinary:
    case kUnsupportedPtx:
      return "the kernels do not fit this GPU or its driver: update the driver, or install "
             "nvidia-cuda-nvrtc-cu12 in place of nvidia-cuda-nvrtc";
    case kUncorrectable:
      return "the GPU's memory is damaged: see nvidia-smi -q, and restart the machine";
    case kOutOfResources:
      return "a kernel needs more registers or threads than this GPU has; please report it";
    case kTimeout:
      return "a kernel took longer than the system allows on a GPU that also shows a screen";
    case kTooLargeTogether:
      return "more blocks than fit on this GPU at the same time; please report it";
    case kIllegalAddress:
    case kAssert:
    case kHardwareStack:
    case kLaunchFailed:
      return "a kernel went wrong; please report it, with what compute-sanitizer says of the program";
    case kDriverMismatch:
    case kNotCompatible:
      return "the driver's parts are of different versions: restart the machine, or reinstall the driver";
    case kDeinitialized:
      return "the program is ending, and the driver has stopped already";
    default:
      return "";
  }
}

int attribute(const Libcuda& cuda, int what, DeviceId device) {
  int value = 0;
  return cuda.device_attribute(&value, what, device) == 0 ? value : 0;
}

// Float32 units per multiprocessor; NVIDIA's table of compute capabilities.
int lanes(int architecture) {
  const int generation = architecture / 10;
  if (generation >= 9 || architecture >= 86) return 128;
  return generation >= 7 || architecture == 60 ? 64 : 128;
}

}  // namespace

const Libcuda& libcuda() {
  static std::once_flag once;
  static Libcuda loaded;
  static std::string failure;
  std::call_once(once, [] {
    try {
      loaded = load();
    } catch (const RuntimeError& e) {
      failure = e.what();
    }
  });
  if (!failure.empty()) throw RuntimeError(failure);
  return loaded;
}

std::string describe(const Libcuda& cuda, Result result) {
  const char *name = nullptr, *words = nullptr;
  cuda.error_name(result, &name);
  cuda.error_text(result, &words);
  std::string all = name ? name : text("CUDA error ", result);
  if (words && *words) all += text(" (", words, ")");
  const char* more = advice(result);
  return *more ? text(all, ": ", more) : all;
}

bool loses_context(Result result) {
  switch (result) {
    case kDeinitialized:
    case kInvalidContext:
    case kUncorrectable:
    case kIllegalAddress:
    case kTimeout:
    case kContextDestroyed:
    case kAssert:
    case kUnknown:
      return true;
    default:
      return result >= kHardwareStack && result <= kLaunchFailed;
  }
}

Found::Device device_facts(const Libcuda& cuda, int number) {
  DeviceId device = 0;
  Found::Device found;
  char name[128] = "";
  Result r = cuda.device_get(&device, number);
  if (!r) r = cuda.device_name(name, sizeof name, device);
  if (!r) r = cuda.device_memory(&found.memory, device);
  if (r) throw RuntimeError(text("GPU:", number, " cannot be used: ", describe(cuda, r)));
  const auto get = [&](int what) { return attribute(cuda, what, device); };
  name[sizeof name - 1] = 0;
  found.name = name;
  found.architecture = 10 * get(kMajor) + get(kMinor);
  found.processors = static_cast<uint32_t>(get(kProcessors));
  found.threads = static_cast<uint32_t>(get(kThreadsPerBlock));
  found.shared_bytes = static_cast<uint32_t>(std::max(get(kSharedPerBlock), get(kSharedPerBlockOptIn)));
  found.cooperative = get(kTogether) != 0;
  found.bandwidth = 2e3 * get(kMemoryClockRate) * get(kBusWidth) / 8;  // kHz, two transfers per clock, bits
  found.flops = 2e3 * get(kClockRate) * found.processors * lanes(found.architecture);
  return found;
}

std::string no_device(const Libcuda& cuda, Result result) {
  return text("no GPU can be used: ", describe(cuda, result ? result : kNoDevice), kInstead);
}

Found find_devices() {
  Found found;
  try {
    const Libcuda& cuda = libcuda();
    found.version = cuda.version;
    int count = 0;
    const Result r = cuda.device_count(&count);
    if (r || count == 0) {
      found.missing = no_device(cuda, r);
      return found;
    }
    for (int i = 0; i < count; ++i) found.devices.push_back(device_facts(cuda, i));
  } catch (const Error& e) {
    found.missing = e.what();
  }
  return found;
}

}  // namespace dyc::cuda
