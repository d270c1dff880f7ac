// Trainer and its subclasses, generated from one table.
#include "model/trainer_file.h"

#include <iostream>
#include <new>

#include "base/error.h"
#include "base/instance.h"
#include "bindings/arguments.h"
#include "bindings/compute.h"
#include "bindings/model.h"
#include "bindings/signatures.h"
#include "bindings/call_site.h"

namespace dyc::py {

namespace {

struct PyTrainer {
  PyObject_HEAD std::unique_ptr<Trainer> trainer;
};

constexpr size_t kMaxNumbers = 5;

// One class. `legacy` are the names that DyNet before 2.1 gave to the same arguments.
struct Kind {
  const char* name;
  const char* doc;
  size_t n;
  const char* names[kMaxNumbers];
  const char* legacy[kMaxNumbers];
  float defaults[kMaxNumbers];
  std::unique_ptr<Trainer> (*make)(std::shared_ptr<Collection>, const float*);
};

template <class T, size_t... I>
std::unique_ptr<Trainer> make_with(std::shared_ptr<Collection> m, const float* v, std::index_sequence<I...>) {
  return std::make_unique<T>(std::move(m), v[I]...);
}
template <class T, size_t N>
std::unique_ptr<Trainer> make(std::shared_ptr<Collection> m, const float* v) {
  return make_with<T>(std::move(m), v, std::make_index_sequence<N>());
}

const Kind kinds[] = {
    {"SimpleSGDTrainer",
     "SimpleSGDTrainer(m, learning_rate=0.1): x -= lr g.",
     1,
     {"learning_rate"},
     {"e0"},
     {0.1f},
     make<SimpleSgdTrainer, 1>},
    {"CyclicalSGDTrainer",
     "CyclicalSGDTrainer(m, learning_rate_min=0.01, learning_rate_max=0.1, step_size=2000, gamma=1.0): SGD "
     "whose "
     "learning rate goes up and down.",
     4,
     {"learning_rate_min", "learning_rate_max", "step_size", "gamma"},
     {"e0_min", "e0_max"},
     {0.01f, 0.1f, 2000.f, 1.f},
     make<CyclicalSgdTrainer, 4>},
    {"MomentumSGDTrainer",
     "MomentumSGDTrainer(m, learning_rate=0.01, mom=0.9): SGD with momentum.",
     2,
     {"learning_rate", "mom"},
     {"e0"},
     {0.01f, 0.9f},
     make<MomentumSgdTrainer, 2>},
    {"AdagradTrainer",
     "AdagradTrainer(m, learning_rate=0.1, eps=1e-20): Duchi et al., 2011.",
     2,
     {"learning_rate", "eps"},
     {"e0"},
     {0.1f, 1e-20f},
     make<AdagradTrainer, 2>},
    {"AdadeltaTrainer",
     "AdadeltaTrainer(m, eps=1e-6, rho=0.95): Zeiler, 2012.",
     2,
     {"eps", "rho"},
     {},
     {1e-6f, 0.95f},
     make<AdadeltaTrainer, 2>},
    {"RMSPropTrainer",
     "RMSPropTrainer(m, learning_rate=0.001, eps=1e-8, rho=0.9): Tieleman and Hinton, 2012.",
     3,
     {"learning_rate", "eps", "rho"},
     {"e0"},
     {0.001f, 1e-8f, 0.9f},
     make<RmsPropTrainer, 3>},
    {"AdamTrainer",
     "AdamTrainer(m, alpha=0.001, beta_1=0.9, beta_2=0.999, eps=1e-8): Kingma and Ba, 2015.",
     4,
     {"alpha", "beta_1", "beta_2", "eps"},
     {"e0"},
     {0.001f, 0.9f, 0.999f, 1e-8f},
     make<AdamTrainer, 4>},
    {"AdamWTrainer",
     "AdamWTrainer(m, alpha=0.001, beta_1=0.9, beta_2=0.999, eps=1e-8, weight_decay=0.01): Adam with "
     "decoupled weight decay. Not in DyNet.\n\n"
     "Each update subtracts alpha * weight_decay * x from the values, beside Adam's step: the decay is not "
     "part "
     "of the gradient, is not clipped, and is apart from set_weight_decay() of the collection. Of "
     "LookupParameters it changes the rows that the update changes: with sparse updates those with a "
     "gradient. Frozen parameters stay as they are.\n\n"
     "Args:\n    m: ParameterCollection.\n    alpha: the learning rate.\n"
     "    beta_1, beta_2, eps: as in AdamTrainer.\n    weight_decay: 0 or more.\n"
     "Raises:\n    ValueError: weight_decay is negative or not finite.\n"
     "Source: Loshchilov and Hutter, Decoupled weight decay regularization, 2019.\n"
     "Example:\n"
     "    >>> pc = dy.ParameterCollection()\n"
     "    >>> p = pc.add_parameters(2, init=1)\n"
     "    >>> trainer = dy.AdamWTrainer(pc, alpha=0.1, weight_decay=0.5)\n"
     "    >>> p[0].backward()\n"
     "    >>> trainer.update()\n"
     "    >>> p.as_array().round(3).tolist()\n"
     "    [0.85, 0.95]",
     5,
     {"alpha", "beta_1", "beta_2", "eps", "weight_decay"},
     {},
     {0.001f, 0.9f, 0.999f, 1e-8f, 0.01f},
     make<AdamWTrainer, 5>},
    {"AmsgradTrainer",
     "AmsgradTrainer(m, alpha=0.001, beta_1=0.9, beta_2=0.999, eps=1e-8): Reddi et al., 2018.",
     4,
     {"alpha", "beta_1", "beta_2", "eps"},
     {},
     {0.001f, 0.9f, 0.999f, 1e-8f},
     make<AmsgradTrainer, 4>},
    {"EGTrainer",
     "EGTrainer(m, learning_rate=0.1, mom=0.9): exponentiated gradient, for parameters that are "
     "distributions.\n\n"
     "v = mom v - lr g; x = x exp(v) / sum(x exp(v)) over the elements of each Parameters and of each row of "
     "each "
     "table. All values must be positive. Kivinen and Warmuth, 1997. Not in DyNet's Python API.\n\n"
     "Raises:\n    ValueError: update() finds a value that is not positive.\n\n"
     "Example:\n"
     "    >>> pc = dy.ParameterCollection()\n"
     "    >>> p = pc.add_parameters(3, init=1 / 3)\n"
     "    >>> trainer = dy.EGTrainer(pc, learning_rate=1.0, mom=0.0)\n"
     "    >>> dy.dot_product(p, dy.inputVector([0, 0, 1])).backward()\n"
     "    >>> trainer.update()\n"
     "    >>> p.as_array().round(3).tolist()\n"
     "    [0.422, 0.422, 0.155]",
     2,
     {"learning_rate", "mom"},
     {"e0"},
     {0.1f, 0.9f},
     make<EgTrainer, 2>},
};
constexpr size_t kKinds = std::size(kinds);

PyTypeObject trainer_type = blank_type();  // the abstract base
PyTypeObject types[kKinds];
std::string full_names[kKinds];  // of the types, which keep a pointer

// The table row of a class or of a Python subclass of it; null for Trainer itself.
const Kind* kind_of(PyTypeObject* type) {
  for (; type; type = type->tp_base)
    for (size_t i = 0; i < kKinds; ++i)
      if (type == &types[i]) return &kinds[i];
  return nullptr;
}

// ---------------------------------------------------------------------------------- construction

// True if `key` is an argument of older versions: it has been stored in *values or *decay.
bool take_legacy(const Kind& kind, const char* key, PyObject* given, PyObject** values, float* decay) {
  if (std::strcmp(key, "edecay") == 0) {
    *decay = as_float(given, kind.name, key);
    deprecated(text(kind.name, "(edecay=)"), "assign trainer.learning_rate at the end of each epoch");
    return true;
  }
  for (size_t i = 0; i < kind.n; ++i) {
    if (!kind.legacy[i] || std::strcmp(kind.legacy[i], key) != 0 || values[i]) continue;
    deprecated(text(kind.name, "(", key, "=)"), text("say ", kind.names[i]));
    values[i] = given;
    return true;
  }
  return false;
}

// `lr` is what other libraries call the learning rate.
[[noreturn]] void refuse_argument(const Kind& kind, const char* given) {
  const char* names[kMaxNumbers + 1] = {"m"};
  std::copy(kind.names, kind.names + kind.n, names + 1);
  const bool has_rate = std::strcmp(kind.names[0], "eps") != 0;
  if (has_rate && (std::strcmp(given, "lr") == 0 || std::strcmp(given, "learning_rate") == 0))
    throw TypeError(text(kind.name, "(): got an unknown argument '", given, "'; say ", kind.names[0]));
  refuse_keyword(kind.name, given, names, kind.n + 1);
}

// Arguments (m, numbers ..) by position or name. More numbers than the class has are a TypeError.
std::unique_ptr<Trainer> build(const Kind& kind, PyObject* args, PyObject* kwargs) {
  PyObject* m = nullptr;
  PyObject* values[kMaxNumbers] = {};
  float decay = 0.f;
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (n > static_cast<Py_ssize_t>(kind.n + 1))
    throw TypeError(text(kind.name, "(): expected at most ", kind.n + 1, " arguments, got ", n));
  if (n > 0) m = PyTuple_GET_ITEM(args, 0);
  for (Py_ssize_t i = 1; i < n; ++i) values[i - 1] = PyTuple_GET_ITEM(args, i);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
    const char* given = PyUnicode_AsUTF8(key);
    if (!given) throw PythonError();
    PyObject** target = std::strcmp(given, "m") == 0 ? &m : nullptr;
    for (size_t i = 0; i < kind.n; ++i)
      if (std::strcmp(given, kind.names[i]) == 0) target = &values[i];
    if (!target && take_legacy(kind, given, value, values, &decay)) continue;
    if (!target) refuse_argument(kind, given);
    if (*target) throw TypeError(text(kind.name, "(): got argument '", given, "' twice"));
    *target = value;
  }
  if (!m) throw TypeError(text(kind.name, "(): argument 'm' is missing"));
  float numbers[kMaxNumbers];
  for (size_t i = 0; i < kind.n; ++i)
    numbers[i] = values[i] ? as_float(values[i], kind.name, kind.names[i]) : kind.defaults[i];
  auto trainer = kind.make(as_collection(m, kind.name, "m"), numbers);
  trainer->set_epoch_decay(decay);
  return trainer;
}

// A subclass may leave out the __init__ of its base (DyNet builds the trainer before any __init__ runs),
// or have one with other arguments, which then calls init() below. Trainer itself has nothing to build: it is
// for subclasses with methods of their own.
PyObject* new_trainer(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const Kind* kind = kind_of(type);
  auto* self = reinterpret_cast<PyTrainer*>(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  new (&self->trainer) std::unique_ptr<Trainer>();
  if (kind && type->tp_flags & Py_TPFLAGS_HEAPTYPE) {
    try {
      self->trainer = build(*kind, args, kwargs);
    } catch (...) {
      PyErr_Clear();
    }
  }
  return reinterpret_cast<PyObject*>(self);
}

int init(PyObject* self, PyObject* args, PyObject* kwargs) {
  const Kind* kind = kind_of(Py_TYPE(self));
  auto& trainer = reinterpret_cast<PyTrainer*>(self)->trainer;
  const bool bare = PyTuple_GET_SIZE(args) == 0 && (!kwargs || PyDict_GET_SIZE(kwargs) == 0);
  if (!kind || (bare && trainer)) return 0;
  try {
    trainer = build(*kind, args, kwargs);
    call_trainer_hook(TrainerHook::made, self);
    return 0;
  } catch (...) {
    set_error();
    return -1;
  }
}

void dealloc(PyObject* self) {
  reinterpret_cast<PyTrainer*>(self)->trainer.~unique_ptr();
  Py_TYPE(self)->tp_free(self);
}

// --------------------------------------------------------------------------------------- methods

// Without renew_cg() one graph takes in every example, and memory and time per example grow for ever: says
// so, once, where a graph has grown before each of more than ten updates. False: the warning is an error.
bool warn_of_growth() {
  constexpr uint32_t kUpdates = 10;
  static bool warned = false;
  static thread_local uint32_t version = kNone, size = 0, updates = 0;
  if (warned || !this_thread) return true;
  const Graph& g = this_thread->graph;
  const bool grows = g.version() == version && g.size() > size;
  updates = grows ? updates + 1 : 0;
  version = g.version();
  size = g.size();
  if (updates < kUpdates) return true;
  warned = true;
  const std::string message =
      text("update(): one graph has grown over ", updates + 1, " updates, to ", size,
           " nodes; call renew_cg() before each example or minibatch, or it takes more memory and time with "
           "every one");
  return PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) == 0;
}

PyObject* update(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"s"};
  return guarded([&]() -> PyObject* {
    float scale = 1.f;
    if (n || kwnames) [[unlikely]] {
      scale = parse("update", names, 1, args, n, kwnames).number(0, 1.f);
      deprecated("Trainer.update(s)", "multiply the learning rate or the loss instead");
    }
    refuse_inside_instance("update()", "call it after backward() on the sum of what batch_map() returns");
    const ScriptCall call("update");
    wait_for_gradients();
    trainer_of(self);
    if (call_trainer_hook(TrainerHook::before_update, self)) trainer_of(self).update(scale);
    call_trainer_hook(TrainerHook::after_update, self);
    return warn_of_growth() ? none() : nullptr;
  });
}

