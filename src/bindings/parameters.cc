// Parameters and LookupParameters: expressions that stand for the values of the model.
#include <algorithm>
#include <new>

#include "bindings/arguments.h"
#include "bindings/float_arrays.h"
#include "bindings/compute.h"
#include "bindings/exchange.h"
#include "bindings/operators.h"
#include "bindings/signatures.h"
#include "ops/table.h"

namespace dyc::py {

namespace {

Storage& storage_of(PyObject* self) {
  wait_for_gradients();
  return *storage_in(self);
}

std::string shape_text(const pybind11::array& a) {
  return pybind11::str(pybind11::object(a.attr("shape"))).cast<std::string>();
}

// Equal sizes, axis by axis from `first` on.
bool has_shape(const pybind11::array& a, const Dim& dim, uint32_t first) {
  if (a.ndim() != static_cast<pybind11::ssize_t>(dim.nd + first)) return false;
  for (uint32_t i = 0; i < dim.nd; ++i)
    if (a.shape(first + i) != static_cast<pybind11::ssize_t>(dim.d[i])) return false;
  return true;
}

// Rows {d1,d2,..} one after the other -> array (n, d1, d2, ..).
pybind11::array_t<double> rows_array(size_t n, const Dim& dim) {
  ArrayLayout layout(sizeof(double));
  layout.add_rows(n, dim);
  return pybind11::array_t<double>(layout.shape, layout.strides);
}

void check_row(uint32_t row, const Storage& s, const char* op) {
  if (row >= s.rows) throw IndexError(text(op, "(): got row ", row, "; ", s.name, " has ", s.rows, " rows"));
}

uint32_t as_row(PyObject* object, const Storage& s, const char* op) {
  const uint32_t row = as_uint(object, op, "row");
  check_row(row, s, op);
  return row;
}

std::vector<uint32_t> as_rows(PyObject* object, const Storage& s, const char* op) {
  std::vector<uint32_t> rows = as_uints(object, op, "rows");
  if (rows.empty()) throw ValueError(text(op, "(): got no rows; wanted at least one"));
  for (uint32_t row : rows) check_row(row, s, op);
  return rows;
}

// An array of exactly the shape of the parameter.
FloatArray as_values(PyObject* object, const Storage& s, const char* op) {
  FloatArray array = float_array(object, op, "arr");
  if (!has_shape(array, s.dim, 0))
    throw ValueError(text(op, "(): got an array of shape ", shape_text(array), "; ", s.name, " has ", s.dim));
  return array;
}

// (n, width), each row in memory order, or (n, d1, d2, ..).
bool holds_rows(const FloatArray& array, const Storage& s) {
  const bool flat = array.ndim() == 2 && static_cast<size_t>(array.shape(1)) == s.row_size();
  return flat || has_shape(array, s.dim, 1);
}

// Such an array of exactly n rows.
FloatArray as_row_values(PyObject* object, const Storage& s, size_t n, const char* op) {
  FloatArray array = float_array(object, op, "arr");
  if (!holds_rows(array, s) || static_cast<size_t>(array.shape(0)) != n)
    throw ValueError(text(op, "(): got an array of shape ", shape_text(array), "; wanted ", n, " rows of ",
                          s.dim, " for ", s.name));
  return array;
}

// Row i goes to the address row(i).
template <class F>
void copy_rows(const FloatArray& array, size_t width, F row) {
  const auto n = static_cast<size_t>(array.shape(0));
  for (size_t i = 0; i < n; ++i) {
    float* const to = row(i);
    for (size_t j = 0; j < width; ++j) to[j] = array.data()[i + j * n];
  }
}

// ------------------------------------------------------------------------- methods of both types

constexpr FastMethod scale = method<"scale", 1, "s">(
    [](PyObject* self, const auto& a) { storage_of(self).scale_values(a.number(0, 1.f)); });

constexpr FastMethod scale_gradient = method<"scale_gradient", 1, "s">([](PyObject* self, const auto& a) {
  const float s = a.number(0, 1.f);
  storage_of(self).scale_grad(s);
});

constexpr FastMethod set_updated = method<"set_updated", 1, "b">(
    [](PyObject* self, const auto& a) { storage_of(self).updated = a.truth(0, true); });

constexpr PyCFunction has_gradient =
    plain([](PyObject* self) { return PyBool_FromLong(storage_of(self).has_grad()); });

constexpr PyCFunction is_updated =
    plain([](PyObject* self) { return PyBool_FromLong(storage_of(self).updated); });
constexpr PyCFunction get_name = plain([](PyObject* self) { return to_python(storage_of(self).name); });

void fill_zero(Storage& s) { std::fill_n(s.begin_write(false), s.size(), 0.f); }

// The node of a parameter as an expression of its own. The role: kConstant, kUpdated or kStopped.
PyObject* node_expression(PyObject* self, uint32_t role) {
  const NodeId id = engine().graph.parameter(storage_in(self), role);
  engine().recorded(id);
  return make_expression(id);
}

// ------------------------------------------------------------------------------------ Parameters

constexpr PyCFunction p_shape = plain([](PyObject* self) { return dim_tuple(storage_of(self).dim); });

constexpr PyCFunction p_as_array =
    plain([](PyObject* self) { return array_of(storage_of(self).values(), storage_of(self).dim); });

constexpr PyCFunction p_grad_as_array = plain([](PyObject* self) {
  const Storage& s = storage_of(self);
  return array_of(s.has_grad() ? s.raw_grad() : nullptr, s.dim);
});

// Values from the float `first` on.
void write_given(PyObject* self, size_t first, const Given& given) {
  if (Exchange().write(storage_in(self), first, given.from)) return;
  const auto memory = Exchange().take(given.from);  // the host has the values of this one
  std::vector<float> values(static_cast<size_t>(given.from.array.total));
  Exchange().download(memory->address(), values.size(), values.data());
  Storage& to = storage_of(self);
  std::copy(values.begin(), values.end(), to.begin_write(values.size() < to.size()) + first);
}

// True: the values, of all rows or of the first ones, come from an array of a device.
bool set_on_device(PyObject* self, PyObject* array, const char* op) {
  if (!is_foreign(array)) return false;
  auto given = given_foreign(array, op, "arr");
  if (!given) return false;
  const Storage& s = storage_of(self);
  const std::vector<int64_t>& shape = given->shape;
  const bool flat = s.is_lookup() && shape.size() == 2 && static_cast<size_t>(shape[1]) == s.row_size();
  bool fits = shape.size() == s.dim.nd + size_t{s.is_lookup()} || flat;
  for (uint32_t i = 0; fits && !flat && i < s.dim.nd; ++i) fits = shape[i + s.is_lookup()] == s.dim.d[i];
  if (!fits || (s.is_lookup() && shape[0] > s.rows))
    throw ValueError(text(op, "(): got an array of shape ", given->shape_text(), "; ", s.name, " has ",
                          s.is_lookup() ? text(s.rows, " rows of ") : "", s.dim));
  if (s.is_lookup()) given->move_first_axis_to_end();
  write_given(self, 0, *given);
  return true;
}

bool set_row_on_device(PyObject* self, uint32_t row, PyObject* array) {
  if (!is_foreign(array)) return false;
  const auto given = given_foreign(array, "init_row", "row");
  if (!given) return false;
  given->check_flat(array, "init_row", "row");
  const Storage& s = storage_of(self);
  if (static_cast<size_t>(given->from.array.total) != s.row_size())
    throw ValueError(
        text("init_row(): got ", given->from.array.total, " values; a row of ", s.name, " has ", s.dim));
  write_given(self, row * s.row_size(), *given);
  return true;
}

constexpr FastMethod p_set_value = method<"set_value", 1, "arr">([](PyObject* self, const auto& a) {
  if (set_on_device(self, a[0], a.op())) return;
  Storage& s = storage_of(self);
  s.set_values(as_values(a[0], s, a.op()).data());
});

constexpr FastMethod p_set_gradient = method<"set_gradient", 1, "arr">([](PyObject* self, const auto& a) {
  Storage& s = storage_of(self);
  if (a[0] == Py_None) return s.clear_grad();
  const FloatArray array = as_values(a[0], s, a.op());
  wait_for_gradients();  // again: the conversion may have run Python code
  s.clear_grad();
  std::copy_n(array.data(), s.size(), s.grad());
});

constexpr FastMethod p_clip_inplace =
    method<"clip_inplace", 2, "left", "right">([](PyObject* self, const auto& a) {
      storage_of(self).clip_effective(a.number(0, 0.f), a.number(1, 0.f));
    });

constexpr PyCFunction p_zero = plain([](PyObject* self) {
  fill_zero(storage_of(self));
  storage_of(self).clear_grad();
});

constexpr FastMethod p_expr = method<"expr", 0, "update">(
    [](PyObject* self, const auto& a) { return node_expression(self, a.truth(0, false)); });

// "Parameter /_0"; "an empty Parameter".
PyObject* name_text(PyObject* self, const std::string& kind) {
  const auto* storage = reinterpret_cast<PyParameters*>(self)->storage;
  return to_python(storage ? kind + " " + (*storage)->name : "an empty " + kind);
}
PyObject* p_str(PyObject* self) { return name_text(self, "Parameter"); }

// ------------------------------------------------------------------------------ LookupParameters

constexpr PyCFunction l_shape = plain([](PyObject* self) -> PyObject* {
  const Storage& s = storage_of(self);
  PyObject* shape = PyTuple_New(s.dim.nd + 1);
  if (!shape) return nullptr;
  PyTuple_SET_ITEM(shape, 0, PyLong_FromUnsignedLong(s.rows));
  for (uint32_t i = 0; i < s.dim.nd; ++i) PyTuple_SET_ITEM(shape, i + 1, PyLong_FromUnsignedLong(s.dim.d[i]));
  return shape;
});

constexpr PyCFunction l_as_array = plain([](PyObject* self) {
  const Storage& s = storage_of(self);
  auto out = rows_array(s.rows, s.dim);
  std::copy(s.values(), s.values() + s.size(), out.mutable_data());
  return out.release().ptr();
});

// Gradients of these rows, zeros where nothing was accumulated.
void copy_grad_rows(const Storage& s, const std::vector<uint32_t>& rows, double* out) {
  for (uint32_t row : rows) {
    const float* g = s.raw_grad() + row * s.row_size();
    if (s.row_has_grad(row)) std::copy(g, g + s.row_size(), out);
    else std::fill_n(out, s.row_size(), 0.0);
    out += s.row_size();
  }
}

constexpr PyCFunction l_grad_as_array = plain([](PyObject* self) {
  const Storage& s = storage_of(self);
  auto out = rows_array(s.rows, s.dim);
  const std::vector<float> grad = s.copy_grad();
  std::copy(grad.begin(), grad.end(), out.mutable_data());
  return out.release().ptr();
});

constexpr FastMethod l_row_as_array = method<"row_as_array", 1, "row">([](PyObject* self, const auto& a) {
  const Storage& s = storage_of(self);
  const uint32_t row = as_row(a[0], s, "row_as_array");
  return array_of(s.values() + row * s.row_size(), s.dim);
});

constexpr FastMethod l_rows_as_array = method<"rows_as_array", 1, "rows">([](PyObject* self, const auto& a) {
  const Storage& s = storage_of(self);
  const auto rows = as_rows(a[0], s, "rows_as_array");
  auto out = rows_array(rows.size(), s.dim);
  double* to = out.mutable_data();
  for (uint32_t row : rows)
    to = std::copy(s.values() + row * s.row_size(), s.values() + (row + 1) * s.row_size(), to);
  return out.release().ptr();
});

constexpr FastMethod l_row_grad_as_array =
    method<"row_grad_as_array", 1, "row">([](PyObject* self, const auto& a) {
      const Storage& s = storage_of(self);
      const uint32_t row = as_row(a[0], s, a.op());
      wait_for_gradients();  // again: the conversion may have run Python code
      return array_of(s.row_has_grad(row) ? s.raw_grad() + row * s.row_size() : nullptr, s.dim);
    });

constexpr FastMethod l_rows_grad_as_array =
    method<"rows_grad_as_array", 1, "rows">([](PyObject* self, const auto& a) {
      const Storage& s = storage_of(self);
      const auto rows = as_rows(a[0], s, a.op());
      auto out = rows_array(rows.size(), s.dim);
      wait_for_gradients();  // again: the conversion may have run Python code
      copy_grad_rows(s, rows, out.mutable_data());
      return out.release().ptr();
    });

constexpr FastMethod l_init_row = method<"init_row", 2, "i", "row">([](PyObject* self, const auto& a) {
  Storage& s = storage_of(self);
  const uint32_t row = as_row(a[0], s, "init_row");
  if (set_row_on_device(self, row, a[1])) return;
  const std::vector<float> values = floats_on_host(a[1], is_foreign(a[1]), "init_row", "row");
  if (values.size() != s.row_size())
    throw ValueError(text("init_row(): got ", values.size(), " values; a row of ", s.name, " has ", s.dim));
  s.set_row(row, values.data());
});

// DyNet takes (n, width) only, each row in memory order; here also (n, d1, d2, ..).
constexpr FastMethod l_init_from_array =
    method<"init_from_array", 1, "arr">([](PyObject* self, const auto& a) -> PyObject* {
      if (set_on_device(self, a[0], a.op())) return none();
      Storage& s = storage_of(self);
      const FloatArray array = float_array(a[0], "init_from_array", "arr");
      const size_t count = array.ndim() ? static_cast<size_t>(array.shape(0)) : 0;
      if (!holds_rows(array, s) || count > s.rows) {
        PyErr_SetString(PyExc_Exception, text("init_from_array(): got an array of shape ", shape_text(array),
                                              "; ", s.name, " has ", s.rows, " rows of ", s.dim)
                                             .c_str());
        return nullptr;
      }
      std::vector<uint32_t> rows(count);
      for (size_t i = 0; i < count; ++i) rows[i] = static_cast<uint32_t>(i);
      float* const to = s.begin_write_rows(rows);
      copy_rows(array, s.row_size(), [&](size_t i) { return to + i * s.row_size(); });
      return none();
    });

constexpr PyCFunction l_touched_rows = plain([](PyObject* self) {
  const std::vector<uint32_t> rows = storage_of(self).rows_with_grad();
  return pybind11::array_t<uint32_t>(static_cast<pybind11::ssize_t>(rows.size()), rows.data())
      .release()
      .ptr();
});

constexpr FastMethod l_set_gradient = method<"set_gradient", 1, "arr">([](PyObject* self, const auto& a) {
  Storage& s = storage_of(self);
  if (a[0] == Py_None) return s.clear_grad();
  const FloatArray array = as_row_values(a[0], s, s.rows, a.op());
  wait_for_gradients();  // again: the conversion may have run Python code
  s.clear_grad();
  copy_rows(array, s.row_size(), [&s, to = s.grad()](size_t i) { return to + i * s.row_size(); });
});

constexpr FastMethod l_set_row_gradients =
    method<"set_row_gradients", 2, "rows", "arr">([](PyObject* self, const auto& a) {
      Storage& s = storage_of(self);
      const std::vector<uint32_t> rows = as_uints(a[0], a.op(), "rows");
      std::vector<uint32_t> ascending = rows;
      std::sort(ascending.begin(), ascending.end());
      if (std::adjacent_find(ascending.begin(), ascending.end()) != ascending.end())
        throw ValueError(text(a.op(), "(): got a row twice; add its gradients first"));
      if (!rows.empty()) check_row(ascending.back(), s, a.op());
      const FloatArray array = as_row_values(a[1], s, rows.size(), a.op());
      wait_for_gradients();  // again: the conversion may have run Python code
      s.clear_grad();
      s.count_single_rows();
      for (const uint32_t row : ascending) s.grad_row(row);  // so are the touched rows
      copy_rows(array, s.row_size(), [&](size_t i) { return s.grad_row(rows[i]); });
    });

constexpr PyCFunction l_zero = plain([](PyObject* self) { fill_zero(storage_of(self)); });

constexpr FastMethod l_expr = method<"expr", 0, "update">([](PyObject* self, const auto& a) {
  if (!a.truth(0, true)) return node_expression(self, false);
  Py_INCREF(self);
  return self;
});

PyObject* l_scalar_value(PyObject*, PyObject*, PyObject*) {
  PyErr_SetString(
      PyExc_Exception,
      "scalar_value(): got a LookupParameters, which is a table; wanted an expression of one element");
  return nullptr;
}

PyObject* l_str(PyObject* self) { return name_text(self, "LookupParameter"); }

// ------------------------------------------------------------------------------------- lookups

// Whether the row exists is checked when it is computed.
PyObject* lookup_row(PyObject* table, uint32_t row, bool update) {
  const NodeId id = engine().graph.lookup(storage_in(table), {&row, 1, false}, update);
  engine().recorded(id);
  return make_expression(id, &LookupType);
}

PyObject* lookup_rows(PyObject* table, PyObject* indices, bool update, const char* op) {
  const std::vector<uint32_t> rows = as_uints(indices, op, "indices");
  if (rows.empty()) throw ValueError(text(op, "(): got no indices; wanted at least one"));
  const NodeId id = engine().graph.lookup(storage_in(table),
                                          {rows.data(), static_cast<uint32_t>(rows.size()), true}, update);
  engine().recorded(id);
  return make_expression(id, &LookupBatchType);
}

PyObject* l_getitem(PyObject* self, PyObject* key) {
  return guarded(
      [&] { return lookup_row(self, as_uint(key, "LookupParameters.__getitem__", "the index"), true); });
}

Py_ssize_t l_len(PyObject* self) {
  try {
    return storage_of(self).rows;
  } catch (...) {
    set_error();
    return -1;
  }
}

// Only iteration comes here; it ends at the IndexError.
PyObject* l_item(PyObject* self, Py_ssize_t i) {
  return guarded([&]() -> PyObject* {
    const Py_ssize_t n = storage_of(self).rows;
    if (i < 0 || i >= n) throw IndexError(text("LookupParameters[]: got index ", i, " of ", n, " rows"));
    return lookup_row(self, static_cast<uint32_t>(i), true);
  });
}

constexpr FastMethod l_batch = method<"batch", 1, "i">(
    [](PyObject* self, const auto& a) { return lookup_rows(self, a[0], true, "batch"); });

PyObject* as_table(PyObject* object, const char* op) {
  if (PyObject_TypeCheck(object, &LookupParametersType)) return object;
  PyErr_Format(PyExc_TypeError, "%s(): expected LookupParameters for p, got %s", op, type_name(object));
  throw PythonError();
}

constexpr FastMethod lookup = method<"lookup", 1, "p", "index", "update">([](const auto& a) {
  PyObject* table = as_table(a[0], "lookup");
  return lookup_row(table, a[1] ? as_uint(a[1], "lookup", "index") : 0, a.truth(2, true));
});

constexpr FastMethod lookup_batch = method<"lookup_batch", 2, "p", "indices", "update">([](const auto& a) {
  return lookup_rows(as_table(a[0], "lookup_batch"), a[1], a.truth(2, true), "lookup_batch");
});

// ------------------------------------------------------------------ parameter(), const_parameter()

PyObject* constant_of(PyObject* object);

// update: until DyNet 2.0.1, for one parameter.
PyObject* old_parameter(PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"p", "update"};
  return guarded([&] {
    const auto a = parse("parameter", names, 1, args, n, kwnames);
    deprecated("parameter(update=)", "use the parameter as it is, or const_parameter() for update=False");
    if (!a.truth(1, true)) return constant_of(a[0]);
    Py_INCREF(a[0]);
    return a[0];
  });
}

PyObject* parameter(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static bool warned = false;
  if (!warned) {
    warned = true;
    if (!guarded([] {
          deprecated("parameter", "use the parameter as it is: it enters the graph by itself");
          return Py_None;
        }))
      return nullptr;
  }
  if (kwnames && PyTuple_GET_SIZE(kwnames)) return old_parameter(args, n, kwnames);
  if (n == 1) {
    Py_INCREF(args[0]);
    return args[0];
  }
  PyObject* all = PyTuple_New(n);
  if (!all) return nullptr;
  for (Py_ssize_t i = 0; i < n; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(all, i, args[i]);
  }
  return all;
}

PyObject* constant_of(PyObject* object) {
  if (is_parameters(object)) return node_expression(object, kStopped);
  NodeId id;
  if (!to_node(object, "const_parameter", &id)) throw PythonError();
  id = engine().graph.unary(op_id<NoBackprop>, id);
  engine().recorded(id);
  return make_expression(id);
}

PyObject* const_parameter(PyObject*, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  return guarded([&]() -> PyObject* {
    if (kwnames && PyTuple_GET_SIZE(kwnames))
      throw TypeError("const_parameter(): takes no keyword arguments");
    if (n == 1) return constant_of(args[0]);
    pybind11::list all;
    for (Py_ssize_t i = 0; i < n; ++i)
      all.append(pybind11::reinterpret_steal<pybind11::object>(constant_of(args[i])));
    return all.release().ptr();
  });
}

// --------------------------------------------------------------------------------------- types

PyMethodDef parameters_methods[] = {plain_method("shape", p_shape),
                                    plain_method("as_array", p_as_array),
                                    plain_method("grad_as_array", p_grad_as_array),
                                    fast_method("set_value", p_set_value, "set_value(arr)"),
                                    fast_method("clip_inplace", p_clip_inplace, "clip_inplace(left, right)"),
                                    plain_method("zero", p_zero),
                                    fast_method("scale", scale, "scale(s)"),
                                    fast_method("scale_gradient", scale_gradient, "scale_gradient(s)"),
                                    plain_method("has_gradient", has_gradient),
                                    fast_method("set_gradient", p_set_gradient, "set_gradient(arr)"),
                                    plain_method("is_updated", is_updated),
                                    fast_method("set_updated", set_updated, "set_updated(b)"),
                                    plain_method("name", get_name),
                                    fast_method("expr", p_expr, "expr(update=False)"),
                                    {nullptr, nullptr, 0, nullptr}};

PyMethodDef lookup_methods[] = {
    plain_method("shape", l_shape),
    plain_method("as_array", l_as_array),
    plain_method("grad_as_array", l_grad_as_array),
    fast_method("row_as_array", l_row_as_array, "row_as_array(row)"),
    fast_method("rows_as_array", l_rows_as_array, "rows_as_array(rows)"),
    fast_method("row_grad_as_array", l_row_grad_as_array, "row_grad_as_array(row)"),
    fast_method("rows_grad_as_array", l_rows_grad_as_array, "rows_grad_as_array(rows)"),
    fast_method("init_row", l_init_row, "init_row(i, row)"),
    fast_method("init_from_array", l_init_from_array, "init_from_array(arr)"),
    plain_method("zero", l_zero),
    fast_method("scale", scale, "scale(s)"),
    fast_method("scale_gradient", scale_gradient, "scale_gradient(s)"),
    plain_method("has_gradient", has_gradient),
    fast_method("set_gradient", l_set_gradient, "set_gradient(arr)"),
    fast_method("set_row_gradients", l_set_row_gradients, "set_row_gradients(rows, arr)"),
    plain_method("touched_rows", l_touched_rows),
    plain_method("is_updated", is_updated),
    fast_method("set_updated", set_updated, "set_updated(b)"),
    plain_method("name", get_name),
    fast_method("batch", l_batch, "batch(i)"),
    fast_method("expr", l_expr, "expr(update=True)"),
    {"scalar_value", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(l_scalar_value)),
     METH_VARARGS | METH_KEYWORDS, "scalar_value(recalculate=False)"},
    {nullptr, nullptr, 0, nullptr}};

