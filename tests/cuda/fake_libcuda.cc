// A CUDA driver without a GPU, for tests: the functions of src/cuda/driver/libcuda.h over host memory. Work of a
// stream is put off until someone waits for it, as a GPU may. Faults are ordered with fake_fail().
//
// A module's image is lines of kernel names. Kernels: "fill" (address, count, value), "fill_record" (address of
// such a record) and "stray", which writes where it may not. What has run is told by fake_ran().
//
// Time passes by what runs: fake_set("us_plain", 7) says what a launch takes; us_together: one of blocks that run
// together; us_graph: one in a graph.
//
// Graphs: while a stream is captured, its work is kept; calls that CUDA does not allow then end the capture.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using Address = uint64_t;
enum { kOutOfMemory = 2, kInvalid = 1, kNotStarted = 3, kNoDevice = 100, kBadDevice = 101, kBadImage = 200,
       kNotFound = 500, kIllegalAddress = 700 };

struct Fault {
  int countdown, code;
};

struct State {
  std::recursive_mutex mutex;
  bool started = false;
  int devices = 1, version = 12080, major = 9, minor = 0, cooperative = 1;
  size_t memory = size_t{1} << 30, used = 0, most = 0;
  int lost = 0;
  std::map<std::string, Fault> faults;
  std::map<std::string, int> calls;
  std::string log, ran;
  std::string waits, recorded;  // streams that wait for an event, and those on which one is recorded
  int pointers_on = 0;          // the device that memory of blocks is on
  std::map<Address, size_t> blocks;
  std::deque<std::function<int()>> pending;
  bool capturing = false, spoilt = false;
  std::vector<std::function<int()>> captured;
  int graphs = 0;  // made, and not destroyed
  double now = 0, us_plain = 500, us_together = 500, us_graph = 500;  // microseconds
  void* current = nullptr;
} state;

struct Module {
  std::vector<std::string> names;
};
struct Function {
  std::string name;
  int shared = 48 << 10;
};
struct Event {
  bool done = true;
  double at = 0;
};
struct Graph {
  std::vector<std::function<int()>> work;
};

// Notes the call; the error that it is to answer with, or 0.
int enter(const char* name, bool needs_context = true) {
  ++state.calls[name];
  state.log += std::string(name) + "\n";
  if (state.lost && needs_context) return state.lost;
  const auto fault = state.faults.find(name);
  if (fault != state.faults.end() && --fault->second.countdown == 0) {
    const int code = fault->second.code;
    state.faults.erase(fault);
    const bool refused = code == 701 || code == 720 || (code > 800 && code < 910);
    if (code >= 700 && !refused) state.lost = code;
    return code;
  }
  if (needs_context && !state.current) return 201;
  static const std::set<std::string> forbidden = {
      "cuStreamSynchronize", "cuEventSynchronize", "cuMemAlloc_v2", "cuMemFree_v2", "cuModuleLoadData", "cuMemHostAlloc"};
  if (state.capturing && forbidden.count(name)) {
    state.spoilt = true;
    return 900;
  }
  return state.started || !needs_context ? 0 : kNotStarted;
}

bool inside(Address at, size_t bytes) {
  auto it = state.blocks.upper_bound(at);
  if (it == state.blocks.begin()) return false;
  --it;
  return at + bytes <= it->first + it->second;
}

int run_all() {
  while (!state.pending.empty()) {
    const auto work = std::move(state.pending.front());
    state.pending.pop_front();
    if (const int r = work()) return state.lost = r;
  }
  return state.lost;
}

void enqueue(std::function<int()> work) {
  if (state.capturing) state.captured.push_back(std::move(work));
  else state.pending.push_back(std::move(work));
}

// What is put on the stream now will take so long.
double cost(bool together = false) {
  return together ? state.us_together : state.capturing ? state.us_graph : state.us_plain;
}