PyObject* update_subset(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"updated_params", "updated_lookups"};
  return guarded([&] {
    parse("update_subset", names, 2, args, n, kwnames);
    trainer_of(self);
    deprecated("Trainer.update_subset", "it has no effect; freeze parameters with set_updated(False)");
    return none();
  });
}

PyObject* update_epoch(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"r"};
  return guarded([&] {
    const float epochs = parse("update_epoch", names, 0, args, n, kwnames).number(0, 1.f);
    trainer_of(self).update_epoch(epochs);
    deprecated("Trainer.update_epoch", "assign trainer.learning_rate; only edecay gives this an effect");
    return none();
  });
}

PyObject* restart(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"learning_rate"};
  return guarded([&] {
    const auto a = parse("restart", names, 0, args, n, kwnames);
    if (a.has(0)) trainer_of(self).restart(a.number(0, 0.f));
    else trainer_of(self).restart();
    return none();
  });
}

PyObject* status(PyObject* self, PyObject*) {
  return guarded([&] {
    std::cerr << trainer_of(self).take_status() << std::flush;
    return none();
  });
}

PyObject* set_sparse_updates(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"su"};
  return guarded([&] {
    trainer_of(self).set_sparse_updates(
        parse("set_sparse_updates", names, 1, args, n, kwnames).truth(0, true));
    return none();
  });
}

