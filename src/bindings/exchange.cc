#include "bindings/exchange.h"

#include <pybind11/stl.h>

#include <cstring>
#include <limits>
#include <unordered_map>

#include "bindings/compute.h"
#include "bindings/copied_node.h"
#include "bindings/dlpack.h"
#include "bindings/float_arrays.h"
#include "bindings/model.h"
#include "exec/device.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using cuda::ElementType;

constexpr const char* kInterface = "__cuda_array_interface__";

PyObject* interned(const char* name) {
  PyObject* const made = PyUnicode_InternFromString(name);
  if (!made) throw pb::error_already_set();
  return made;
}

struct Names {
  PyObject* interface = interned(kInterface);
  PyObject* device = interned("__dlpack_device__");
  PyObject* dlpack = interned("__dlpack__");
};

const Names& names() {
  static const Names* const all = new Names;
  return *all;
}

// A function that answers for any name, as mocks have, says nothing: a protocol's names are the type's, or
// at least in the object's own dict, which is looked at here without running any code.
bool may_have(PyObject* object, PyObject* name) {
  PyTypeObject* const type = Py_TYPE(object);
  if (_PyType_Lookup(type, name)) return true;
  return type->tp_dictoffset && type->tp_getattro == PyObject_GenericGetAttr &&
         PyObject_HasAttr(object, name);
}

// None where it has no such one. Throws what a property raised, but for an AttributeError.
pb::object attribute(PyObject* object, PyObject* name) {
  if (!may_have(object, name)) return pb::none();
  if (PyObject* const found = PyObject_GetAttr(object, name)) return pb::reinterpret_steal<pb::object>(found);
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw pb::error_already_set();
  PyErr_Clear();
  return pb::none();
}

[[noreturn]] void cannot_take(const char* op, const char* name, const std::string& why) {
  throw ValueError(text(op, "(): cannot take the array that was given for ", name, ": ", why));
}

// f(), which runs the code of the library whose array was given: an error of it names the argument.
template <class F>
auto asking(const char* op, const char* name, F&& f) {
  try {
    return f();
  } catch (const pb::cast_error& e) {
    cannot_take(op, name, e.what());
  } catch (pb::error_already_set& e) {
    if (!e.matches(PyExc_Exception) || e.matches(PyExc_MemoryError)) throw;
    const std::string kind = pb::str(e.type().attr("__name__")), why = pb::str(e.value());
    cannot_take(op, name, text("it raised ", kind, ": ", why));
  }
}

std::string shown(const pb::object& value) { return pb::repr(value); }

// A member of a description, of a type that pybind11 converts.
template <class T>
T as(const pb::object& value, const std::string& what, const char* op, const char* name) {
  try {
    return value.cast<T>();
  } catch (const pb::cast_error&) {
    cannot_take(op, name, text(what, " is ", shown(value)));
  }
}

void check_computes_on_device(const char* op, const char* name, const std::string& where) {
  if (cuda_device()) return;
  cannot_take(op, name,
              text("it is on ", where,
                   ", and this program computes on the CPU; start it with --dynet-gpu, or "
                   "pass a copy on the CPU: cupy.asnumpy(x), x.cpu()"));
}

ElementType element_type(char kind, int64_t bytes, const char* op, const char* name,
                         const std::string& given) {
  constexpr ElementType ints[] = {ElementType::int8, ElementType::int16, ElementType::int32,
                                  ElementType::int64};
  constexpr ElementType uints[] = {ElementType::uint8, ElementType::uint16, ElementType::uint32,
                                   ElementType::uint64};
  const int size = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : bytes == 8 ? 3 : -1;
  if (size >= 0 && kind == 'i') return ints[size];
  if (size >= 0 && kind == 'u') return uints[size];
  if (size == 0 && kind == 'b') return ElementType::boolean;
  if (size == 1 && kind == 'B') return ElementType::bfloat16;
  if (size >= 1 && kind == 'f')
    return size == 1 ? ElementType::float16 : size == 2 ? ElementType::float32 : ElementType::float64;
  throw TypeError(text(op, "(): expected real numbers for ", name, ", got an array of ", given));
}