PyMappingMethods lookup_mapping = {l_len, l_getitem, nullptr};
PySequenceMethods lookup_sequence{};

const ApiFunction parameter_functions[] = {
    {"lookup(p, index=0, update=True)", lookup},
    {"lookup_batch(p, indices, update=True)", lookup_batch},
    {"parameter(*args, update=True)", parameter},
    {"const_parameter(*args)", const_parameter},
};

PyObject* make_empty(PyTypeObject* type, PyObject*, PyObject*) { return empty_expression(type); }

void dealloc(PyObject* self) {
  delete reinterpret_cast<PyParameters*>(self)->storage;
  Py_TYPE(self)->tp_free(self);
}

}  // namespace

PyTypeObject ParametersType =
    static_type({"_dynet.Parameters", "Parameters(): trainable values; an expression in every graph.",
                 sizeof(PyParameters), dealloc, parameters_methods, make_empty, &ExpressionType});
PyTypeObject LookupParametersType =
    static_type({"_dynet.LookupParameters", "LookupParameters(): a table of trainable rows.",
                 sizeof(PyParameters), dealloc, lookup_methods, make_empty, &ExpressionType});

PyObject* make_parameters(const std::shared_ptr<Storage>& storage) {
  PyTypeObject* type = storage->is_lookup() ? &LookupParametersType : &ParametersType;
  auto* self = reinterpret_cast<PyParameters*>(PyType_GenericAlloc(type, 0));
  if (!self) throw pybind11::error_already_set();
  self->base.id = kNone;
  self->storage = new (std::nothrow) std::shared_ptr<Storage>(storage);
  if (self->storage) return reinterpret_cast<PyObject*>(self);
  Py_DECREF(self);
  PyErr_NoMemory();
  throw pybind11::error_already_set();
}

bool is_lookup(PyObject* function) { return method_of_function(function) == lookup; }

void add_parameter_types(PyObject* module) {
  ParametersType.tp_str = p_str;
  add_type(module, ParametersType);
  lookup_sequence.sq_length = l_len;
  lookup_sequence.sq_item = l_item;
  LookupParametersType.tp_str = l_str;
  LookupParametersType.tp_as_mapping = &lookup_mapping;
  LookupParametersType.tp_as_sequence = &lookup_sequence;
  LookupParametersType.tp_iter = PySeqIter_New;
  add_type(module, LookupParametersType);
  add_api_functions(module, parameter_functions);
}

}  // namespace dyc::py