PyObject* set_clip_threshold(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"thr"};
  return guarded([&] {
    trainer_of(self).set_clip_threshold(
        parse("set_clip_threshold", names, 1, args, n, kwnames).number(0, 0.f));
    return none();
  });
}

PyObject* get_clip_threshold(PyObject* self, PyObject*) {
  return guarded([&] { return PyFloat_FromDouble(trainer_of(self).clip_threshold()); });
}

PyObject* set_learning_rate(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"value"};
  return guarded([&] {
    trainer_of(self).set_learning_rate(parse("set_learning_rate", names, 1, args, n, kwnames).number(0, 0.f));
    return none();
  });
}

PyObject* exponential_moving_average(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"beta", "update_freq"};
  return guarded([&] {
    const auto a = parse("exponential_moving_average", names, 1, args, n, kwnames);
    trainer_of(self).average(MovingAverage::Kind::exponential, a.number(0, 0.f), a.uint(1, 1));
    return none();
  });
}

PyObject* cumulative_moving_average(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"update_freq"};
  return guarded([&] {
    const auto a = parse("cumulative_moving_average", names, 0, args, n, kwnames);
    trainer_of(self).average(MovingAverage::Kind::cumulative, 0.f, a.uint(0, 1));
    return none();
  });
}

PyObject* moving_average(PyObject* self, PyObject*) {
  return guarded([&] {
    const MovingAverage* average = trainer_of(self).moving_average();
    if (!average) return PyUnicode_FromString("none");
    const bool cumulative = average->kind() == MovingAverage::Kind::cumulative;
    return PyUnicode_FromString(cumulative ? "cumulative" : "exponential");
  });
}