// Sizes and steps; without `strides` (in units of `step` bytes), those of a row-major array without gaps.
void set_layout(Given& given, std::vector<int64_t> shape, const int64_t* strides, int64_t step, int64_t item,
                const char* op, const char* name) {
  cuda::ForeignArray& a = given.from.array;
  if (shape.size() > cuda::ForeignArray::kMostAxes)
    cannot_take(op, name, text("it has ", shape.size(), " axes, more than ", cuda::ForeignArray::kMostAxes));
  a.axes = static_cast<uint32_t>(shape.size());
  a.total = 1;
  for (uint32_t k = a.axes; k-- > 0;) {
    a.sizes[k] = shape[k];
    if (!strides) a.strides[k] = a.total * item;
    else if (__builtin_mul_overflow(strides[k], step, &a.strides[k]))
      cannot_take(op, name, "its strides lead out of all memory");
    if (shape[k] < 0 || (shape[k] && a.total > std::numeric_limits<int32_t>::max() / shape[k]))
      cannot_take(op, name, "it has 2**31 elements or more");
    a.total *= shape[k];
  }
  given.shape = std::move(shape);
}

// ---------------------------------------------------------------- CUDA Array Interface

Given described_array(PyObject* object, const pb::dict& about, const char* op, const char* name) {
  Given given;
  const auto get = [&](const char* key) -> pb::object {
    return about.contains(key) ? pb::object(about[key]) : pb::object(pb::none());
  };
  const auto ints = [&](const char* key) {
    return as<std::vector<int64_t>>(get(key), text("its ", key), op, name);
  };
  if (!get("mask").is_none()) cannot_take(op, name, "it has a mask");
  const auto type = as<std::string>(get("typestr"), "its typestr", op, name);
  if (type.size() < 3 || type[0] == '>') cannot_take(op, name, text("its numbers are of type ", type));
  const int64_t item = std::atoll(type.c_str() + 2);
  given.from.array.type = element_type(type[1], item, op, name, type);
  const bool gaps = !get("strides").is_none();
  const auto steps = gaps ? ints("strides") : std::vector<int64_t>();
  auto shape = ints("shape");
  if (gaps && steps.size() != shape.size()) cannot_take(op, name, "it has not a stride for each axis");
  set_layout(given, std::move(shape), gaps ? steps.data() : nullptr, 1, item, op, name);
  const auto data = as<std::pair<uintptr_t, pb::object>>(get("data"), "its data", op, name);
  given.from.array.from = reinterpret_cast<const void*>(data.first);
  const pb::object stream = get("stream");
  if (!stream.is_none()) {
    given.from.stream = as<uint64_t>(stream, "its stream", op, name);
    if (!given.from.stream) cannot_take(op, name, "its stream is 0, which the interface does not allow");
    given.from.ordered_after = true;
  }
  given.owner = std::make_shared<pb::object>(pb::reinterpret_borrow<pb::object>(object));
  return given;
}

// ---------------------------------------------------------------- DLPack

// The struct in the capsule, which is ours from now on.
template <class M>
std::shared_ptr<M> taken(const pb::capsule& capsule) {
  auto* const managed = static_cast<M*>(PyCapsule_GetPointer(capsule.ptr(), M::kName));
  if (!managed || PyCapsule_SetName(capsule.ptr(), M::kUsed) < 0) throw pb::error_already_set();
  return {managed, [](M* m) {
            if (m->deleter) m->deleter(m);
          }};
}

Given exchanged_array(const dlpack::Array& array, const char* op, const char* name) {
  Given given;
  const dlpack::DataType type = array.type;
  const char kinds[] = "iuf?Bcb";
  const char kind = type.code < 7 && type.lanes == 1 && type.bits % 8 == 0 ? kinds[type.code] : '?';
  const int64_t item = type.bits / 8;
  given.from.array.type = element_type(kind, item, op, name,
                                       text("DLPack's type ", int{type.code}, ", ", int{type.bits}, " bits"));
  if (array.axes < 0 || array.axes > int32_t{cuda::ForeignArray::kMostAxes})
    cannot_take(op, name, text("it has ", array.axes, " axes; wanted up to ", cuda::ForeignArray::kMostAxes));
  if (array.axes && !array.shape) cannot_take(op, name, "it has axes and no shape");
  set_layout(given, std::vector<int64_t>(array.shape, array.shape + array.axes), array.strides, item, item,
             op, name);
  given.from.array.from = static_cast<const char*>(array.data) + array.offset;
  return given;
}

