// ParameterCollection.
#include "bindings/collection_caster.h"

#include <limits>
#include <new>

#include "base/error.h"
#include "bindings/arguments.h"
#include "bindings/float_arrays.h"
#include "bindings/signatures.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

struct PyCollection {
  PyObject_HEAD std::shared_ptr<Collection> collection;
};

Collection& collection_of(PyObject* self) {
  wait_for_update();
  return *reinterpret_cast<PyCollection*>(self)->collection;
}

PyObject* allocate(PyTypeObject* type, std::shared_ptr<Collection> collection) {
  auto* self = reinterpret_cast<PyCollection*>(type->tp_alloc(type, 0));
  if (!self) throw PythonError();
  new (&self->collection) std::shared_ptr<Collection>(std::move(collection));
  return reinterpret_cast<PyObject*>(self);
}

// The root is made here, so that subclasses need not call __init__.
PyObject* new_root(PyTypeObject* type, PyObject*, PyObject*) {
  return guarded([&] { return allocate(type, Collection::make_root()); });
}

int init(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"parent", nullptr};
  PyObject* parent = Py_None;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:ParameterCollection", const_cast<char**>(names),
                                   &parent))
    return -1;
  if (parent == Py_None || is_collection(parent)) return 0;
  PyErr_Format(PyExc_TypeError, "ParameterCollection(): expected a ParameterCollection for parent, got %s",
               type_name(parent));
  return -1;
}

void dealloc(PyObject* self) {
  reinterpret_cast<PyCollection*>(self)->collection.~shared_ptr();
  Py_TYPE(self)->tp_free(self);
}

Dim dim_argument(PyObject* object, const char* op) {
  const bool number = PyIndex_Check(object) || PyFloat_Check(object);
  if (!number && !PyTuple_Check(object) && !PyList_Check(object)) {
    PyErr_Format(PyExc_AssertionError, "%s(): expected an int or a tuple of ints for dim, got %s", op,
                 type_name(object));
    throw PythonError();
  }
  return as_dim(object, op);
}

Dim array_dim(const pb::array& array, pb::ssize_t first, const char* op) {
  Dim dim;
  if (array.ndim() - first > kMaxDims)
    throw ValueError(text(op, "(): expected at most ", kMaxDims, " dimensions, got ", array.ndim() - first));
  for (pb::ssize_t i = first; i < array.ndim(); ++i) {
    if (array.shape(i) > std::numeric_limits<int32_t>::max())
      throw ValueError(text(op, "(): expected sizes below 2**31, got ", array.shape(i)));
    dim.d[dim.nd++] = static_cast<uint32_t>(array.shape(i));
  }
  return dim;
}

PyObject* add_array(Collection& c, PyObject* object, const std::string& name, const char* op) {
  const FloatArray array = float_array(object, op, "array");
  const ArrayInitialiser values(std::vector<float>(array.data(), array.data() + array.size()));
  return make_parameters(c.add_parameters(array_dim(array, 0, op), values, name));
}

// Row i is array[i], its own axes in order.
PyObject* add_lookup_array(Collection& c, PyObject* object, const std::string& name, const char* op) {
  const FloatArray array = float_array(object, op, "array");
  if (array.ndim() < 1) throw ValueError(text(op, "(): expected an array of rows, got a number"));
  const Dim dim = array_dim(array, 1, op);
  const Dim count = array_dim(array, 0, op);
  const size_t rows = count.d[0], width = dim.batch_size();
  std::vector<float> values(rows * width);
  for (size_t j = 0; j < width; ++j)
    for (size_t i = 0; i < rows; ++i) values[i * width + j] = array.data()[i + j * rows];
  const ArrayInitialiser init(std::move(values), true);
  return make_parameters(c.add_lookup_parameters(static_cast<uint32_t>(rows), dim, init, name));
}

template <Text op, class F>
constexpr FastMethod adder(F f) {
  return method<op, 1, "dim", "init", "name", "device", "scale", "mean", "std">(f);
}

constexpr FastMethod add_parameters = adder<"add_parameters">([](PyObject* self, const auto& a) {
  const std::string name = a.string(2);
  check_device(a.string(3));
  Collection& c = collection_of(self);
  if (a.has(1) && pb::isinstance<pb::array>(a[1])) return add_array(c, a[1], name, a.op());
  const Dim dim = dim_argument(a[0], a.op());
  const uint32_t last = dim.nd ? dim.d[dim.nd - 1] : 1;
  const InitialiserPtr init = initialiser_of(a[1], {a[4], a[5], a[6]}, last, a.op());
  return make_parameters(c.add_parameters(dim, *init, name));
});

constexpr FastMethod add_lookup_parameters =
    adder<"add_lookup_parameters">([](PyObject* self, const auto& a) {
      const std::string name = a.string(2);
      check_device(a.string(3));
      Collection& c = collection_of(self);
      if (a.has(1) && pb::isinstance<pb::array>(a[1])) return add_lookup_array(c, a[1], name, a.op());
      const Dim all = dim_argument(a[0], a.op());
      if (all.nd == 0)
        throw ValueError("add_lookup_parameters(): expected at least the number of rows, got dim ()");
      Dim row;
      for (uint32_t i = 1; i < all.nd; ++i) row.d[row.nd++] = all.d[i];
      if (!PyTuple_Check(a[0]) && !PyList_Check(a[0])) row = Dim{1};  // n stands for (n, 1)
      const uint32_t last = row.nd ? row.d[row.nd - 1] : 1;
      const InitialiserPtr init = initialiser_of(a[1], {a[4], a[5], a[6]}, last, a.op());
      return make_parameters(c.add_lookup_parameters(all.d[0], row, *init, name));
    });

