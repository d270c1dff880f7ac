// Trainer and its subclasses, generated from one table.
#include <cstdlib>
#include <iostream>
#include <new>
#include <vector>

#include "base/error.h"
#include "base/instance.h"
#include "bindings/arguments.h"
#include "bindings/background.h"
#include "bindings/compute.h"
#include "bindings/model.h"
#include "bindings/owned.h"
#include "bindings/signatures.h"
#include "bindings/call_site.h"
#include "bindings/tuning.h"
#include "model/trainer_file.h"
#include "model/trainer_kinds.h"

namespace dyc::py {

namespace {

struct PyTrainer {
  PyObject_HEAD std::unique_ptr<Trainer> trainer;
  PyObject* before_update;  // list of functions; null: nobody has asked for it
};

PyTrainer* as_trainer(PyObject* self) { return reinterpret_cast<PyTrainer*>(self); }

std::string signature_of(const TrainerKind& kind) {
  std::string s = text(kind.name, "(m");
  for (const TrainerNumber& n : kind.numbers) s += text(", ", n.name, "=", n.standard);
  return s + ")";
}

PyTypeObject trainer_type;  // the abstract base
PyTypeObject types[kTrainerKinds];
std::string full_names[kTrainerKinds], signatures[kTrainerKinds];  // of the types, which keep pointers

// The table row of a class or of a Python subclass of it; null for Trainer itself.
const TrainerKind* kind_of(PyTypeObject* type) {
  for (; type; type = type->tp_base)
    for (size_t i = 0; i < kTrainerKinds; ++i)
      if (type == &types[i]) return &trainer_kinds[i];
  return nullptr;
}

// ---------------------------------------------------------------------------------- construction

// True if `key` is an argument of older versions: it has been stored in *values or *decay.
bool take_legacy(const TrainerKind& kind, const char* key, PyObject* given, PyObject** values, float* decay) {
  if (std::strcmp(key, "edecay") == 0) {
    *decay = as_float(given, kind.name, key);
    deprecated(text(kind.name, "(edecay=)"), "assign trainer.learning_rate at the end of each epoch");
    return true;
  }
  for (size_t i = 0; i < kind.numbers.size(); ++i) {
    const TrainerNumber& number = kind.numbers[i];
    if (!number.legacy || std::strcmp(number.legacy, key) != 0 || values[i]) continue;
    deprecated(text(kind.name, "(", key, "=)"), text("say ", number.name));
    values[i] = given;
    return true;
  }
  return false;
}

// `lr` is what other libraries call the learning rate.
[[noreturn]] void refuse_argument(const TrainerKind& kind, const char* given) {
  std::vector<const char*> names = {"m"};
  for (const TrainerNumber& number : kind.numbers) names.push_back(number.name);
  const bool has_rate = std::strcmp(names[1], "eps") != 0;
  if (has_rate && (std::strcmp(given, "lr") == 0 || std::strcmp(given, "learning_rate") == 0))
    throw TypeError(text(kind.name, "(): got an unknown argument '", given, "'; say ", names[1]));
  refuse_keyword(kind.name, given, names.data(), names.size());
}

// Arguments (m, numbers ..) by position or name. More numbers than the class has are a TypeError.
std::unique_ptr<Trainer> build(const TrainerKind& kind, PyObject* args, PyObject* kwargs) {
  PyObject* m = nullptr;
  PyObject* values[TrainerKind::kMostNumbers] = {};
  float decay = 0.f;
  const size_t count = kind.numbers.size();
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  if (const auto most = static_cast<Py_ssize_t>(count + 1); n > most)
    throw TypeError(text(kind.name, "(): expected at most ", most, " arguments, got ", n,
                         n == most + 1 ? "; if the last one is edecay of DyNet 1, say edecay=" : ""));
  if (n > 0) m = PyTuple_GET_ITEM(args, 0);
  for (Py_ssize_t i = 1; i < n; ++i) values[i - 1] = PyTuple_GET_ITEM(args, i);
  PyObject *key, *value;
  Py_ssize_t position = 0;
  while (kwargs && PyDict_Next(kwargs, &position, &key, &value)) {
    const char* given = PyUnicode_AsUTF8(key);
    if (!given) throw PythonError();
    PyObject** target = std::strcmp(given, "m") == 0 ? &m : nullptr;
    for (size_t i = 0; i < count; ++i)
      if (std::strcmp(given, kind.numbers[i].name) == 0) target = &values[i];
    if (!target && take_legacy(kind, given, value, values, &decay)) continue;
    if (!target) refuse_argument(kind, given);
    if (*target) throw TypeError(text(kind.name, "(): got argument '", given, "' twice"));
    *target = value;
  }
  if (!m) throw TypeError(text(kind.name, "(): argument 'm' is missing"));
  float numbers[TrainerKind::kMostNumbers];
  for (size_t i = 0; i < count; ++i) {
    const TrainerNumber& number = kind.numbers[i];
    numbers[i] =
        values[i] ? as_float(values[i], kind.name, number.name) : std::strtof(number.standard, nullptr);
  }
  auto trainer = kind.make(as_collection(m, kind.name, "m"), numbers);
  trainer->set_epoch_decay(decay);
  return trainer;
}

// A subclass may leave out the __init__ of its base (DyNet builds the trainer before any __init__ runs),
// or have one with other arguments, which then calls init() below. Trainer itself has nothing to build: it is
// for subclasses with methods of their own.
PyObject* new_trainer(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const TrainerKind* kind = kind_of(type);
  PyTrainer* const self = as_trainer(type->tp_alloc(type, 0));
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
  const TrainerKind* kind = kind_of(Py_TYPE(self));
  auto& trainer = as_trainer(self)->trainer;
  const bool bare = PyTuple_GET_SIZE(args) == 0 && (!kwargs || PyDict_GET_SIZE(kwargs) == 0);
  if (!kind || (bare && trainer)) return 0;
  try {
    auto built = build(*kind, args, kwargs);
    wait_for_background(false);  // for updates of the one before
    trainer = std::move(built);
    call_trainer_hook(TrainerHook::made, self);
    return 0;
  } catch (...) {
    set_error();
    return -1;
  }
}

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_trainer(self)->before_update);
  return 0;
}