pb::object capsule_of(PyObject* object, uint64_t stream, const char* op, const char* name) {
  const pb::object make = attribute(object, names().dlpack);
  try {
    try {
      return make(pb::arg("stream") = stream, pb::arg("max_version") = pb::make_tuple(1, 0));
    } catch (const pb::error_already_set& e) {
      if (!e.matches(PyExc_TypeError)) throw;  // else it is older than versions
    }
    return make(pb::arg("stream") = stream);
  } catch (const pb::error_already_set& e) {
    if (!e.matches(PyExc_BufferError)) throw;
    cannot_take(op, name, pb::str(e.value()));
  }
}

Given exchanged(PyObject* object, const char* op, const char* name) {
  const uint64_t stream = Exchange().stream();
  const pb::object returned = capsule_of(object, stream, op, name);
  if (!PyCapsule_CheckExact(returned.ptr()))
    cannot_take(op, name, text("its __dlpack__() is ", shown(returned), ", no capsule"));
  const auto capsule = pb::reinterpret_borrow<pb::capsule>(returned);
  Given given;
  if (PyCapsule_IsValid(capsule.ptr(), dlpack::Versioned::kName)) {
    const auto managed = taken<dlpack::Versioned>(capsule);
    if (managed->version.major != 1)
      cannot_take(op, name, text("it is of version ", managed->version.major, " of DLPack"));
    given = exchanged_array(managed->array, op, name);
    given.owner = managed;
  } else {
    const auto managed = taken<dlpack::Managed>(capsule);
    given = exchanged_array(managed->array, op, name);
    given.owner = managed;
  }
  given.from.stream = 0;  // the owner has ordered its stream before this one
  return given;
}

// DLPack's device of an object; (0, 0): it has none.
std::pair<int, int> dlpack_device(PyObject* object, const char* op, const char* name) {
  const pb::object device = attribute(object, names().device);
  if (device.is_none() || attribute(object, names().dlpack).is_none()) return {0, 0};
  const pb::object found = device();
  const char* const what = "its __dlpack_device__()";
  const auto [type, id] = as<std::pair<pb::object, pb::object>>(found, what, op, name);
  return {as<int>(pb::int_(type), what, op, name), as<int>(pb::int_(id), what, op, name)};
}

bool on_gpu(int type) { return type == dlpack::kCuda || type == dlpack::kCudaManaged; }

}  // namespace

PyTypeObject* unexchanged_type = nullptr;

bool may_be_exchanged(PyObject* object) {
  if (is_array(object) || is_expression(object)) return false;
  if (may_have(object, names().interface) || may_have(object, names().device)) return true;
  // such a type is never changed nor freed
  if (!PyType_HasFeature(Py_TYPE(object), Py_TPFLAGS_HEAPTYPE)) unexchanged_type = Py_TYPE(object);
  return false;
}

std::optional<Given> given_foreign(PyObject* object, const char* op, const char* name) {
  auto given = asking(op, name, [&]() -> std::optional<Given> {
    const pb::object about = attribute(object, names().interface);
    if (!about.is_none()) {
      if (!pb::isinstance<pb::dict>(about))
        cannot_take(op, name, text("its ", kInterface, " is ", shown(about), ", no dict"));
      check_computes_on_device(op, name, "a GPU");
      return described_array(object, about, op, name);
    }
    const auto [type, id] = dlpack_device(object, op, name);
    if (!type || type == dlpack::kCpu || type == dlpack::kCudaHost) return {};
    if (!on_gpu(type))
      cannot_take(op, name, text("it is on a device of type ", type, ", no CPU and no GPU of NVIDIA"));
    check_computes_on_device(op, name, text("GPU:", id));
    return exchanged(object, op, name);
  });
  if (!given) return given;
  try {
    Exchange().check(given->from.array);
  } catch (const ValueError& e) {
    cannot_take(op, name, e.what());
  }
  return given;
}

pb::object on_host(PyObject* object, const char* op, const char* name) {
  if (const auto given = given_foreign(object, op, name)) {
    ArrayLayout layout(sizeof(float));
    for (const int64_t n : given->shape) layout.add(static_cast<size_t>(n));
    pb::array_t<float> host(layout.shape, layout.strides);
    const auto memory = Exchange().take(given->from);
    if (host.size())
      Exchange().download(memory->address(), static_cast<size_t>(host.size()), host.mutable_data());
    return host;
  }
  auto same = pb::reinterpret_borrow<pb::object>(object);
  return asking(op, name, [&]() -> pb::object {
    if (!dlpack_device(object, op, name).first || pb::hasattr(same, "__array__")) return same;
    return pb::module_::import("numpy").attr("from_dlpack")(same);
  });
}