void ran(const std::string& what, std::initializer_list<Address> more) {
  state.ran += what;
  for (const Address a : more) state.ran += "," + std::to_string(a);
  state.ran += "\n";
}

void* pointer(Address a) { return reinterpret_cast<void*>(a); }

}  // namespace

// ---- for fake_libcublas.cc, which is part of the same library

int fake_enter(const char* name) {
  const std::lock_guard<std::recursive_mutex> lock(state.mutex);
  return enter(name);
}
bool fake_inside(Address at, size_t bytes) { return inside(at, bytes); }
void fake_later(std::function<int()> work) {
  state.pending.push_back([work = std::move(work)] {
    state.now += state.us_plain;
    return work();
  });
}

#define API extern "C" __attribute__((visibility("default")))
#define ENTER(name)                                             \
  const std::lock_guard<std::recursive_mutex> lock(state.mutex); \
  if (const int fault = enter(name)) return fault;
#define ENTER_FREE(name)                                        \
  const std::lock_guard<std::recursive_mutex> lock(state.mutex); \
  if (const int fault = enter(name, false)) return fault;

// ---- orders from the tests

API void fake_fail(const char* function, int call, int code) { state.faults[function] = {call, code}; }
API int fake_calls(const char* function) { return state.calls[function]; }
API void fake_set(const char* what, long long value) {
  const std::string name = what;
  if (name == "memory") state.memory = static_cast<size_t>(value);
  if (name == "devices") state.devices = static_cast<int>(value);
  if (name == "architecture") state.major = static_cast<int>(value / 10), state.minor = static_cast<int>(value % 10);
  if (name == "cooperative") state.cooperative = static_cast<int>(value);
  if (name == "pointers_on") state.pointers_on = static_cast<int>(value);
  if (name == "version") state.version = static_cast<int>(value);
  for (const auto& [what_takes, us] : {std::pair{"us_plain", &state.us_plain}, {"us_together", &state.us_together},
                                       {"us_graph", &state.us_graph}})
    if (name == what_takes) *us = static_cast<double>(value);
}
API long long fake_used() { return static_cast<long long>(state.used); }
API long long fake_most() { return static_cast<long long>(state.most); }
API int fake_blocks() { return static_cast<int>(state.blocks.size()); }
API const char* fake_log() { return state.log.c_str(); }
API void fake_clear_log() { state.log.clear(); }
API const char* fake_ran() { return state.ran.c_str(); }
API void fake_clear_ran() { state.ran.clear(); }
API const char* fake_waits() { return state.waits.c_str(); }
API const char* fake_recorded() { return state.recorded.c_str(); }
API int fake_graphs() { return state.graphs; }

// ---- the driver API

