// Names of devices, and what Python supplies and asks of GPUs. Nothing here needs one.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "bindings/model.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/sources.h"
#include "exec/cuda/cuda_device.h"
#include "exec/device.h"

namespace dyc::py {

namespace {

std::vector<std::string>& device_names() {
  static auto& names = *new std::vector<std::string>{"CPU"};
  return names;
}

// Imported when kernels are first needed.
pybind11::object cuda_module() { return pybind11::module_::import("dynet_compat.cuda"); }

std::vector<cuda::Cubin> compile(const std::vector<cuda::KernelName>& kernels, int architecture, int driver) {
  using Part = std::tuple<std::string, std::string, std::vector<std::pair<std::string, std::string>>>;
  std::vector<std::pair<std::string, std::string>> names;
  for (const cuda::KernelName& k : kernels) names.emplace_back(k.file, k.expression);
  const pybind11::gil_scoped_acquire lock;
  pybind11::object parts;
  try {
    parts = cuda_module().attr("for_engine")(names, architecture, driver);
  } catch (const pybind11::error_already_set& e) {  // the engine may go on without these kernels
    if (e.matches(PyExc_RuntimeError)) throw RuntimeError(pybind11::str(e.value()));
    throw;
  }
  std::vector<cuda::Cubin> cubins;
  for (Part& part : parts.cast<std::vector<Part>>()) {
    auto& [file, image, lowered] = part;
    cubins.push_back({std::move(file), std::move(image), std::move(lowered)});
  }
  return cubins;
}

bool is_compiled(const std::string& file, const std::vector<std::string>& expressions, int architecture,
                 int driver) {
  const pybind11::gil_scoped_acquire lock;
  return cuda_module().attr("is_compiled")(file, expressions, architecture, driver).cast<bool>();
}

std::vector<std::string> find_libraries(int driver) {
  const pybind11::gil_scoped_acquire lock;
  return cuda_module().attr("cublas_paths")(driver).cast<std::vector<std::string>>();
}

void wait_without_interpreter(const std::function<void()>& wait) {
  if (!Py_IsInitialized() || !PyGILState_Check()) return wait();
  const pybind11::gil_scoped_release released;
  wait();
}

std::string recall(const std::string& device, const std::string& what) {
  const pybind11::gil_scoped_acquire lock;
  return cuda_module().attr("recall")(device, what).cast<std::string>();
}

void keep(const std::string& device, const std::string& what, const std::string& found) {
  const pybind11::gil_scoped_acquire lock;
  cuda_module().attr("keep")(device, what, found);
}

// For each set of kernels the fastest ways of running lists of them, and microseconds for a command of each
// way that was timed in this process.
pybind11::list choices() {
  pybind11::list all;
  const LaunchChoices* const known = launch_choices();
  if (!known) return all;
  const DeviceLock lock = used_device().lock();  // lists of other threads add to them
  for (const auto& [ids, set] : known->sets()) {
    pybind11::list order;
    for (const LaunchWay way : set.order) order.append(kLaunchWayNames[static_cast<size_t>(way)]);
    pybind11::dict microseconds;
    for (size_t way = 0; way < kLaunchWays; ++way)
      if (set.timed[way].commands) microseconds[kLaunchWayNames[way]] = set.timed[way].microseconds();
    pybind11::dict d;
    d["kernels"] = set.name;
    d["order"] = order;
    d["microseconds"] = microseconds;
    pybind11::dict lists;
    for (size_t way = 0; way < kLaunchWays; ++way) lists[kLaunchWayNames[way]] = set.lists[way];
    d["lists"] = lists;
    all.append(d);
  }
  return all;
}

pybind11::dict find_gpus() {
  const cuda::Found found = cuda::find_devices();
  pybind11::list devices;
  for (const cuda::Found::Device& device : found.devices) {
    pybind11::dict d;
    d["name"] = device.name;
    d["architecture"] = device.architecture;
    d["memory"] = device.memory;
    d["processors"] = device.processors;
    d["bandwidth"] = device.bandwidth;
    d["flops"] = device.flops;
    devices.append(d);
  }
  pybind11::dict all;
  all["missing"] = found.missing;
  all["version"] = found.version;
  all["devices"] = devices;
  return all;
}

// The device's name and options, after setting those that are given.
pybind11::dict options(const pybind11::kwargs& given) {
  pybind11::dict d;
  d["device"] = device_name();
  d["gemm_library"] = gemm_library();
  DeviceOptions* const o = device_options();
  if (!o && !given.empty())
    throw RuntimeError("_device_options(): the process computes on the CPU, which has no options");
  if (!o) return d;
  const std::pair<const char*, bool*> flags[] = {{"persistent", &o->persistent},
                                                 {"keep_weights", &o->keep_weights},
                                                 {"skip_barriers", &o->skip_barriers},
                                                 {"chains", &o->chains},
                                                 {"graphs", &o->graphs},
                                                 {"measured", &o->measured},
                                                 {"library", &o->cublas},
                                                 {"update", &o->update},
                                                 {"unfused", &o->unfused}};
  for (const auto& [key, value] : given) {
    const std::string name = pybind11::str(key);
    const auto flag =
        std::find_if(std::begin(flags), std::end(flags), [&](const auto& f) { return f.first == name; });
    if (flag != std::end(flags)) {
      *flag->second = value.cast<bool>();
    } else if (name == "matmul") {
      const auto* const names = cuda::kMatmulVariantNames;
      const auto* const end = names + cuda::kMatmulVariants;
      const auto* const found = std::find(names, end, value.cast<std::string>());
      o->matmul_variant = found == end ? -1 : static_cast<int>(found - names);
    } else if (name == "precision") {
      const auto* const names = cuda::kPrecisionNames;
      const auto* const end = names + cuda::kPrecisions;
      const auto* const found = std::find(names, end, value.cast<std::string>());
      if (found == end) throw ValueError("_device_options(): precision: expected float32, tf32 or bf16");
      o->precision = static_cast<cuda::Precision>(found - names);
    } else {
      throw ValueError(text("_device_options(): unknown option ", name));
    }
  }
  for (const auto& [name, value] : flags) d[name] = *value;
  d["precision"] = cuda::kPrecisionNames[static_cast<size_t>(o->precision)];
  d["matmul"] = o->matmul_variant < 0 ? "" : cuda::kMatmulVariantNames[o->matmul_variant];
  return d;
}

}  // namespace

void check_device(const std::string& device, const char* op) {
  const auto& names = device_names();
  if (device.empty() || std::find(names.begin(), names.end(), device) != names.end()) return;
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
  const bool gpu = device.rfind("GPU", 0) == 0;
  throw RuntimeError(text(op, ": expected one of the available devices (", known, "), got '", device, "'",
                          gpu ? "; a program uses a GPU if it is started with --dynet-gpu" : ""));
}

void add_devices(pybind11::module_& m) {
  cuda::set_compiler(compile, is_compiled);
  cuda::set_library_finder(find_libraries);
  cuda::set_notes({recall, keep});
  cuda::set_waiter(wait_without_interpreter);
  m.def("_device_names", [] { return device_names(); }, "Names that device arguments may have.");
  m.def("_set_device_names", [](const std::vector<std::string>& names) { device_names() = names; });
  m.def("_check_device",
        [](const std::string& op, const std::string& device) { check_device(device, (op + "()").c_str()); });
  m.def("_find_gpus", &find_gpus, "The driver and its devices, or what is missing.");
  m.def("_device_options", &options,
        "The device's name and options (exec/device_options.h), after setting those that are given; matmul: "
        "few, "
        "middle, large, library, or \"\" for the fastest.");
  m.def("_launch_choices", &choices,
        "Of each set of kernels, on a GPU: the fastest ways to run them, and how many lists ran in each "
        "(exec/cuda/launch_choices.h).");
  m.def(
      "_kernel_sources",
      [] {
        pybind11::dict texts;
        for (const cuda::KernelSource& source : cuda::sources()) texts[source.name] = source.text;
        return texts;
      },
      "Text of the kernels and of the headers they include, by name.");
}

}  // namespace dyc::py