PyObject* swap_to_average(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"save_weights", "bias_correction"};
  return guarded([&] {
    const auto a = parse("swap_params_to_moving_average", names, 0, args, n, kwnames);
    engine();
    trainer_of(self).swap_to_average(a.truth(0, true), a.truth(1, true));
    return none();
  });
}

PyObject* swap_to_weights(PyObject* self, PyObject*) {
  return guarded([&] {
    engine();
    trainer_of(self).swap_to_weights();
    return none();
  });
}

// A str, bytes or any path.
std::string path_of(PyObject* path) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path, &bytes)) throw PythonError();
  const std::string result = PyBytes_AS_STRING(bytes);
  Py_DECREF(bytes);
  return result;
}

PyObject* save(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"fname"};
  return guarded([&] {
    const std::string path = path_of(parse("save", names, 1, args, n, kwnames)[0]);
    if (!call_trainer_hook(TrainerHook::before_save, self)) return none();
    save_trainer(trainer_of(self), path);
    call_trainer_hook(TrainerHook::after_save, self);
    return none();
  });
}

PyObject* populate(PyObject* self, PyObject* const* args, Py_ssize_t n, PyObject* kwnames) {
  static constexpr const char* names[] = {"fname", "learning_rate"};
  return guarded([&] {
    const auto a = parse("populate", names, 1, args, n, kwnames);
    const float rate = a.has(1) ? a.number(1, 0.f) : 0.f;
    call_trainer_hook(TrainerHook::before_load, self);
    populate_trainer(trainer_of(self), path_of(a[0]));
    if (a.has(1)) trainer_of(self).set_learning_rate(rate);
    return none();
  });
}