API int cuInit(unsigned) {
  ENTER_FREE("cuInit")
  if (const char* order = std::getenv("FAKE_CUDA")) {  // "devices=0 memory=100000"
    char name[32];
    long long value = 0;
    int used = 0;
    for (; std::sscanf(order, " %31[^=]=%lld%n", name, &value, &used) == 2; order += used) fake_set(name, value);
  }
  if (const char* order = std::getenv("FAKE_CUDA_FAIL")) {  // "cuLaunchKernel 3 700"
    char name[64];
    int call = 0, code = 0;
    if (std::sscanf(order, "%63s %d %d", name, &call, &code) == 3) fake_fail(name, call, code);
  }
  if (!state.devices) return kNoDevice;
  state.started = true;
  return 0;
}
API int cuDriverGetVersion(int* version) {
  ENTER_FREE("cuDriverGetVersion")
  *version = state.version;
  return 0;
}
API int cuDeviceGetCount(int* count) {
  ENTER_FREE("cuDeviceGetCount")
  *count = state.devices;
  return 0;
}
API int cuDeviceGet(int* device, int number) {
  ENTER_FREE("cuDeviceGet")
  *device = number;
  return number >= 0 && number < state.devices ? 0 : kBadDevice;
}
API int cuDeviceGetName(char* name, int size, int device) {
  ENTER_FREE("cuDeviceGetName")
  std::snprintf(name, static_cast<size_t>(size), "Fake %d", device);
  return 0;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
  ENTER_FREE("cuDeviceTotalMem_v2")
  *bytes = state.memory;
  return 0;
}
API int cuDeviceGetAttribute(int* value, int attribute, int) {
  ENTER_FREE("cuDeviceGetAttribute")
  static const std::map<int, int> known = {{1, 1024}, {8, 48 << 10}, {13, 1000000}, {16, 4},
                                           {36, 1000000}, {37, 256}, {97, 200 << 10}};
  const auto it = known.find(attribute);
  *value = attribute == 75 ? state.major : attribute == 76 ? state.minor : attribute == 95 ? state.cooperative
           : it == known.end() ? 0 : it->second;
  return 0;
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  ENTER_FREE("cuDevicePrimaryCtxRetain")
  *context = pointer(0x1000 + static_cast<Address>(device));
  return 0;
}
API int cuDevicePrimaryCtxRelease_v2(int) {
  ENTER_FREE("cuDevicePrimaryCtxRelease_v2")
  return 0;
}
API int cuCtxSetCurrent(void* context) {
  ENTER_FREE("cuCtxSetCurrent")
  state.current = context;
  return 0;
}
API int cuStreamCreate(void** stream, unsigned) {
  ENTER("cuStreamCreate")
  *stream = new int(0);
  return 0;
}
API int cuStreamDestroy_v2(void* stream) {
  ENTER("cuStreamDestroy_v2")
  delete static_cast<int*>(stream);
  return 0;
}
API int cuStreamSynchronize(void*) {
  ENTER("cuStreamSynchronize")
  return run_all();
}
API int cuStreamWaitEvent(void* stream, Event*, unsigned) {
  ENTER("cuStreamWaitEvent")
  state.waits += std::to_string(reinterpret_cast<Address>(stream)) + "\n";
  return 0;
}
// Other streams may have to wait for a thread that wants the interpreter: until fake_tell(), or 10 s.
namespace {
std::atomic<int> waits_for_word{0}, words{0};
}
API void fake_wait_for_word() { waits_for_word = 1; }
API int fake_waits_for_word() { return waits_for_word; }
API void fake_tell() { ++words; }
API int cuCtxSynchronize() {
  if (waits_for_word == 1) {
    waits_for_word = 2;
    for (int i = 0; i < 1000 && !words; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    waits_for_word = words ? 3 : 4;
  }
  ENTER("cuCtxSynchronize")
  return run_all();
}
API int cuEventCreate(Event** event, unsigned) {
  ENTER("cuEventCreate")
  *event = new Event;
  return 0;
}
API int cuEventDestroy_v2(Event* event) {
  ENTER("cuEventDestroy_v2")
  run_all();
  delete event;
  return 0;
}
API int cuEventRecord(Event* event, void* stream) {
  ENTER("cuEventRecord")
  state.recorded += std::to_string(reinterpret_cast<Address>(stream)) + "\n";
  event->done = false;
  enqueue([event] {
    event->done = true;
    event->at = state.now;
    return 0;
  });
  return 0;
}
API int cuEventSynchronize(Event* event) {
  ENTER("cuEventSynchronize")
  while (!event->done) {
    const auto work = std::move(state.pending.front());
    state.pending.pop_front();
    if (const int r = work()) return state.lost = r;
  }
  return 0;
}
API int cuEventQuery(Event* event) {
  ENTER("cuEventQuery")
  return event->done ? 0 : 600;
}
API int cuEventElapsedTime(float* milliseconds, Event* start, Event* end) {
  ENTER("cuEventElapsedTime")
  *milliseconds = static_cast<float>(1e-3 * (end->at - start->at));
  return start->done && end->done ? 0 : 600;
}
API int cuPointerGetAttribute(void* value, int attribute, Address memory) {
  ENTER("cuPointerGetAttribute")
  if (!inside(memory, 1)) return kInvalid;
  *static_cast<int*>(value) = attribute == 2 ? 2 : state.pointers_on;
  return 0;
}
API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER("cuMemGetInfo_v2")
  *free = state.memory - state.used;
  *total = state.memory;
  return 0;
}
API int cuMemAlloc_v2(Address* memory, size_t bytes) {
  ENTER("cuMemAlloc_v2")
  if (bytes > state.memory - state.used) return kOutOfMemory;
  void* block = std::malloc(bytes);
  std::memset(block, 0xA5, bytes);
  *memory = reinterpret_cast<Address>(block);
  state.blocks[*memory] = bytes;
  state.used += bytes;
  state.most = std::max(state.most, state.used);
  return 0;
}
API int cuMemFree_v2(Address memory) {
  ENTER("cuMemFree_v2")
  run_all();
  const auto it = state.blocks.find(memory);
  if (it == state.blocks.end()) return kInvalid;
  state.used -= it->second;
  state.blocks.erase(it);
  std::free(pointer(memory));
  return 0;
}
API int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc")
  *memory = std::malloc(bytes);
  return 0;
}
API int cuMemFreeHost(void* memory) {
  ENTER("cuMemFreeHost")
  run_all();
  std::free(memory);
  return 0;
}
API int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void*) {
  ENTER("cuMemcpyHtoDAsync_v2")
  if (!inside(to, bytes)) return kInvalid;
  enqueue([=, us = cost()] {
    state.now += us;
    std::memcpy(pointer(to), from, bytes);
    return 0;
  });
  return 0;
}
API int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void*) {
  ENTER("cuMemcpyDtoHAsync_v2")
  if (!inside(from, bytes)) return kInvalid;
  enqueue([=, us = cost()] {
    state.now += us;
    std::memcpy(to, pointer(from), bytes);
    return 0;
  });
  return 0;
}
API int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void*) {
  ENTER("cuMemcpyDtoDAsync_v2")
  if (!inside(from, bytes) || !inside(to, bytes)) return kInvalid;
  enqueue([=, us = cost()] {
    state.now += us;
    ran("copy", {to, from, bytes});
    std::memmove(pointer(to), pointer(from), bytes);
    return 0;
  });
  return 0;
}
API int cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void*) {
  ENTER("cuMemsetD8Async")
  if (!inside(to, bytes)) return kInvalid;
  enqueue([=, us = cost()] {
    state.now += us;
    ran("clear", {to, bytes});
    std::memset(pointer(to), value, bytes);
    return 0;
  });
  return 0;
}
API int cuModuleLoadData(Module** module, const void* image) {
  ENTER("cuModuleLoadData")
  const std::string text = static_cast<const char*>(image);
  if (text.rfind("\x7f" "ELF", 0) == 0) {  // a real cubin: any function may be there
    *module = new Module{{"*"}};
    return 0;
  }
  if (text.find('\n') == std::string::npos) return kBadImage;
  auto loaded = std::make_unique<Module>();
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1)
    loaded->names.push_back(text.substr(start, end - start));
  *module = loaded.release();
  return 0;
}
API int cuModuleUnload(Module* module) {
  ENTER("cuModuleUnload")
  delete module;
  return 0;
}
API int cuModuleGetFunction(Function** function, Module* module, const char* name) {
  ENTER("cuModuleGetFunction")
  for (const std::string& one : module->names)
    if (one == name || one == "*") {
      *function = new Function{name};
      return 0;
    }
  return kNotFound;
}
API int cuFuncSetAttribute(Function* function, int attribute, int value) {
  ENTER("cuFuncSetAttribute")
  if (attribute != 8 || value > 200 << 10) return kInvalid;
  function->shared = value;
  return 0;
}
API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads, size_t shared) {
  ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor")
  *blocks = static_cast<int>(shared) > function->shared ? 0 : 2048 / std::max(threads, 1);
  return 0;
}