PyObject* cupy_array(PyObject* tensor) {
  const auto own = pb::reinterpret_steal<pb::object>(tensor);
  if (!own) throw PythonError();
  return pb::module_::import("dynet_compat.api.device_arrays").attr("as_cupy")(own).release().ptr();
}

Dim Given::dim(const char* op, bool batched) const {
  if (shape.empty() || shape.size() > kMaxDims + size_t{batched})
    throw ValueError(text(op, "(): expected an array of 1 to ", kMaxDims, " axes",
                          batched ? " and the batch" : "", ", got ", shape.size()));
  Dim d;
  for (size_t k = 0; k < shape.size() - batched; ++k) d.d[d.nd++] = static_cast<uint32_t>(shape[k]);
  if (d.nd == 0) d.d[d.nd++] = 1;
  if (batched) d.bd = static_cast<uint32_t>(shape.back());
  if (d.bd == 0) throw ValueError(text(op, "(): expected a batch size of at least 1, got 0"));
  return d;
}

void Given::check_flat(PyObject* object, const char* op, const char* name) const {
  if (shape.empty() || from.array.total != shape[0])
    throw TypeError(
        text(op, "(): expected a list of numbers or a 1-D array for ", name, ", got ", type_name(object)));
}

std::string Given::shape_text() const { return pb::str(pb::object(pb::tuple(pb::cast(shape)))); }

void Given::move_first_axis_to_end() {
  cuda::ForeignArray& a = from.array;
  std::rotate(a.sizes, a.sizes + 1, a.sizes + a.axes);
  std::rotate(a.strides, a.strides + 1, a.strides + a.axes);
}

// ---------------------------------------------------------------- memory that is handed out

namespace {

// Floats of the device for other libraries. Has the memory, whatever becomes of graphs and parameters.
struct DeviceArray {
  std::shared_ptr<DeviceMemory> memory;  // null: somebody else keeps it
  std::vector<int64_t> shape, strides;   // in floats
  bool read_only = true;
  uint64_t start = 0;                      // without memory
  std::shared_ptr<const void> owner = {};  // of what is there
  CopiedNode node = {};