PyObject* whoami(PyObject* self, PyObject*) {
  return guarded([&] { return PyUnicode_FromString(trainer_of(self).name()); });
}

PyObject* learning_rate(PyObject* self, void*) {
  return guarded([&] { return PyFloat_FromDouble(trainer_of(self).learning_rate()); });
}

int assign_learning_rate(PyObject* self, PyObject* value, void*) {
  try {
    if (!value) throw TypeError("learning_rate: cannot be deleted");
    trainer_of(self).set_learning_rate(as_float(value, "learning_rate", "the value"));
    return 0;
  } catch (...) {
    set_error();
    return -1;
  }
}

PyMethodDef methods[] = {
    fast_method("update", update,
                "update(s=1.0): changes the parameters by their gradients, which are then cleared."),
    fast_method("update_subset", update_subset, "update_subset(updated_params, updated_lookups): no effect."),
    fast_method("update_epoch", update_epoch,
                "update_epoch(r=1.0): with edecay, the rate for the next epoch."),
    fast_method("restart", restart, "restart(learning_rate=None): forgets momentum and accumulators."),
    plain_method("status", status, "Prints learning rate, clips and updates since the last call, on stderr."),
    fast_method("set_sparse_updates", set_sparse_updates,
                "set_sparse_updates(su): False updates rows of tables that have no gradient, too."),
    fast_method("set_clip_threshold", set_clip_threshold,
                "set_clip_threshold(thr): 0 or less turns clipping off."),
    plain_method("get_clip_threshold", get_clip_threshold, "Largest norm of all gradients; 0: no clipping."),
    fast_method("set_learning_rate", set_learning_rate,
                "set_learning_rate(value): as assigning learning_rate."),
    fast_method(
        "exponential_moving_average", exponential_moving_average,
        "exponential_moving_average(beta, update_freq=1): keeps a mean of the values after each update, "
        "or every so many, in which their weights fall by beta, 0 <= beta < 1, with each later one."),
    fast_method(
        "cumulative_moving_average", cumulative_moving_average,
        "cumulative_moving_average(update_freq=1): keeps the mean of the values after each update, or "
        "every so many."),
    plain_method("moving_average", moving_average, "'none', 'cumulative' or 'exponential'."),
    fast_method(
        "swap_params_to_moving_average", swap_to_average,
        "swap_params_to_moving_average(save_weights=True, bias_correction=True): the parameters take the "
        "means as their values. No update is possible before swap_params_to_weights(), unless the "
        "weights were not saved. bias_correction=False: exponential means as if a value of 0 had come "
        "before all others."),
    plain_method("swap_params_to_weights", swap_to_weights,
                 "The parameters take the values that they had before swap_params_to_moving_average()."),
    fast_method(
        "save", save,
        "save(fname): writes learning rate, counters, momentum, accumulators and means to a text file; "
        "not the parameters, which are saved with their collection."),
    fast_method(
        "populate", populate,
        "populate(fname, learning_rate=None): takes the state from a file that save() of a trainer of "
        "this class and of equal parameters has written. RuntimeError: another file; then nothing has "
        "changed."),
    {nullptr, nullptr, 0, nullptr}};

