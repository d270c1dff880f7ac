// The builder classes, with DyNet's names, arguments and defaults.
#include "bindings/builders.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "bindings/collection_caster.h"
#include "bindings/compute.h"

namespace dyc::py {

namespace {

using pybind11::arg;
using Object = pybind11::object;

// One C++ type per class, so that pybind11 can tell them apart.
template <class Core>
struct Builder : PyBuilder {
  Core& cell() { return static_cast<Core&>(*core); }
  pybind11::object spec;  // as given to the constructor
};
struct Fast : CoupledLstm {
  using CoupledLstm::CoupledLstm;
};

BuilderSize size_of(const Object& layers, const Object& input, const Object& hidden, const char* op) {
  return {as_uint(layers.ptr(), op, "layers"), as_uint(input.ptr(), op, "input_dim"),
          as_uint(hidden.ptr(), op, "hidden_dim")};
}

// None is allowed for a builder without layers.
std::shared_ptr<Collection> collection_of(const Object& model, const char* op) {
  wait_for_update();
  return model.is_none() ? nullptr : as_collection(model.ptr(), op, "model");
}

template <class Core, class... Extra>
std::unique_ptr<Builder<Core>> make(const char* name, const Object& layers, const Object& input,
                                    const Object& hidden, const Object& model, const Extra&... extra) {
  auto b = std::make_unique<Builder<Core>>();
  const BuilderSize size = size_of(layers, input, hidden, name);
  b->core = std::make_unique<Core>(size, collection_of(model, name), extra...);
  b->name = name;
  b->spec = pybind11::make_tuple(size.layers, size.input, size.hidden);
  return b;
}

// ---------------------------------------------------------------- methods of all builders

// _RNNBuilder itself has no cells: it is for subclasses with methods of their own.
RnnBuilder& core_of(const PyBuilder& b) {
  if (!b.core)
    throw RuntimeError(
        "_RNNBuilder: expected a builder with cells, got the base of all; use LSTMBuilder, for one");
  return *b.core;
}

Object initial_state(const Object& self, const Object& vecs, const Object& update) {
  auto* b = self.cast<PyBuilder*>();
  const int flag = PyObject_IsTrue(update.ptr());
  if (flag < 0) throw PythonError();
  core_of(*b);
  auto state =
      pybind11::reinterpret_steal<Object>(reinterpret_cast<PyObject*>(start_state(self.ptr(), b, flag != 0)));
  return vecs.is_none() ? state : state.attr("set_s")(vecs);
}

Object initial_state_from_raw_vectors(const Object& self, const Object& vecs, const Object& update) {
  const Object input_tensor = pybind11::module_::import("dynet_compat.api.functions").attr("inputTensor");
  pybind11::list es;
  for (const pybind11::handle v : vecs) es.append(input_tensor(v));
  return initial_state(self, es, update);
}

// Of each layer: make(that of the core).
template <class Of, class Make>
pybind11::list by_layer(const PyBuilder& b, Of&& of, Make&& make) {
  pybind11::list layers;
  for (uint32_t l = 0; l < core_of(b).layers(); ++l) {
    pybind11::list layer;
    for (const auto& each : of(l)) layer.append(pybind11::reinterpret_steal<Object>(make(each)));
    layers.append(layer);
  }
  return layers;
}

pybind11::list get_parameters(const PyBuilder& b) {
  return by_layer(b, [&](uint32_t l) { return b.core->layer_parameters(l); }, make_parameters);
}

pybind11::list get_parameter_expressions(const PyBuilder& b) {
  const auto of = [&](uint32_t l) { return b.core->layer_expressions(engine(), l); };
  return by_layer(b, of, [](NodeId id) { return make_expression(id); });
}

std::shared_ptr<Collection> param_collection(const PyBuilder& b) {
  if (!core_of(b).collection())
    throw ValueError("param_collection(): expected a builder that was given a model");
  return b.core->collection();
}

// from_spec(spec, model): cls(*spec[:3], model, *spec[3:]). DyNet's builders with more arguments unpack the
// spec themselves, which is a ValueError where it is too short.
Object from_spec(const Object& cls, const pybind11::tuple& spec, const Object& model) {
  if (spec.size() < 3) {
    const std::string message =
        text("from_spec(): expected (layers, input_dim, hidden_dim, ...), got ", spec.size(), " values");
    if (pybind11::hasattr(cls, "_unpacks_spec")) throw ValueError(message);
    throw TypeError(message);
  }
  pybind11::list args;
  for (size_t i = 0; i < 3; ++i) args.append(spec[i]);
  args.append(model);
  for (size_t i = 3; i < spec.size(); ++i) args.append(spec[i]);
  return cls(*args);
}

void set_dropouts(PyBuilder& b, const Object& d, const Object& d_h) {
  b.core->set_dropouts(as_float(d.ptr(), "set_dropouts", "d"), as_float(d_h.ptr(), "set_dropouts", "d_h"));
}

// ---------------------------------------------------------------- classes

// A call of a builder class, while its __init__ runs. With instances of batch_map such calls do not end in
// reverse order, so they are found by their object. Guarded by the interpreter lock.
struct ClassCall {
  PyObject *self, *args, *kwargs;
};
std::vector<ClassCall> class_calls;

auto class_call_of(PyObject* self) {
  return std::find_if(class_calls.begin(), class_calls.end(), [&](const auto& c) { return c.self == self; });
}

bool is_constructed(const Object& self) {
  return reinterpret_cast<pybind11::detail::instance*>(self.ptr())
      ->get_value_and_holder()
      .holder_constructed();
}

// DyNet makes builders before any __init__ runs, so a Python subclass need not call that of its base. If it
// has not, the __init__ of the base is called afterwards, with the arguments of the call.
PyObject* make_object(PyObject* type, PyObject* args, PyObject* kwargs) {
  auto* given = reinterpret_cast<PyTypeObject*>(type);
  auto self = pybind11::reinterpret_steal<Object>(given->tp_new(given, args, kwargs));
  if (!self || !PyObject_TypeCheck(self.ptr(), given)) return self.release().ptr();
  class_calls.push_back({self.ptr(), args, kwargs});
  const int failed = Py_TYPE(self.ptr())->tp_init(self.ptr(), args, kwargs);
  class_calls.erase(class_call_of(self.ptr()));
  if (failed) return nullptr;
  const auto& infos = pybind11::detail::all_type_info(Py_TYPE(self.ptr()));
  if (infos.size() != 1 || is_constructed(self)) return self.release().ptr();
  auto* base = reinterpret_cast<PyObject*>(infos[0]->type);
  const auto init = pybind11::reinterpret_steal<Object>(PyObject_GetAttrString(base, "__init__"));
  const auto bound = pybind11::reinterpret_steal<Object>(init ? PyTuple_Pack(1, self.ptr()) : nullptr);
  const bool plain = *infos[0]->cpptype == typeid(PyBuilder);  // _RNNBuilder, which takes none
  const auto all =
      plain ? bound
            : pybind11::reinterpret_steal<Object>(bound ? PySequence_Concat(bound.ptr(), args) : nullptr);
  const auto done = pybind11::reinterpret_steal<Object>(
      all ? PyObject_Call(init.ptr(), all.ptr(), plain ? nullptr : kwargs) : nullptr);
  return done ? self.release().ptr() : nullptr;
}

// Methods called before __init__ (in that of a subclass, or after __new__ alone) find no builder.
PyObject* attribute(PyObject* self, PyObject* name) {
  auto* instance = reinterpret_cast<pybind11::detail::instance*>(self);
  if (instance->get_value_and_holder().holder_constructed()) [[likely]]
    return PyObject_GenericGetAttr(self, name);
  const auto& infos = pybind11::detail::all_type_info(Py_TYPE(self));
  const char* text = PyUnicode_AsUTF8(name);
  if (infos.size() == 1 && text && std::strncmp(text, "__", 2) != 0 &&
      PyObject_HasAttr(reinterpret_cast<PyObject*>(infos[0]->type), name)) {
    PyErr_Format(PyExc_RuntimeError,
                 "%s.%s: expected super().__init__(layers, input_dim, hidden_dim, model, ...) "
                 "to be called before",
                 Py_TYPE(self)->tp_name, text);
    return nullptr;
  }
  return PyObject_GenericGetAttr(self, name);
}

// A subclass that defines no attribute look-up of its own gets that of `object`.
int make_subclass(PyObject* type, PyObject* args, PyObject* kwargs) {
  if (PyType_Type.tp_init(type, args, kwargs) < 0) return -1;
  auto* made = reinterpret_cast<PyTypeObject*>(type);
  if (pybind11::detail::all_type_info(made).size() > 1) {
    PyErr_Format(PyExc_TypeError, "%s: expected one of DyNet's classes among its bases, got several",
                 made->tp_name);
    return -1;
  }
  if (made->tp_getattro == PyObject_GenericGetAttr) made->tp_getattro = attribute;
  return 0;
}

// The type of the builder classes.
pybind11::metaclass builder_metaclass() {
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(make_object)},
                         {Py_tp_init, reinterpret_cast<void*>(make_subclass)},
                         {0, nullptr}};
  PyType_Spec spec = {"_dynet._BuilderType", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  auto* parent = reinterpret_cast<PyObject*>(pybind11::detail::get_internals().default_metaclass);
  const auto bases = pybind11::reinterpret_steal<Object>(PyTuple_Pack(1, parent));
  static PyObject* const made = PyType_FromSpecWithBases(&spec, bases.ptr());
  if (!made) throw PythonError();
  return pybind11::metaclass(made);
}

template <class Core>
using Class = pybind11::class_<Builder<Core>, PyBuilder>;

template <class Core>
Class<Core> declare(pybind11::module_& m, const char* name) {
  Class<Core> c(m, name, builder_metaclass());
  c.attr("__module__") = "_dynet";
  return c;
}

template <class Core>
Class<Core>& with_spec(Class<Core>& c) {
  c.def_property_readonly("spec", [](const Builder<Core>& b) { return b.spec; });
  pybind11::cpp_function f(&from_spec, pybind11::name("from_spec"), arg("cls"), arg("spec"), arg("model"));
  c.attr("from_spec") = pybind11::reinterpret_steal<Object>(PyClassMethod_New(f.ptr()));
  return c;
}

template <class Core>
Class<Core>& with_masks(Class<Core>& c, const char* second) {
  c.def(
      "set_dropouts", [](Builder<Core>& b, const Object& d, const Object& d_h) { set_dropouts(b, d, d_h); },
      arg("d"), arg(second));
  c.def(
      "set_dropout_masks",
      [](Builder<Core>& b, const Object& n) {
        b.core->set_dropout_masks(engine(), as_uint(n.ptr(), "set_dropout_masks", "batch_size"));
      },
      arg("batch_size") = 1);
  return c;
}

template <class Core, class... Fixed>
Class<Core>& with_sizes(Class<Core>& c, const char* name, const Fixed&... fixed) {
  c.def(pybind11::init(
            [=](const Object& layers, const Object& input, const Object& hidden, const Object& model) {
              return make<Core>(name, layers, input, hidden, model, fixed...);
            }),
        arg("layers"), arg("input_dim"), arg("hidden_dim"), arg("model"));
  return c;
}

template <class Core>
Class<Core>& with_gate_options(Class<Core>& c, const char* name) {
  c.def(pybind11::init([=](const Object& layers, const Object& input, const Object& hidden,
                           const Object& model, const Object& ln_lstm, const Object& forget_bias) {
          const int ln = PyObject_IsTrue(ln_lstm.ptr());
          if (ln < 0) throw PythonError();
          auto b = make<Core>(name, layers, input, hidden, model, ln != 0,
                              as_float(forget_bias.ptr(), name, "forget_bias"));
          b->spec = b->spec + pybind11::make_tuple(ln_lstm, forget_bias);
          return b;
        }),
        arg("layers"), arg("input_dim"), arg("hidden_dim"), arg("model"), arg("ln_lstm") = false,
        arg("forget_bias") = 1.0);
  c.attr("_unpacks_spec") = true;
  return c;
}

// Replaces __init__ of a class, for two reasons: called without arguments, as DyNet allows in a subclass, it
// uses the arguments of the call of the class; and pybind11's own ends the process if it is called for a
// derived object.
void wrap_init(Object c, bool takes_arguments) {
  const Object real = c.attr("__init__");
  const std::string doc = pybind11::str(real.attr("__doc__"));
  const auto init = [real, c, takes_arguments](const Object& self, const pybind11::args& args,
                                               const pybind11::kwargs& kwargs) {
    auto* type = reinterpret_cast<PyTypeObject*>(c.ptr());
    const bool fits = PyObject_TypeCheck(self.ptr(), type);
    if (fits && pybind11::detail::all_type_info(Py_TYPE(self.ptr())).front()->type != type) return;
    const bool bare = args.empty() && kwargs.empty() && takes_arguments;
    const auto call = class_call_of(self.ptr());
    if (!bare || call == class_calls.end() || !fits || is_constructed(self)) {
      real(self, *args, **kwargs);  // TypeError if it does not fit
      return;
    }
    const auto outer = pybind11::reinterpret_borrow<pybind11::args>(call->args);
    if (!call->kwargs) real(self, *outer);
    else real(self, *outer, **pybind11::reinterpret_borrow<pybind11::kwargs>(call->kwargs));
  };
  pybind11::options options;
  options.disable_function_signatures();
  replace_init(c, pybind11::cpp_function(init, pybind11::name("init"), pybind11::is_method(c), doc.c_str()));
}

PyObject* own_initial_state;  // the function that the class has at first

// Functions that the classes have at first, by which dropout rates are set.
struct Setter {
  PyTypeObject* type;
  const char* name;
  PyObject* function;
};
std::vector<Setter>& own_setters() {
  static auto* const all = new std::vector<Setter>;
  return *all;
}

// A method that is a function of the object's class, borrowed from that; null: it is something else. What a
// script has put into the class may run when it is read, so only what pybind11 makes is.
PyObject* function_of_method(PyObject* object, PyObject* name) {
  if (Py_TYPE(object)->tp_getattro != attribute) return nullptr;
  PyObject* of_class = _PyType_Lookup(Py_TYPE(object), name);
  if (!of_class || !PyInstanceMethod_Check(of_class)) return nullptr;
  const auto found = pybind11::reinterpret_steal<Object>(PyObject_GetAttr(object, name));
  if (!found) PyErr_Clear();
  const bool bound = found && PyMethod_Check(found.ptr()) && PyMethod_GET_SELF(found.ptr()) == object;
  return bound ? PyMethod_GET_FUNCTION(found.ptr()) : nullptr;
}

}  // namespace