  size_t size() const {
    size_t n = 1;
    for (const int64_t s : shape) n *= static_cast<size_t>(s);
    return n;
  }
  uint64_t address() const { return !size() ? 0 : memory ? memory->address() : start; }
};

dlpack::Place own_device() {
  const std::string& name = device_name();
  if (name == "cpu") return {dlpack::kCpu, 0};
  return {dlpack::kCuda, name.rfind("cuda:", 0) == 0 ? std::atoi(name.c_str() + 5) : 0};
}

// What a capsule has: the struct, and what it points to.
template <class M>
struct Exported {
  M managed{};
  DeviceArray array;
};

template <class M>
pb::object capsule_with(const DeviceArray& array, bool copied) {
  auto* const made = new Exported<M>{{}, array};
  dlpack::Array& a = made->managed.array;
  a.data = reinterpret_cast<void*>(made->array.address());
  a.device = own_device();
  a.axes = static_cast<int32_t>(array.shape.size());
  a.type = {dlpack::kFloat, 32, 1};
  a.shape = made->array.shape.data();
  a.strides = made->array.strides.data();
  made->managed.context = made;
  made->managed.deleter = [](M* m) { delete static_cast<Exported<M>*>(m->context); };
  if constexpr (std::is_same_v<M, dlpack::Versioned>) {
    made->managed.version = {1, 0};
    made->managed.flags = (array.read_only ? dlpack::kReadOnly : 0) | (copied ? dlpack::kCopied : 0);
  }
  PyObject* const capsule = PyCapsule_New(&made->managed, M::kName, [](PyObject* c) {
    if (!PyCapsule_IsValid(c, M::kName)) return;  // somebody has taken it
    auto* const m = static_cast<M*>(PyCapsule_GetPointer(c, M::kName));
    m->deleter(m);
  });
  if (capsule) return pb::reinterpret_steal<pb::object>(capsule);
  delete made;
  throw pb::error_already_set();
}

pb::dict interface(const DeviceArray& array) {
  pb::list shape, strides;
  for (const int64_t n : array.shape) shape.append(n);
  for (const int64_t n : array.strides) strides.append(n * static_cast<int64_t>(sizeof(float)));
  pb::dict d;
  d["shape"] = pb::tuple(shape);
  d["strides"] = pb::tuple(strides);
  d["typestr"] = "<f4";
  d["data"] = pb::make_tuple(array.address(), array.read_only);
  d["stream"] = Exchange().stream();
  d["version"] = 3;
  return d;
}

pb::array_t<float> numpy_of(const DeviceArray& array) {
  std::vector<pb::ssize_t> shape(array.shape.begin(), array.shape.end()), strides;
  for (const int64_t n : array.strides) strides.push_back(n * static_cast<pb::ssize_t>(sizeof(float)));
  pb::array_t<float> host(shape, strides);
  if (const float* const values = array.node.values()) std::copy_n(values, array.size(), host.mutable_data());
  else if (array.size()) Exchange().download(array.address(), array.size(), host.mutable_data());
  return host;
}

DeviceArray device_array(std::shared_ptr<DeviceMemory> memory, const ArrayLayout& layout, bool read_only) {
  DeviceArray array{std::move(memory), {layout.shape.begin(), layout.shape.end()}, {}, read_only};
  for (const pb::ssize_t bytes : layout.strides)
    array.strides.push_back(bytes / static_cast<pb::ssize_t>(sizeof(float)));
  return array;
}

// All floats of it, in the order of memory.
GivenArray flat(const DeviceArray& array) {
  return Exchange().flat(reinterpret_cast<const float*>(array.address()), array.size());
}

DeviceArray taken_from(const GivenArray& given, const DeviceArray& like) {
  DeviceArray own{Exchange().take(given), like.shape, like.strides, false};
  own.memory->share();
  return own;
}

DeviceArray copy_of(const DeviceArray& array) { return taken_from(flat(array), array); }

// The values that graphs see: a view, or with a factor of weight decay a copy.
pb::object parameter_on_device(const pb::object& p) {
  wait_for_gradients();
  const std::shared_ptr<Storage>& s = storage_in(p.ptr());
  const DeviceArray view = device_array(Exchange().values(s), layout_of(*s), true);
  if (!s->decay || s->decay->factor == 1.f) return pb::cast(view);
  GivenArray given = flat(view);
  given.array.scale = s->decay->factor;
  return pb::cast(taken_from(given, view));
}

// On the CPU: a copy, zeros where there is none.
pb::array_t<float> gradient_array(const pb::object& p) {
  wait_for_gradients();
  const Storage& s = *storage_in(p.ptr());
  const ArrayLayout layout = layout_of(s);
  pb::array_t<float> own(layout.shape, layout.strides);
  const std::vector<float> grad = s.copy_grad();
  std::copy(grad.begin(), grad.end(), own.mutable_data());
  return own;
}

DeviceArray gradient_on_device(const pb::object& p) {
  wait_for_gradients();
  const std::shared_ptr<Storage>& s = storage_in(p.ptr());
  return device_array(Exchange().gradient(s), layout_of(*s), true);
}

// The emulation's memory is the host's.
pb::array seen(const pb::object& self) {
  const auto& array = self.cast<const DeviceArray&>();
  if (!Exchange().emulated()) throw RuntimeError("seen(): the memory of a GPU is not the host's");
  std::vector<pb::ssize_t> shape(array.shape.begin(), array.shape.end()), strides;
  for (const int64_t n : array.strides) strides.push_back(n * static_cast<pb::ssize_t>(sizeof(float)));
  pb::array view(pb::dtype::of<float>(), shape, strides, reinterpret_cast<const void*>(array.address()),
                 self);
  view.attr("flags").attr("writeable") = !array.read_only;
  return view;
}

}  // namespace

pb::object device_view(const float* at, const ArrayLayout& layout, std::shared_ptr<const void> owner) {
  DeviceArray view = device_array(nullptr, layout, true);
  view.owner = std::move(owner);
  view.start = reinterpret_cast<uint64_t>(at);
  return pb::cast(std::move(view));
}

void store_on_device(const pb::object& array, float* to, size_t floats, bool add, const char* op) {
  if (const auto given = given_array(array.ptr(), op, "the result")) {
    check_result_size(given->from.array.total, floats, op);
    return Exchange().copy(given->from, to, add);
  }
  const FloatArray host = float_array(array.ptr(), op, "the result");
  check_result_size(host.size(), floats, op);
  Exchange().upload(host.data(), floats, to, add);
}