constexpr FastMethod parameters_from_numpy =
    method<"parameters_from_numpy", 1, "array", "name", "device">([](PyObject* self, const auto& a) {
      check_device(a.string(2));
      return add_array(collection_of(self), a[0], a.string(1), a.op());
    });

constexpr FastMethod lookup_parameters_from_numpy =
    method<"lookup_parameters_from_numpy", 1, "array", "name", "device">([](PyObject* self, const auto& a) {
      check_device(a.string(2));
      return add_lookup_array(collection_of(self), a[0], a.string(1), a.op());
    });

constexpr FastMethod add_subcollection =
    method<"add_subcollection", 0, "name">([](PyObject* self, const auto& a) {
      return make_collection(collection_of(self).add_subcollection(a.string(0)));
    });

PyObject* list_of(const std::vector<StoragePtr>& storages) {
  return guarded([&] {
    pb::list all;
    for (const StoragePtr& s : storages) all.append(pb::reinterpret_steal<pb::object>(make_parameters(s)));
    return all.release().ptr();
  });
}

PyObject* parameters_list(PyObject* self, PyObject*) {
  return guarded([&] { return list_of(collection_of(self).parameters()); });
}
PyObject* lookup_parameters_list(PyObject* self, PyObject*) {
  return guarded([&] { return list_of(collection_of(self).lookups()); });
}

PyObject* parameter_count(PyObject* self, PyObject*) {
  return guarded([&] { return PyLong_FromSize_t(collection_of(self).parameter_count()); });
}
PyObject* get_name(PyObject* self, PyObject*) {
  return guarded([&] { return to_python(collection_of(self).name()); });
}

PyObject* get_weight_decay(PyObject* self, PyObject*) {
  return guarded([&] { return PyFloat_FromDouble(collection_of(self).weight_decay()); });
}

constexpr FastMethod set_weight_decay =
    method<"set_weight_decay", 1, "lam">([](PyObject* self, const auto& a) {
      collection_of(self).set_weight_decay(a.number(0, 0.f));
      return none();
    });

constexpr FastMethod set_weight_decay_lambda =
    method<"set_weight_decay_lambda", 1, "lam">([](PyObject* self, const auto& a) -> PyObject* {
      if (!PyFloat_Check(a[0])) {
        PyErr_Format(PyExc_AssertionError, "set_weight_decay_lambda(): expected a float, got %s",
                     type_name(a[0]));
        return nullptr;
      }
      collection_of(self).set_weight_decay(a.number(0, 0.f));
      return none();
    });

PyMethodDef methods[] = {
    fast_method("add_parameters", add_parameters,
                "add_parameters(dim, init=None, name='', device='', scale=1.0, mean=0.0, std=1.0)"),
    fast_method("add_lookup_parameters", add_lookup_parameters,
                "add_lookup_parameters(dim, init=None, name='', device='', scale=1.0, mean=0.0, std=1.0)"),
    fast_method("parameters_from_numpy", parameters_from_numpy,
                "parameters_from_numpy(array, name='', device='')"),
    fast_method("lookup_parameters_from_numpy", lookup_parameters_from_numpy,
                "lookup_parameters_from_numpy(array, name='', device='')"),
    fast_method("add_subcollection", add_subcollection, "add_subcollection(name=None)"),
    plain_method("parameters_list", parameters_list),
    plain_method("lookup_parameters_list", lookup_parameters_list),
    plain_method("parameter_count", parameter_count),
    plain_method("name", get_name),
    plain_method("get_weight_decay", get_weight_decay),
    fast_method("set_weight_decay", set_weight_decay, "set_weight_decay(lam)"),
    fast_method("set_weight_decay_lambda", set_weight_decay_lambda, "set_weight_decay_lambda(lam)"),
    {nullptr, nullptr, 0, nullptr}};

void translate(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const PythonError&) {
    set_error();
  } catch (const Error&) {
    set_error();
  }
}

}  // namespace

PyTypeObject ParameterCollectionType =
    static_type({"_dynet.ParameterCollection",
                 "ParameterCollection(parent=None): owns the parameters of a model; collections form a tree.",
                 sizeof(PyCollection), dealloc, methods, new_root});

PyObject* make_collection(const std::shared_ptr<Collection>& collection, PyTypeObject* type) {
  return allocate(type, collection);
}

const std::shared_ptr<Collection>& as_collection(PyObject* object, const char* op, const char* name) {
  if (is_collection(object)) return reinterpret_cast<PyCollection*>(object)->collection;
  PyErr_Format(PyExc_TypeError, "%s(): expected a ParameterCollection for %s, got %s", op, name,
               type_name(object));
  throw PythonError();
}

void add_model(pb::module_& m) {
  pb::register_local_exception_translator(translate);
  ParameterCollectionType.tp_init = init;
  ParameterCollectionType.tp_repr = described;
  add_type(m.ptr(), ParameterCollectionType);
  m.attr("Model") = m.attr("ParameterCollection");
  add_initialisers(m);
  add_trainer_types(m.ptr());
}

}  // namespace dyc::py
