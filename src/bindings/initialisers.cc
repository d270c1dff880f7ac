// Initialisers as Python classes, and the short forms that add_parameters() takes instead of them.

#include "base/error.h"
#include "bindings/float_arrays.h"
#include "bindings/model.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

std::shared_ptr<ArrayInitialiser> from_array(const pb::object& array) {
  const FloatArray a = float_array(array.ptr(), "NumpyInitializer", "array");
  return std::make_shared<ArrayInitialiser>(std::vector<float>(a.data(), a.data() + a.size()));
}

std::shared_ptr<FromFileInitialiser> from_file(const pb::object& path) {
  const pb::bytes encoded = pb::module_::import("os").attr("fsencode")(path);
  return std::make_shared<FromFileInitialiser>(std::string(encoded));
}

void refuse(const pb::object&, const pb::args&, const pb::kwargs&) {
  PyErr_SetString(
      PyExc_AssertionError,
      "PyInitializer(): is the base of all initialisers; use one of them, such as ConstInitializer(0)");
  throw pb::error_already_set();
}

template <class T>
pb::class_<T, std::shared_ptr<T>, Initialiser> initialiser(pb::module_& m, const char* name) {
  pb::class_<T, std::shared_ptr<T>, Initialiser> c(m, name);
  c.attr("__module__") = "_dynet";
  return c;
}

float number_or(PyObject* object, float otherwise, const char* op, const char* name) {
  return object ? as_float(object, op, name) : otherwise;
}

bool is_number(PyObject* object) {
  if (PyFloat_Check(object) || PyLong_Check(object)) return true;
  // NumPy's scalars: they are numbers but not sequences.
  return PyNumber_Check(object) && !PySequence_Check(object) && !is_expression(object) &&
         !pb::isinstance<pb::array>(object) && !PyType_Check(object);
}

InitialiserPtr named(const std::string& name, const InitNumbers& numbers, uint32_t last, const char* op) {
  if (name == "glorot") return std::make_shared<GlorotInitialiser>();
  if (name == "uniform")
    return std::make_shared<UniformInitialiser>(number_or(numbers.scale, 1.f, op, "scale"));
  if (name == "normal")
    return NormalInitialiser::with_deviation(number_or(numbers.mean, 0.f, op, "mean"),
                                             number_or(numbers.std, 1.f, op, "std"));
  if (name == "he") return NormalInitialiser::he(last);
  if (name == "identity") return std::make_shared<IdentityInitialiser>();
  if (name == "saxe") return std::make_shared<SaxeInitialiser>(number_or(numbers.scale, 1.f, op, "scale"));
  throw ValueError(text(op, "(): got init='", name,
                        "'; wanted 'glorot', 'uniform', 'normal', 'he', 'identity' or 'saxe'"));
}

}  // namespace

InitialiserPtr initialiser_of(PyObject* init, const InitNumbers& numbers, uint32_t last, const char* op) {
  if (!init || init == Py_None) return std::make_shared<GlorotInitialiser>();
  if (PyUnicode_Check(init)) return named(pb::cast<std::string>(pb::handle(init)), numbers, last, op);
  if (pb::isinstance<Initialiser>(init)) return pb::cast<std::shared_ptr<Initialiser>>(pb::handle(init));
  if (is_number(init)) return std::make_shared<ConstInitialiser>(as_float(init, op, "init"));
  throw ValueError(text(op, "(): got init of type ", type_name(init),
                        "; wanted an initialiser, its name, a number or an array"));
}

void replace_init(const pb::object& type, const pb::cpp_function& init) {
  const pb::handle function = pb::detail::get_function(init);
  reinterpret_cast<PyCFunctionObject*>(function.ptr())->m_ml->ml_name = "__init__";
  type.attr("__init__") = init;
}

void add_initialisers(pb::module_& m) {
  pb::class_<Initialiser, std::shared_ptr<Initialiser>> base(m, "PyInitializer");
  base.attr("__module__") = "_dynet";
  base.def("__repr__", &Initialiser::str);
  // No constructor of pybind11's: that ends the process when it is called for an object of a derived class.
  {
    pb::options options;
    options.disable_function_signatures();
    const char* doc = "__init__(self: _dynet.PyInitializer) -> None";
    replace_init(base, pb::cpp_function(&refuse, pb::name("refuse"), pb::is_method(base), doc));
  }
  initialiser<GlorotInitialiser>(m, "GlorotInitializer")
      .def(pb::init<bool, float>(), pb::arg("is_lookup") = false, pb::arg("gain") = 1.f);
  initialiser<UniformInitialiser>(m, "UniformInitializer").def(pb::init<float>(), pb::arg("scale"));
  initialiser<NormalInitialiser>(m, "NormalInitializer")
      .def(pb::init<float, float>(), pb::arg("mean") = 0.f, pb::arg("var") = 1.f);
  initialiser<ConstInitialiser>(m, "ConstInitializer").def(pb::init<float>(), pb::arg("c"));
  initialiser<IdentityInitialiser>(m, "IdentityInitializer").def(pb::init<>());
  initialiser<SaxeInitialiser>(m, "SaxeInitializer").def(pb::init<float>(), pb::arg("scale") = 1.f);
  initialiser<FromFileInitialiser>(m, "FromFileInitializer").def(pb::init(&from_file), pb::arg("fname"));
  initialiser<ArrayInitialiser>(m, "NumpyInitializer").def(pb::init(&from_array), pb::arg("array"));
}

}  // namespace dyc::py