namespace {

// Memory from a function of the script, which returns an object with an address `ptr` and is kept until the
// memory is given back.
class ScriptAllocator final : public cuda::Allocator {
 public:
  explicit ScriptAllocator(pb::object function) : function_(std::move(function)) {}
  ~ScriptAllocator() override {
    if (Py_IsInitialized()) {
      const pb::gil_scoped_acquire lock;
      function_ = {};
      blocks_.clear();
      return;
    }
    function_.release();  // the interpreter is gone, and its objects with it
    for (auto& [address, block] : blocks_) block.release();
  }

  uint64_t allocate(size_t bytes) override {
    const pb::gil_scoped_acquire lock;
    const InsideFunction inside;
    try {
      pb::object block = function_(bytes);
      const auto address = pb::int_(block.attr("ptr")).cast<uint64_t>();
      if (!address || address % kAlignment)
        throw RuntimeError(text("the allocator of device memory returned the address ", address,
                                "; wanted a multiple of ", kAlignment));
      if (!blocks_.try_emplace(address, std::move(block)).second)
        throw RuntimeError("the allocator of device memory returned memory that is in use");
      return address;
    } catch (const pb::error_already_set& e) {
      const std::string why = text("the allocator of device memory raised ", e.what());
      if (e.matches(PyExc_MemoryError)) throw MemoryError(why);
      throw RuntimeError(why);
    }
  }
  void release(uint64_t memory) noexcept override {
    if (!Py_IsInitialized()) return;
    const pb::gil_scoped_acquire lock;
    const InsideFunction inside;
    blocks_.erase(memory);
  }

 private:
  static constexpr uint64_t kAlignment = 256;
  pb::object function_;
  std::unordered_map<uint64_t, pb::object> blocks_;
};

void set_allocator(const pb::object& function) {
  auto allocator = function.is_none() ? nullptr : std::make_shared<ScriptAllocator>(function);
  const auto lock = used_device().lock();
  DeviceMemory::use_allocator(std::move(allocator));
}

}  // namespace

PyObject* tensor_on_device(std::shared_ptr<DeviceMemory> memory, NodeId id) {
  const Dim& dim = engine().graph.dim(id);
  ArrayLayout layout(sizeof(float));
  layout.add(dim);
  if (dim.bd > 1) layout.add(dim.bd);
  DeviceArray array = device_array(std::move(memory), layout, true);
  array.node = CopiedNode(id);
  return tensor_class().attr("_of_device")(array, dim.nd).release().ptr();
}

void add_exchange(pb::module_& m) {
  pb::class_<DeviceArray>(m, "_DeviceArray", "Floats on the device, for other libraries.")
      .def_readonly("read_only", &DeviceArray::read_only)
      .def_property_readonly("shape", [](const DeviceArray& a) { return pb::tuple(pb::cast(a.shape)); })
      .def_property_readonly("size", &DeviceArray::size)
      .def_property_readonly(kInterface, &interface)
      .def("capsule",
           [](const DeviceArray& a, bool versioned, bool copied) {
             return versioned ? capsule_with<dlpack::Versioned>(a, copied)
                              : capsule_with<dlpack::Managed>(a, copied);
           })
      .def("copy", &copy_of)
      .def("writable", [](const DeviceArray& a) { return DeviceArray{a.memory, a.shape, a.strides, false}; })
      .def("seen", &seen)
      .def("numpy", &numpy_of);
  m.def("_set_allocator", &set_allocator);
  m.def("_is_emulated", [] { return Exchange().emulated(); });
  m.def("_stream", [] { return Exchange().stream(); });
  m.def("_on_host", [](const pb::object& array, const char* op, const char* name) {
    return is_foreign(array.ptr()) ? on_host(array.ptr(), op, name) : array;
  });
  m.def("_publish", [](uint64_t stream) { Exchange().publish(stream); });
  m.def("_dlpack_device", [] { return pb::make_tuple(own_device().type, own_device().id); });
  m.def("_parameter_on_device", &parameter_on_device);
  m.def("_gradient_on_device", &gradient_on_device);
  m.def("_gradient_array", &gradient_array);
}

}  // namespace dyc::py
