// What the Tensor class of tensor.py computes with, and views of parameter values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "bindings/float_arrays.h"
#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/model.h"
#include "bindings/tuning.h"
#include "ops/order.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

PyObject* tensor_type = nullptr;  // the class, made in Python

// An array seen as outer x n x inner, where n belongs to one axis; column-major.
struct Axis {
  size_t inner = 1, n = 1, outer = 1;

  Axis(const pb::array& a, uint32_t axis) {
    for (pb::ssize_t i = 0; i < a.ndim(); ++i) {
      const size_t size = static_cast<size_t>(a.shape(i));
      (i < static_cast<pb::ssize_t>(axis) ? inner : i == static_cast<pb::ssize_t>(axis) ? n : outer) *= size;
    }
  }
};

template <class T>
pb::array_t<T> empty_like(const pb::array& a, uint32_t axis, size_t size) {
  ArrayLayout layout(sizeof(T));
  for (uint32_t i = 0; i < a.ndim(); ++i) layout.add(i == axis ? size : static_cast<size_t>(a.shape(i)));
  return pb::array_t<T>(layout.shape, layout.strides);
}

// Index of the largest along an axis; the first of equal ones, NaN only where there is nothing else.
pb::array_t<int64_t> argmax(const FloatArray& a, uint32_t axis, const float* noise) {
  const Axis x(a, axis);
  auto out = empty_like<int64_t>(a, axis, 1);
  int64_t* to = out.mutable_data();
  for (size_t o = 0; o < x.outer; ++o)
    for (size_t i = 0; i < x.inner; ++i) {
      const size_t start = o * x.n * x.inner + i;
      int64_t best = 0;
      float most = std::numeric_limits<float>::quiet_NaN();
      for (size_t k = 0; k < x.n; ++k) {
        const size_t at = start + k * x.inner;
        const float v = noise ? a.data()[at] + noise[at] : a.data()[at];
        if (v > most || (std::isnan(most) && !std::isnan(v))) {
          most = v;
          best = static_cast<int64_t>(k);
        }
      }
      *to++ = best;
    }
  return out;
}

// A sample of exp(a), normalised, along an axis: the largest of a + Gumbel noise. One draw per element,
// in memory order.
pb::array_t<int64_t> sample(const FloatArray& a, uint32_t axis) {
  std::vector<float> noise(static_cast<size_t>(a.size()));
  random_engine().gumbel(noise.data(), noise.size());
  return argmax(a, axis, noise.data());
}

// Ascending keys are falling values; equal ones by index, NaN last. -0 and 0 are equal.
uint64_t falling_key(float v, uint32_t index) {
  const uint32_t rising = order_of(v);
  return static_cast<uint64_t>(rising == kNanOrder ? rising : ~rising) << 32 | index;
}

void sort_first(std::vector<uint64_t>& keys, size_t num) {
  const auto end = keys.begin() + static_cast<ptrdiff_t>(num);
  if (num * tuning::kHeapShare < keys.size()) return std::partial_sort(keys.begin(), end, keys.end());
  if (num < keys.size()) std::nth_element(keys.begin(), end, keys.end());
  std::sort(keys.begin(), end);
}

// The largest `num` along an axis and where they are.
pb::tuple topk(const FloatArray& a, uint32_t axis, size_t num) {
  const Axis x(a, axis);
  auto values = empty_like<float>(a, axis, num);
  auto indices = empty_like<int64_t>(a, axis, num);
  float* value = values.mutable_data();
  int64_t* index = indices.mutable_data();
  std::vector<uint64_t> keys(x.n);
  for (size_t o = 0; o < x.outer; ++o)
    for (size_t i = 0; i < x.inner; ++i) {
      const float* line = a.data() + o * x.n * x.inner + i;
      for (size_t k = 0; k < x.n; ++k) keys[k] = falling_key(line[k * x.inner], static_cast<uint32_t>(k));
      sort_first(keys, num);
      for (size_t k = 0; k < num; ++k) {
        const uint32_t best = static_cast<uint32_t>(keys[k]);
        const size_t at = (o * num + k) * x.inner + i;
        value[at] = line[best * x.inner];
        index[at] = best;
      }
    }
  return pb::make_tuple(values, indices);
}

