// NumPy arrays as arguments.
#include "bindings/float_arrays.h"

#include <cmath>
#include <cstring>

#include "bindings/tuning.h"

namespace dyc::py {

namespace pb = pybind11;

namespace {

constexpr double kEnd = 4294967296.0;  // of uint32

bool is_real(const pb::array& a) { return std::strchr("cmMSU", a.dtype().kind()) == nullptr; }

[[noreturn]] void refuse(const pb::array& a, const char* op, const char* name) {
  const std::string kind = pb::str(pb::object(a.dtype()));
  PyErr_Format(PyExc_TypeError, "%s(): expected real numbers for %s, got an array of %s", op, name,
               kind.c_str());
  throw PythonError();
}

[[noreturn]] void out_of_range(const char* op, const char* name, const std::string& value) {
  PyErr_Format(PyExc_OverflowError, "%s(): expected 0 <= %s < 2**32, got %s", op, name, value.c_str());
  throw PythonError();
}

// The elements along the axes [0, axis] in column-major order; returns the end of what was written.
template <class T>
float* copy_axes(const pb::detail::PyArray_Proxy& a, int axis, const char* from, float* to) {
  const pb::ssize_t n = a.dimensions[axis], step = a.strides[axis];
  if (axis > 0) {
    for (pb::ssize_t i = 0; i < n; ++i) to = copy_axes<T>(a, axis - 1, from + i * step, to);
    return to;
  }
  if (step == sizeof(T)) std::copy_n(reinterpret_cast<const T*>(from), n, to);
  else
    for (pb::ssize_t i = 0; i < n; ++i)
      to[i] = static_cast<float>(*reinterpret_cast<const T*>(from + i * step));
  return to + n;
}

// Is it small, and of the machine's own floats or doubles? Then copied without NumPy, which takes half a
// microsecond to begin, but goes through large arrays in the order of memory.
bool copy_small(const pb::array& array, float* to) {
  const auto& a = *pb::detail::array_proxy(array.ptr());
  const auto* type = pb::detail::array_descriptor_proxy(a.descr);
  if (array.size() > tuning::kSmallArray || !(a.flags & kAligned) || type->byteorder != '=' || a.nd == 0)
    return false;
  if (type->type == 'd') copy_axes<double>(a, a.nd - 1, a.data, to);
  else if (type->type == 'f') copy_axes<float>(a, a.nd - 1, a.data, to);
  else return false;
  return true;
}

template <class T>
void narrow(const pb::array& a, const char* op, const char* name, std::vector<uint32_t>* out) {
  const auto wide = pb::array_t<T, pb::array::c_style | pb::array::forcecast | kAligned>::ensure(a);
  if (!wide) throw pb::error_already_set();
  const T* from = wide.data();
  for (size_t i = 0; i < out->size(); ++i) {
    if constexpr (std::is_same_v<T, double>) {
      if (std::isnan(from[i]))
        throw ValueError(text(op, "(): expected ints for ", name, ", got a NaN at position ", i));
      if (from[i] <= -1.0 || from[i] >= kEnd) out_of_range(op, name, text(from[i]));
    } else if (from[i] < T(0) || from[i] > T(0xffffffffu)) {
      out_of_range(op, name, text(from[i]));
    }
    (*out)[i] = static_cast<uint32_t>(from[i]);
  }
}

}  // namespace

PyTypeObject* ArrayType = nullptr;

void find_arrays() {
  ArrayType = reinterpret_cast<PyTypeObject*>(
      pb::object(pb::module_::import("numpy").attr("ndarray")).release().ptr());
}

FloatArray float_array(PyObject* object, const char* op, const char* name) {
  const pb::array any = pb::array::ensure(is_foreign(object) ? on_host(object, op, name)
                                                             : pb::reinterpret_borrow<pb::object>(object));
  if (!any) throw ValueError(text(op, "(): expected numbers of a regular shape for ", name));
  if (!is_real(any)) refuse(any, op, name);
  const auto floats = FloatArray::ensure(any);
  if (floats) return floats;
  PyErr_Clear();
  PyErr_Format(PyExc_TypeError, "%s(): expected numbers for %s, got %s", op, name, type_name(object));
  throw PythonError();
}

void copy_numbers(const pb::array& from, float* to) {
  if (copy_small(from, to)) return;
  std::vector<pb::ssize_t> strides;
  pb::ssize_t step = sizeof(float);
  for (pb::ssize_t i = 0; i < from.ndim(); ++i) {
    strides.push_back(step);
    step *= from.shape(i);
  }
  copy_numbers(from, strides, to);
}

void copy_numbers(const pb::array& from, const std::vector<pb::ssize_t>& strides, float* to) {
  const auto& numpy = pb::detail::npy_api::get();
  const auto target = pb::reinterpret_steal<pb::object>(numpy.PyArray_NewFromDescr_(
      numpy.PyArray_Type_, pb::dtype::of<float>().release().ptr(), static_cast<int>(from.ndim()),
      reinterpret_cast<const Py_intptr_t*>(from.shape()),
      reinterpret_cast<const Py_intptr_t*>(strides.data()), to, pb::detail::npy_api::NPY_ARRAY_WRITEABLE_,
      nullptr));
  if (!target || numpy.PyArray_CopyInto_(target.ptr(), from.ptr()) < 0) throw pb::error_already_set();
}

bool uints_of_array(PyObject* object, const char* op, const char* name, std::vector<uint32_t>* out) {
  const auto a = pb::reinterpret_borrow<pb::array>(object);
  const char kind = a.dtype().kind();
  if (a.ndim() < 1 || a.size() != a.shape(0) || !std::strchr("biuf", kind)) return false;
  out->resize(static_cast<size_t>(a.size()));
  if (kind == 'f') narrow<double>(a, op, name, out);
  else if (kind == 'u') narrow<uint64_t>(a, op, name, out);
  else narrow<int64_t>(a, op, name, out);
  return true;
}

bool dim_of_array(PyObject* object, bool batched, Dim* dim) {
  if (Py_TYPE(object) != ArrayType) return false;
  const auto& a = *pb::detail::array_proxy(object);
  const int axes = a.nd - (batched && a.nd > 1);
  if (a.nd == 0 || axes > kMaxDims || !std::strchr("fd", pb::detail::array_descriptor_proxy(a.descr)->type))
    return false;
  Dim d;
  double size = 1;
  for (int i = 0; i < a.nd; ++i) {
    size *= static_cast<double>(a.dimensions[i]);
    if (a.dimensions[i] < 1 || size >= 2147483648.0) return false;
    const auto n = static_cast<uint32_t>(a.dimensions[i]);
    if (!batched || i + 1 < a.nd) d.d[d.nd++] = n;
    else d.bd = n;
  }
  if (d.nd == 0) d.d[d.nd++] = 1;
  *dim = d;
  return true;
}

bool is_number_array(PyObject* object) {
  const auto a = pb::reinterpret_borrow<pb::array>(object);
  return a.size() == 1 && a.ndim() <= 1 && std::strchr("biuf", a.dtype().kind());
}

NodeId array_node(PyObject* object, const char* op) {
  const auto a = pb::reinterpret_borrow<pb::array>(object);
  if (!std::strchr("biuf", a.dtype().kind())) refuse(a, op, "an operand");
  if (a.ndim() == 0 || a.ndim() > kMaxDims)
    throw ValueError(text(op, "(): expected an array of 1 to ", kMaxDims, " axes, got ", a.ndim()));
  Dim d;
  double size = 1;
  for (pb::ssize_t i = 0; i < a.ndim(); ++i) {
    size *= static_cast<double>(a.shape(i));
    if (a.shape(i) < 1 || size >= 2147483648.0)
      throw ValueError(text(op, "(): expected an array of 1 to 2**31 - 1 elements, got one of shape ",
                            std::string(pb::str(pb::object(a.attr("shape"))))));
    d.d[d.nd++] = static_cast<uint32_t>(a.shape(i));
  }
  Graph& g = engine().graph;
  const NodeId id = g.input(d, false);
  copy_numbers(a, g.values(id));
  engine().recorded(id);
  return id;
}

}  // namespace dyc::py
