// Ops whose functions are Python's (dynet_compat/api/user_ops.py): what the executors call, and how nodes of
// them are recorded.
#include <pybind11/stl.h>

#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/float_arrays.h"
#include "bindings/model.h"
#include "exec/device.h"
#include "exec/user_ops.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

PyObject* caller = nullptr;  // run(number, backward, arrays, wanted), Python's

ArrayLayout layout_of_array(const Dim& dim) {
  ArrayLayout layout(sizeof(float));
  layout.add(dim);
  if (dim.bd > 1) layout.add(dim.bd);
  return layout;
}

// Memory of the graph, read-only: NumPy's array, or one of the device.
pb::object view_of(const float* at, const Dim& dim) {
  const ArrayLayout layout = layout_of_array(dim);
  if (cuda_device()) return device_view(at, layout);
  const pb::capsule keeper(at, [](void*) {});
  pb::array view(pb::dtype::of<float>(), layout.shape, layout.strides, at, keeper);
  view.attr("flags").attr("writeable") = false;
  return view;
}

// What a function returned, whose shape is right, goes to `to`.
void store(const pb::object& result, float* to, bool add, const char* op) {
  if (cuda_device()) return store_on_device(result, to, add, op);
  const FloatArray array = float_array(result.ptr(), op, "the result");
  if (!add) return std::copy_n(array.data(), array.size(), to), void();
  for (pb::ssize_t i = 0; i < array.size(); ++i) to[i] += array.data()[i];
}

void check_returned(const std::vector<pb::object>& arrays, const pb::object& name) {
  for (const pb::object& array : arrays)
    if (array.ref_count() > 1)
      throw RuntimeError(
          text(pb::str(name).cast<std::string>(),
               ": its function has kept an array that it was called with: that is memory of the "
               "graph, and valid only during the call; keep a copy"));
}

void call(const UserNode& node) {
  const pb::gil_scoped_acquire lock;
  const InsideFunction inside;
  const Sig& sig = *node.sig;
  std::vector<pb::object> arrays;
  for (uint32_t i = 0; i < sig.n_args; ++i) arrays.push_back(view_of(node.x[i], *sig.x[i]));
  if (node.dy) {
    arrays.push_back(view_of(node.y, *sig.y));
    arrays.push_back(view_of(node.dy, *sig.y));
  }
  pb::list wanted;
  for (const float* dx : node.dx) wanted.append(dx != nullptr);
  pb::object name;
  {
    pb::tuple given(arrays.size());
    for (size_t i = 0; i < arrays.size(); ++i) given[i] = arrays[i];
    const pb::tuple made =
        pb::handle(caller)(sig.attrs[0], node.dy != nullptr, given, wanted, layout_of_array(*sig.y).shape);
    name = made[0];
    const auto op = pb::str(name).cast<std::string>();
    const auto results = made[1].cast<pb::list>();
    if (!node.dy) store(results[0], node.y, false, op.c_str());
    for (size_t i = 0; i < node.dx.size(); ++i)
      if (node.dx[i] && !pb::object(results[i]).is_none()) store(results[i], node.dx[i], true, op.c_str());
  }
  check_returned(arrays, name);
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
  m.def("_set_user_function", [](const pb::object& run) { caller = pb::object(run).release().ptr(); });
  m.def("_record_user_op", &record_user_op);
}

}  // namespace dyc::py