namespace {

int start(Function* function, unsigned blocks, unsigned threads, unsigned shared, void** args, bool together) {
  if (threads > 1024 || static_cast<int>(shared) > function->shared) return kInvalid;
  const std::string name = function->name;
  const Address first = name == "stray" || !args || !args[0] ? 0 : *static_cast<Address*>(args[0]);
  uint32_t n = 0;
  float value = 0;
  if (name == "fill") {
    n = *static_cast<uint32_t*>(args[1]);
    value = *static_cast<float*>(args[2]);
    if (static_cast<uint64_t>(blocks) * threads < n) return kInvalid;
  }
  enqueue([=, us = cost(together)]() -> int {
    state.now += us;
    ran(name, {first, blocks, threads, shared});
    if (name == "stray") return kIllegalAddress;
    struct {
      Address at;
      uint32_t n;
      float value;
    } to{first, n, value};
    if (name == "fill_record") {
      if (!inside(first, sizeof to)) return kIllegalAddress;
      std::memcpy(&to, pointer(first), sizeof to);
    }
    if (name != "fill" && name != "fill_record") return 0;
    if (!inside(to.at, to.n * sizeof(float))) return kIllegalAddress;
    for (uint32_t i = 0; i < to.n; ++i) static_cast<float*>(pointer(to.at))[i] = to.value;
    return 0;
  });
  return 0;
}

}  // namespace