PyMethodDef kind_methods[] = {plain_method("whoami", whoami, "The name of the class in DyNet."),
                              {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"learning_rate", learning_rate, assign_learning_rate, "The learning rate.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

void ready(PyObject* module, PyTypeObject& type, const char* name, const char* doc, PyMethodDef* with) {
  type.tp_name = name;
  type.tp_doc = doc;
  type.tp_basicsize = sizeof(PyTrainer);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
  sign_methods(with);
  sign_type(type);
  type.tp_methods = with;
  type.tp_new = new_trainer;
  type.tp_init = init;
  type.tp_dealloc = dealloc;
  type.tp_repr = described;
  if (PyType_Ready(&type) < 0) throw PythonError();
  Py_INCREF(&type);
  if (PyModule_AddObject(module, std::strchr(name, '.') + 1, reinterpret_cast<PyObject*>(&type)) < 0)
    throw PythonError();
}

}  // namespace

Trainer& trainer_of(PyObject* self) {
  Trainer* t = reinterpret_cast<PyTrainer*>(self)->trainer.get();
  if (!t && !kind_of(Py_TYPE(self)))
    throw RuntimeError(text(Py_TYPE(self)->tp_name,
                            ": expected a trainer with a rule for its updates, got Trainer, the base of all; "
                            "use one of them, such as SimpleSGDTrainer"));
  if (!t) throw RuntimeError(text(Py_TYPE(self)->tp_name, ": __init__() of the trainer was not called"));
  return *t;
}

void add_trainer_types(PyObject* module) {
  trainer_type.tp_getset = properties;
  ready(module, trainer_type, "_dynet.Trainer", "Base of all trainers.", methods);
  for (size_t i = 0; i < kKinds; ++i) {
    types[i] = blank_type();
    types[i].tp_base = &trainer_type;
    full_names[i] = std::string("_dynet.") + kinds[i].name;
    ready(module, types[i], full_names[i].c_str(), kinds[i].doc, kind_methods);
  }
  add_trainer_state(module);
  add_gradients(module);
}

}  // namespace dyc::py
