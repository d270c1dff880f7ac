// Ops whose functions are Python's (dynet_compat/api/user_ops.py): what the executors call, and how nodes of
// them are recorded.
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/float_arrays.h"
#include "bindings/model.h"
#include "exec/device.h"
#include "exec/user_ops.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

PyObject* ops = nullptr;        // Python's dict of the ops by their numbers
PyObject* end_calls = nullptr;  // Python's function: calls of ops that have ended let go of their arrays

ArrayLayout layout_of_array(const Dim& dim) {
  ArrayLayout layout(sizeof(float));
  layout.add(dim);
  if (dim.bd > 1) layout.add(dim.bd);
  return layout;
}

// Values for a function, read-only: a view of the device's memory, or NumPy's array, which has its own memory
// and may be kept.
pb::object array_for_function(const float* at, const Dim& dim, const std::shared_ptr<const void>& memory) {
  const ArrayLayout layout = layout_of_array(dim);
  if (cuda_device()) return device_view(at, layout, memory);
  pb::array_t<float> copy(layout.shape, layout.strides);
  std::copy_n(at, copy.size(), copy.mutable_data());
  copy.attr("flags").attr("writeable") = false;
  return copy;
}

// What a function returned goes to the memory of `to`, which has that many floats.
void store(const pb::object& result, float* to, size_t floats, bool add, const char* op) {
  if (cuda_device()) return store_on_device(result, to, floats, add, op);
  const FloatArray array = float_array(result.ptr(), op, "the result");
  check_result_size(array.size(), floats, op);
  if (!add) return std::copy_n(array.data(), floats, to), void();
  for (size_t i = 0; i < floats; ++i) to[i] += array.data()[i];
}

// Does anybody else have one of these views of the device's memory? Cycles of references may until they are
// collected, and calls that have ended as long as an error has their frames.
bool are_kept(const std::vector<pb::object>& arrays) {
  if (!cuda_device()) return false;
  const auto kept = [](const pb::object& array) { return array.ref_count() > 1; };
  if (!std::any_of(arrays.begin(), arrays.end(), kept)) return false;
  pb::handle{end_calls}();
  return std::any_of(arrays.begin(), arrays.end(), kept);
}

std::string kept_text(const std::string& op) {
  return text(op,
              ": its function has kept an array that it was called with: that is memory of the graph, and "
              "valid only during the call; keep a copy");
}

// The references to the arrays are gone when this returns.
void compute(const UserNode& node, const pb::object& op, const char* name,
             const std::vector<pb::object>& arrays) {
  const Sig& sig = *node.sig;
  pb::tuple given(arrays.size());
  for (size_t i = 0; i < arrays.size(); ++i) given[i] = arrays[i];
  pb::list wanted;
  for (const float* dx : node.dx) wanted.append(dx != nullptr);
  const auto results =
      op.attr("_run")(node.dy != nullptr, given, wanted, layout_of_array(*sig.y).shape).cast<pb::list>();
  try {
    if (!node.dy) store(results[0], node.y, sig.y->size(), false, name);
    for (size_t i = 0; i < node.dx.size(); ++i)
      if (node.dx[i] && !pb::object(results[i]).is_none())
        store(results[i], node.dx[i], sig.x[i]->size(), true, name);
  } catch (const PythonError&) {
    throw pb::error_already_set();
  }
}

void call(const UserNode& node) {
  const pb::gil_scoped_acquire lock;
  const InsideFunction inside;
  const Sig& sig = *node.sig;
  const pb::object op = pb::handle(ops)[pb::int_(sig.attrs[0])];
  const auto name = pb::str(op).cast<std::string>();
  std::vector<pb::object> arrays;
  for (uint32_t i = 0; i < sig.n_args; ++i)
    arrays.push_back(array_for_function(node.x[i], *sig.x[i], node.values));
  if (node.dy) {
    arrays.push_back(array_for_function(node.y, *sig.y, node.values));
    arrays.push_back(array_for_function(node.dy, *sig.y, node.gradients));
  }
  try {
    compute(node, op, name.c_str(), arrays);
  } catch (pb::error_already_set& error) {
    if (!are_kept(arrays)) throw;
    pb::raise_from(error, PyExc_RuntimeError, kept_text(name).c_str());
    throw pb::error_already_set();
  } catch (const std::exception& error) {
    if (!are_kept(arrays)) throw;
    throw RuntimeError(text(kept_text(name), "; it has also failed: ", error.what()));
  }
  if (are_kept(arrays)) throw RuntimeError(kept_text(name));
}

// Node of the op with this number, which `op` is: it is kept as long as the graph.
pb::object record_user_op(uint32_t number, const pb::object& op, const pb::object& xs,
                          const std::vector<uint32_t>& sizes, uint32_t batch) {
  const std::vector<NodeId> nodes = as_nodes(xs.ptr(), "cupy_op");
  std::vector<uint32_t> attrs = {number};
  attrs.insert(attrs.end(), sizes.begin(), sizes.end());
  attrs.push_back(batch);
  if (sizes.empty() || sizes.size() > kMaxDims)
    throw ValueError(text(pb::str(op).cast<std::string>(), ": expected a result of 1 to ", kMaxDims,
                          " axes, got ", sizes.size()));
  Engine& e = engine();
  const NodeId id = e.graph.record(op_id<UserOp>, nodes.data(), static_cast<uint32_t>(nodes.size()),
                                   attrs.data(), static_cast<uint32_t>(attrs.size()), {});
  e.keep(number, std::make_shared<pb::object>(op));
  PyObject* const made = recorded(id);
  if (!made) throw pb::error_already_set();
  return pb::reinterpret_steal<pb::object>(made);
}

}  // namespace

void add_user_ops(pb::module_& m) {
  call_user_op = call;
  m.def("_set_user_ops", [](const pb::object& by_number, const pb::object& end) {
    ops = pb::object(by_number).release().ptr();
    end_calls = pb::object(end).release().ptr();
  });
  m.def("_record_user_op", &record_user_op);
}

}  // namespace dyc::py