API int cuLaunchKernel(Function* f, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned, unsigned shared,
                       void*, void** args, void**) {
  ENTER("cuLaunchKernel")
  return start(f, gx, bx, shared, args, false);
}
API int cuLaunchCooperativeKernel(Function* f, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned,
                                  unsigned shared, void*, void** args) {
  ENTER("cuLaunchCooperativeKernel")
  if (gx > 4 * 2048 / std::max(bx, 1u)) return 720;
  return start(f, gx, bx, shared, args, true);
}

#ifndef FAKE_WITHOUT_GRAPHS
API int cuStreamBeginCapture_v2(void*, int mode) {
  ENTER("cuStreamBeginCapture_v2")
  if (mode < 0 || mode > 2 || state.capturing) return kInvalid;
  state.capturing = true;
  state.spoilt = false;
  state.captured.clear();
  return 0;
}
API int cuStreamEndCapture(void*, Graph** graph) {
  const bool capturing = state.capturing;
  state.capturing = false;  // whatever comes of it
  *graph = nullptr;
  ENTER("cuStreamEndCapture")
  if (!capturing) return kInvalid;
  if (state.spoilt) return 901;
  *graph = new Graph{std::move(state.captured)};
  ++state.graphs;
  return 0;
}
API int cuGraphInstantiateWithFlags(Graph** made, Graph* graph, unsigned long long flags) {
  ENTER("cuGraphInstantiateWithFlags")
  if (flags) return kInvalid;
  *made = new Graph(*graph);
  ++state.graphs;
  return 0;
}
API int cuGraphLaunch(Graph* made, void*) {
  ENTER("cuGraphLaunch")
  for (const auto& work : made->work) enqueue(work);
  return 0;
}
API int cuGraphExecDestroy(Graph* made) {
  ENTER("cuGraphExecDestroy")
  --state.graphs;
  delete made;
  return 0;
}
API int cuGraphDestroy(Graph* graph) {
  ENTER("cuGraphDestroy")
  --state.graphs;
  delete graph;
  return 0;
}
#endif

API int cuGetErrorName(int code, const char** text) {
  static const std::map<int, const char*> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
      {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"},
      {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"}, {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {702, "CUDA_ERROR_LAUNCH_TIMEOUT"}, {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
      {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {999, "CUDA_ERROR_UNKNOWN"}};
  const auto it = names.find(code);
  *text = it == names.end() ? nullptr : it->second;
  return *text ? 0 : kInvalid;
}
API int cuGetErrorString(int, const char** text) {
  *text = nullptr;
  return kInvalid;
}