int clear(PyObject* self) {
  Py_CLEAR(as_trainer(self)->before_update);
  return 0;
}

void dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear(self);
  as_trainer(self)->trainer.~unique_ptr();
  Py_TYPE(self)->tp_free(self);
}

// --------------------------------------------------------------------------------------- methods

// Without renew_cg() one graph takes in every example, and memory and time per example grow for ever: says
// so, once, where a graph has grown before each of more than ten updates. False: the warning is an error.
bool warn_of_growth() {
  static bool warned = false;
  static thread_local uint32_t version = kNone, size = 0, updates = 0;
  if (warned || !this_thread) return true;
  const Graph& g = this_thread->graph;
  const bool grows = g.version() == version && g.size() > size;
  updates = grows ? updates + 1 : 0;
  version = g.version();
  size = g.size();
  if (updates < tuning::kGrowingUpdates) return true;
  warned = true;
  const std::string message =
      text("update(): one graph has grown over ", updates + 1, " updates, to ", size,
           " nodes; call renew_cg() before each example or minibatch, or it takes more memory and time with "
           "every one");
  return PyErr_WarnEx(PyExc_RuntimeWarning, message.c_str(), 1) == 0;
}

// Does an update call functions of the script, or the hook of a job?
bool calls_script(PyObject* self) {
  PyObject* const functions = as_trainer(self)->before_update;
  return (functions && PyList_GET_SIZE(functions) > 0) || has_trainer_hook(TrainerHook::update);
}

// A function may change the list: those that it held at first are called.
void call_before_update(PyObject* self) {
  PyObject* const functions = as_trainer(self)->before_update;
  if (!functions || PyList_GET_SIZE(functions) == 0) return;
  const Owned all = Owned::steal(PyList_AsTuple(functions));
  if (!all) throw PythonError();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i)
    if (!Owned::steal(PyObject_CallOneArg(PyTuple_GET_ITEM(all.get(), i), self))) throw PythonError();
}