// A buffer that does not change while this exists: writers of the parameter take another one.
struct Pin {
  std::shared_ptr<Storage> storage;
  const float* buffer;
};

void release(void* pointer) {
  std::unique_ptr<Pin> pin(static_cast<Pin*>(pointer));
  wait_for_backward();
  pin->storage->unpin(pin->buffer);
}

const std::shared_ptr<Storage>& storage_of(const pb::object& p) {
  wait_for_gradients();
  if (!is_parameters(p.ptr()))
    throw TypeError(text("expected Parameters or LookupParameters, got ", type_name(p.ptr())));
  return storage_in(p.ptr());
}

bool decayed(const Storage& s) { return s.decay && s.decay->factor != 1.f; }

// The values that graphs see, float32, of this moment: a read-only view that pins the buffer, or with a
// factor of weight decay an array of its own.
pb::array parameter_values(const pb::object& p) {
  const std::shared_ptr<Storage>& s = storage_of(p);
  const auto [shape, strides, size] = layout_of(*s);
  if (decayed(*s)) {
    pb::array_t<float> own(shape, strides);
    const float* from = s->values();
    for (size_t i = 0; i < s->size(); ++i) own.mutable_data()[i] = from[i] * s->decay->factor;
    return own;
  }
  s->values();  // are here
  auto pin = std::make_unique<Pin>(Pin{s, nullptr});
  pin->buffer = s->pin();
  const float* buffer = pin->buffer;
  pb::capsule keeper;
  try {
    keeper = pb::capsule(pin.get(), release);
  } catch (...) {
    s->unpin(buffer);
    throw;
  }
  pin.release();
  pb::array view(pb::dtype::of<float>(), shape, strides, buffer, keeper);
  view.attr("flags").attr("writeable") = false;
  return view;
}

// Values such that graphs see these; the array has the parameter's shape.
void set_parameter_values(const pb::object& p, const pb::array& values) {
  Storage& s = *storage_of(p);
  const auto [shape, strides, size] = layout_of(s);
  if (!std::equal(shape.begin(), shape.end(), values.shape(), values.shape() + values.ndim()))
    throw ValueError(text("values of ", s.name, ": got an array of shape ",
                          std::string(pb::str(pb::object(values.attr("shape"))))));
  float* to = s.begin_write(false);
  copy_numbers(values, strides, to);
  if (decayed(s))
    for (size_t i = 0; i < s.size(); ++i) to[i] /= s.decay->factor;
}

}  // namespace

pb::object tensor_class() {
  if (!tensor_type) throw RuntimeError("tensor_value(): the package is not initialised");
  return pb::reinterpret_borrow<pb::object>(tensor_type);
}

PyObject* tensor_of(const float* values, const Dim& dim) {
  std::vector<pb::ssize_t> shape;
  for (uint32_t i = 0; i < dim.nd; ++i) shape.push_back(dim.d[i]);
  if (dim.bd > 1) shape.push_back(dim.bd);
  pb::array_t<float, pb::array::f_style> copy(shape);
  std::copy(values, values + dim.size(), copy.mutable_data());
  return tensor_class().attr("_of")(copy, dim.nd).release().ptr();
}

void add_tensor_functions(pb::module_& m) {
  m.def("_set_tensor", [](const pb::object& type) { tensor_type = pb::object(type).release().ptr(); });
  m.def("_argmax", [](const FloatArray& array, uint32_t axis) { return argmax(array, axis, nullptr); });
  m.def("_sample", &sample);
  m.def("_topk", &topk);
  m.def("_parameter_values", &parameter_values);
  m.def("_set_parameter_values", &set_parameter_values);
}

}  // namespace dyc::py