bool starts_plainly(PyObject* object) {
  static PyObject* const name = PyUnicode_InternFromString("initial_state");
  return function_of_method(object, name) == own_initial_state && builder_of(object)->core;
}

bool sets_dropout_plainly(PyObject* object, PyObject* name) {
  PyObject* function = function_of_method(object, name);
  const std::vector<Setter>& own = own_setters();
  const bool found = function && std::any_of(own.begin(), own.end(), [&](const Setter& s) {
                       return s.function == function && PyUnicode_CompareWithASCIIString(name, s.name) == 0 &&
                              PyObject_TypeCheck(object, s.type);
                     });
  return found && builder_of(object)->core;
}

namespace {

void add_base(pybind11::module_& m) {
  pybind11::class_<PyBuilder> c(m, "_RNNBuilder", builder_metaclass());
  c.attr("__module__") = "_dynet";
  c.def(pybind11::init<>());
  wrap_init(c, false);
  reinterpret_cast<PyTypeObject*>(c.ptr())->tp_getattro = attribute;  // and of all derived from it
  c.def("initial_state", &initial_state, arg("vecs") = pybind11::none(), arg("update") = true);
  const Object method = c.attr("initial_state");
  own_initial_state = PyInstanceMethod_GET_FUNCTION(method.ptr());
  Py_INCREF(own_initial_state);
  c.def("initial_state_from_raw_vectors", &initial_state_from_raw_vectors, arg("vecs"), arg("update") = true);
  c.def("param_collection", &param_collection);
  c.def(
      "set_dropout",
      [](PyBuilder& b, const Object& f) { core_of(b).set_dropout(as_float(f.ptr(), "set_dropout", "f")); },
      arg("f"));
  c.def("get_parameters", &get_parameters);
  c.def("get_parameter_expressions", &get_parameter_expressions);
  c.def("whoami", [](const PyBuilder& b) { return b.name; });
  c.def("__repr__",
        [](const Object& self) { return pybind11::reinterpret_steal<Object>(described(self.ptr())); });
  c.def("disable_dropout", [](PyBuilder& b) { core_of(b).set_dropout(0.f); });
}

void add_lstms(pybind11::module_& m) {
  auto vanilla = declare<VanillaLstm>(m, "VanillaLSTMBuilder");
  with_masks(with_spec(with_gate_options(vanilla, "VanillaLSTMBuilder")), "d_r");
  m.attr("LSTMBuilder") = vanilla;
  auto sparse = declare<SparseLstm>(m, "SparseLSTMBuilder");
  with_masks(with_spec(with_gate_options(sparse, "SparseLSTMBuilder")), "d_r");
  sparse.def(
      "set_sparsity",
      [](Builder<SparseLstm>& b, const Object& sparsity) {
        const float rate = as_float(sparsity.ptr(), "set_sparsity", "sparsity");
        const SparseLstm::Counts n = b.cell().set_sparsity(rate);
        pybind11::print(text("Setting sparsity level at ", rate, "%"));
        pybind11::print(text("\tTotal number of parameters is ", n.all));
        pybind11::print(text("\tDesired number of parameters is ", n.kept));
      },
      arg("sparsity"));
  auto compact = declare<CompactLstm>(m, "CompactVanillaLSTMBuilder");
  with_masks(with_spec(with_sizes(compact, "CompactVanillaLSTMBuilder")), "d_r");
  compact.attr("_unpacks_spec") = true;
  compact.def(
      "set_weightnoise",
      [](Builder<CompactLstm>& b, const Object& std) {
        b.cell().set_weight_noise(as_float(std.ptr(), "set_weightnoise", "std"));
      },
      arg("std"));
  auto coupled = declare<CoupledLstm>(m, "CoupledLSTMBuilder");
  with_spec(with_sizes(coupled, "CoupledLSTMBuilder", true));
  auto fast = declare<Fast>(m, "FastLSTMBuilder");
  with_sizes(fast, "FastLSTMBuilder", false);
}

}  // namespace