constexpr FastMethod update = method<"update", 0, "s">([](PyObject* self, const auto& a) -> PyObject* {
  const float scale = a.number(0, 1.f);
  if (a[0]) deprecated("Trainer.update(s)", "multiply the learning rate or the loss instead");
  refuse_inside_instance("update()", "call it after backward() on the sum of what batch_map() returns");
  const ScriptCall call("update");
  Trainer* const built = as_trainer(self)->trainer.get();
  if (built && !calls_script(self) && update_in_background(self, *built, scale)) return none();
  wait_for_backward();
  trainer_of(self);
  if (call_trainer_hook(TrainerHook::update, self, Owned::steal(PyFloat_FromDouble(scale)).get())) {
    call_before_update(self);
    wait_for_gradients();
    trainer_of(self).update(scale);
  }
  return warn_of_growth() ? none() : nullptr;
});

constexpr FastMethod update_subset =
    method<"update_subset", 2, "updated_params", "updated_lookups">([](PyObject* self, const auto&) {
      trainer_of(self);
      deprecated("Trainer.update_subset", "it has no effect; freeze parameters with set_updated(False)");
    });

constexpr FastMethod update_epoch = method<"update_epoch", 0, "r">([](PyObject* self, const auto& a) {
  const float epochs = a.number(0, 1.f);
  trainer_of(self).update_epoch(epochs);
  deprecated("Trainer.update_epoch", "assign trainer.learning_rate; only edecay gives this an effect");
});

constexpr FastMethod restart = method<"restart", 0, "learning_rate">([](PyObject* self, const auto& a) {
  if (a.has(0)) trainer_of(self).restart(a.number(0, 0.f));
  else trainer_of(self).restart();
});

constexpr PyCFunction status =
    plain([](PyObject* self) { std::cerr << trainer_of(self).take_status() << std::flush; });

constexpr FastMethod set_sparse_updates = method<"set_sparse_updates", 1, "su">(
    [](PyObject* self, const auto& a) { trainer_of(self).set_sparse_updates(a.truth(0, true)); });

constexpr FastMethod set_clip_threshold = method<"set_clip_threshold", 1, "thr">(
    [](PyObject* self, const auto& a) { trainer_of(self).set_clip_threshold(a.number(0, 0.f)); });

constexpr PyCFunction get_clip_threshold =
    plain([](PyObject* self) { return PyFloat_FromDouble(trainer_of(self).clip_threshold()); });

constexpr FastMethod set_learning_rate = method<"set_learning_rate", 1, "value">(
    [](PyObject* self, const auto& a) { trainer_of(self).set_learning_rate(a.number(0, 0.f)); });

constexpr FastMethod exponential_moving_average =
    method<"exponential_moving_average", 1, "beta", "update_freq">([](PyObject* self, const auto& a) {
      trainer_of(self).average(MovingAverage::Kind::exponential, a.number(0, 0.f), a.uint(1, 1));
    });

constexpr FastMethod cumulative_moving_average =
    method<"cumulative_moving_average", 0, "update_freq">([](PyObject* self, const auto& a) {
      trainer_of(self).average(MovingAverage::Kind::cumulative, 0.f, a.uint(0, 1));
    });

constexpr PyCFunction moving_average = plain([](PyObject* self) {
  const MovingAverage* average = trainer_of(self).moving_average();
  if (!average) return PyUnicode_FromString("none");
  const bool cumulative = average->kind() == MovingAverage::Kind::cumulative;
  return PyUnicode_FromString(cumulative ? "cumulative" : "exponential");
});

constexpr FastMethod swap_to_average =
    method<"swap_params_to_moving_average", 0, "save_weights", "bias_correction">(
        [](PyObject* self, const auto& a) {
          engine();
          trainer_of(self).swap_to_average(a.truth(0, true), a.truth(1, true));
        });

constexpr PyCFunction swap_to_weights = plain([](PyObject* self) {
  engine();
  trainer_of(self).swap_to_weights();
});

// A str, bytes or any path.
std::string path_of(PyObject* path) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path, &bytes)) throw PythonError();
  const std::string result = PyBytes_AS_STRING(bytes);
  Py_DECREF(bytes);
  return result;
}

constexpr FastMethod save = method<"save", 1, "fname">([](PyObject* self, const auto& a) {
  const std::string path = path_of(a[0]);
  if (!call_trainer_hook(TrainerHook::before_save, self, a[0])) return;
  save_trainer(trainer_of(self), path);
  call_trainer_hook(TrainerHook::after_save, self, a[0]);
});

