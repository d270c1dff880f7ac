// The driver backend as C functions for ctypes. Each returns 0, or 1 for RuntimeError, 2 for MemoryError, whose text
// message() has.
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "cuda/driver/driver.h"

namespace {

using namespace dyc;
std::unique_ptr<cuda::Backend> backend;
std::string message, asked;
int compilations = 0;
std::string compile_error;
std::vector<std::string> libraries;
std::string gemm_library;

template <class F>
int guarded(F f) {
  try {
    f();
    return 0;
  } catch (const MemoryError& e) {
    message = e.what();
    return 2;
  } catch (const std::exception& e) {
    message = e.what();
    return 1;
  }
}

// The expression is the name; the image lists the names, and "broken" makes it none.
std::vector<cuda::Cubin> compile(const std::vector<cuda::KernelName>& kernels, int architecture, int driver) {
  ++compilations;
  asked = text(kernels[0].file, " sm_", architecture, " ", driver, ":");
  if (!compile_error.empty()) throw RuntimeError(compile_error);
  cuda::Cubin cubin{kernels[0].file, {}, {}};
  for (const auto& [file, e] : kernels) {
    asked += " " + e;
    if (e != "forgotten") cubin.lowered.emplace_back(e, e);
    cubin.image += (e == "absent" ? "another" : e) + "\n";
    if (e == "broken") return {{file, "no image", {}}};
  }
  return {cubin};
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

API const char* shim_message() { return message.c_str(); }
API const char* shim_asked() { return asked.c_str(); }
API int shim_compilations() { return compilations; }
API void shim_compile_error(const char* text) { compile_error = text; }
API int shim_open(int device) {
  return guarded([&] {
    cuda::set_compiler(compile);
    cuda::set_library_finder([](int) { return libraries; });
    backend = cuda::make_driver(device);
  });
}
API void shim_close() { backend.reset(); }
API int shim_allocate(size_t bytes, uint64_t* memory) {
  return guarded([&] { *memory = backend->allocate(bytes); });
}
API void shim_release(uint64_t memory, int shared) { backend->release(memory, shared != 0); }
API void shim_disown(uint64_t memory, int shared) { backend->disown(memory, shared != 0); }
API int shim_check_memory(uint64_t start, size_t bytes) {
  return guarded([&] { backend->check_memory(start, bytes); });
}
API uint64_t shim_stream() { return backend->stream(); }
API int shim_order(uint64_t other, int first) {
  return guarded([&] { first ? backend->wait_for(other) : backend->make_wait(other); });
}
API int shim_upload(uint64_t to, const void* from, size_t bytes) {
  return guarded([&] { backend->upload(to, from, bytes); });
}
API int shim_copy(uint64_t to, uint64_t from, size_t bytes) {
  return guarded([&] { backend->copy(to, from, bytes); });
}
API int shim_clear(uint64_t to, size_t bytes) {
  return guarded([&] { backend->clear(to, bytes); });
}
API int shim_download(void* to, uint64_t from, size_t bytes) {
  return guarded([&] { backend->download(to, from, bytes); });
}
API int shim_wait() {
  return guarded([&] { backend->wait(); });
}
API int shim_measure(int on) {
  return guarded([&] { backend->measure(on); });
}
API double shim_seconds(int copies) {
  return copies ? backend->counters.copy_seconds : backend->counters.launch_seconds;
}
API uint64_t shim_counter(int which) {
  const auto& c = backend->counters;
  const uint64_t all[] = {c.launches, c.uploads, c.downloads, c.copies, c.uploaded_bytes, c.downloaded_bytes, c.graph_launches};
  return all[which];
}
API int shim_prepare(const char* file, const char* const* expressions, int count) {
  return guarded([&] {
    std::vector<cuda::KernelName> names;
    for (int i = 0; i < count; ++i) names.push_back({file, expressions[i]});
    backend->prepare(names);
  });
}
API int shim_launch(const char* file, const char* expression, uint32_t blocks, uint32_t threads, uint32_t shared,
                    int cooperative, void** args) {
  return guarded([&] {
    const auto kernel = backend->kernel({file, expression});
    backend->launch(kernel, {blocks, threads, shared, cooperative != 0}, args);
  });
}
// An operation is five numbers: kind (0 fill_record, 1 copy, 2 clear), to, from, bytes, blocks. done: 1 if replayed.
API int shim_replay(const uint64_t* numbers, int count, int* done) {
  return guarded([&] {
    using Operation = cuda::Backend::Operation;
    std::vector<Operation> list;
    for (const uint64_t* n = numbers; n < numbers + 5 * count; n += 5) {
      const auto kind = static_cast<Operation::Kind>(n[0]);
      const auto kernel = kind == Operation::launching ? backend->kernel({"file", "fill_record"}) : nullptr;
      list.push_back({kind, kernel, {static_cast<uint32_t>(n[4]), 32}, n[1], n[2], n[3]});
    }
    *done = backend->run_as_graph(list);
    for (Operation o : list) {
      if (*done) return;
      void* args[] = {&o.to};
      if (o.kind == Operation::launching) backend->launch(o.kernel, o.grid, args);
      else if (o.kind == Operation::copying) backend->copy(o.to, o.from, o.bytes);
      else backend->clear(o.to, o.bytes);
    }
  });
}
API int shim_resident(const char* file, const char* expression, uint32_t threads, uint32_t shared, uint32_t* blocks) {
  return guarded(
      [&] { *blocks = backend->active_blocks(backend->kernel({file, expression}), threads, shared); });
}
API void shim_set_libraries(const char* paths) {
  libraries.clear();
  for (std::string rest = paths; !rest.empty();) {
    libraries.push_back(rest.substr(0, rest.find('\n')));
    rest.erase(0, libraries.back().size() + 1);
  }
}
API int shim_has_gemm(int* found) {
  return guarded([&] { *found = backend->has_gemm(); });
}
API const char* shim_gemm_library() { return (gemm_library = backend->gemm_library()).c_str(); }
// m, n, inner, of A and of B: address, stride, turned; of C: address, stride; add, precision.
API int shim_gemm(const int64_t* n) {
  return guarded([&] {
    const auto address = [](int64_t at) { return static_cast<uint64_t>(at); };
    backend->gemm({{address(n[3]), n[4], n[5] != 0}, {address(n[6]), n[7], n[8] != 0}, address(n[9]), n[10], n[0],
                   n[1], n[2], n[11] != 0, static_cast<cuda::Precision>(n[12])});
  });
}
API int shim_limits(int* architecture, uint32_t* processors, uint32_t* shared, size_t* memory) {
  return guarded([&] {
    const cuda::Limits& limits = backend->limits();
    *architecture = limits.architecture, *processors = limits.processors, *shared = limits.shared_bytes;
    *memory = limits.memory;
  });
}