PyBuilder* builder_of(PyObject* object) {
  if (Py_TYPE(object)->tp_getattro == attribute) {  // pybind11 would look its type up in two tables
    const auto held = reinterpret_cast<pybind11::detail::instance*>(object)->get_value_and_holder();
    if (held.holder_constructed()) return static_cast<PyBuilder*>(held.value_ptr());
  }
  return pybind11::isinstance<PyBuilder>(object) ? pybind11::cast<PyBuilder*>(pybind11::handle(object))
                                                 : nullptr;
}

void add_builders(pybind11::module_& m) {
  add_state_type(m.ptr());
  add_base(m);
  auto simple = declare<SimpleRnn>(m, "SimpleRNNBuilder");
  with_masks(with_spec(with_sizes(simple, "SimpleRNNBuilder")), "d_h");
  auto gru = declare<Gru>(m, "GRUBuilder");
  with_spec(with_sizes(gru, "GRUBuilder"));
  add_lstms(m);
  for (const char* name : {"SimpleRNNBuilder", "GRUBuilder", "VanillaLSTMBuilder", "SparseLSTMBuilder",
                           "CompactVanillaLSTMBuilder", "CoupledLSTMBuilder", "FastLSTMBuilder"}) {
    wrap_init(m.attr(name), true);
    for (const char* setter : {"set_dropout", "set_dropouts", "disable_dropout"})
      if (pybind11::hasattr(m.attr(name), setter)) {
        PyObject* function = PyInstanceMethod_GET_FUNCTION(Object(m.attr(name).attr(setter)).ptr());
        Py_INCREF(function);
        own_setters().push_back({reinterpret_cast<PyTypeObject*>(m.attr(name).ptr()), setter, function});
      }
  }
}

}  // namespace dyc::py