constexpr FastMethod populate =
    method<"populate", 1, "fname", "learning_rate">([](PyObject* self, const auto& a) {
      const float rate = a.has(1) ? a.number(1, 0.f) : 0.f;
      call_trainer_hook(TrainerHook::before_load, self);
      populate_trainer(trainer_of(self), path_of(a[0]));
      if (a.has(1)) trainer_of(self).set_learning_rate(rate);
    });

constexpr PyCFunction whoami =
    plain([](PyObject* self) { return PyUnicode_FromString(trainer_of(self).name()); });

PyObject* learning_rate(PyObject* self, void*) {
  return guarded([&] { return PyFloat_FromDouble(trainer_of(self).learning_rate()); });
}

PyObject* before_update(PyObject* self, void*) {
  PyObject*& functions = as_trainer(self)->before_update;
  if (!functions) functions = PyList_New(0);
  Py_XINCREF(functions);
  return functions;
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
    fast_method("update", update, "update(s=1.0)"),
    fast_method("update_subset", update_subset, "update_subset(updated_params, updated_lookups)"),
    fast_method("update_epoch", update_epoch, "update_epoch(r=1.0)"),
    fast_method("restart", restart, "restart(learning_rate=None)"),
    plain_method("status", status),
    plain_method("whoami", whoami),
    fast_method("set_sparse_updates", set_sparse_updates, "set_sparse_updates(su)"),
    fast_method("set_clip_threshold", set_clip_threshold, "set_clip_threshold(thr)"),
    plain_method("get_clip_threshold", get_clip_threshold),
    fast_method("set_learning_rate", set_learning_rate, "set_learning_rate(value)"),
    fast_method("exponential_moving_average", exponential_moving_average,
                "exponential_moving_average(beta, update_freq=1)"),
    fast_method("cumulative_moving_average", cumulative_moving_average,
                "cumulative_moving_average(update_freq=1)"),
    plain_method("moving_average", moving_average),
    fast_method("swap_params_to_moving_average", swap_to_average,
                "swap_params_to_moving_average(save_weights=True, bias_correction=True)"),
    plain_method("swap_params_to_weights", swap_to_weights),
    fast_method("save", save, "save(fname)"),
    fast_method("populate", populate, "populate(fname, learning_rate=None)"),
    {nullptr, nullptr, 0, nullptr}};

PyGetSetDef properties[] = {
    {"before_update", before_update, nullptr, "Functions that update() calls first.", nullptr},
    {"learning_rate", learning_rate, assign_learning_rate, "The learning rate.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject type_of(const char* name, const char* doc, PyMethodDef* with = nullptr) {
  PyTypeObject type = static_type({name, doc, sizeof(PyTrainer), dealloc, with, new_trainer, nullptr,
                                   Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC});
  type.tp_traverse = traverse;
  type.tp_clear = clear;
  type.tp_init = init;
  type.tp_repr = described;
  return type;
}

}  // namespace

Trainer& trainer_of(PyObject* self) {
  wait_for_update();
  Trainer* t = as_trainer(self)->trainer.get();
  if (!t && !kind_of(Py_TYPE(self)))
    throw RuntimeError(text(Py_TYPE(self)->tp_name,
                            ": expected a trainer with a rule for its updates, got Trainer, the base of all; "
                            "use one of them, such as SimpleSGDTrainer"));
  if (!t) throw RuntimeError(text(Py_TYPE(self)->tp_name, ": __init__() of the trainer was not called"));
  return *t;
}

void add_trainer_types(PyObject* module) {
  trainer_type = type_of("_dynet.Trainer", "Base of all trainers.", methods);
  trainer_type.tp_getset = properties;
  add_type(module, trainer_type);
  for (size_t i = 0; i < kTrainerKinds; ++i) {
    full_names[i] = std::string("_dynet.") + trainer_kinds[i].name;
    signatures[i] = signature_of(trainer_kinds[i]);
    types[i] = type_of(full_names[i].c_str(), signatures[i].c_str());
    types[i].tp_base = &trainer_type;
    add_type(module, types[i]);
  }
  add_trainer_state(module);
  add_gradients(module);
}

}  // namespace dyc::py
