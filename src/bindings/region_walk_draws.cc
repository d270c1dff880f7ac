#include "bindings/region_walk_draws.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "bindings/python_compat.h"
#include "bindings/region_guard.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

namespace {

constexpr size_t kTwisterWords = 624;

// An object of _random.Random. Its state begins with the index.
struct TwisterObject {
  PyObject_HEAD uint32_t state[1 + kTwisterWords];
};

PyObject* imported(const char* module) { return PyDict_GetItemString(PyImport_GetModuleDict(), module); }

Owned attribute_named(PyObject* object, const char* name) {
  const Owned key = Owned::steal(PyUnicode_InternFromString(name));
  return Owned::steal(object && key ? attribute_or_null(object, key.get()) : nullptr);
}

// Is the class the one of this name of the module?
bool is_class_of(PyTypeObject* type, const char* module, const char* name) {
  if (std::strcmp(type->tp_name, name) != 0) return false;
  return attribute_named(imported(module), name).get() == reinterpret_cast<PyObject*>(type);
}

// ---------------------------------------------------------------- Python

constexpr size_t kPythonDrawers = Drawer::numpy;
constexpr std::array<const char*, kPythonDrawers> kNames = {"",        "random",  "getrandbits", "_randbelow",
                                                            "uniform", "randint", "randrange",   "choice"};

// random.Random, and its functions by kind.
struct PythonRandom {
  PyTypeObject* type = nullptr;
  uint32_t version = 0;                                        // when it was looked at
  bool as_written = false;                                     // are these Python's own functions?
  std::array<PyObject*, kPythonDrawers> names{}, functions{};  // of interned text; borrowed
  std::array<Owned, kPythonDrawers> codes, defaults;           // of those that are written in Python

  PythonRandom() = default;
  explicit PythonRandom(PyTypeObject* candidate);
  // Setting these of a function leaves the version of its class.
  bool has_own_codes() const {
    for (size_t i = Drawer::randbelow; i < kPythonDrawers; ++i) {
      if (PyFunction_GET_CODE(functions[i]) != codes[i].get()) return false;
      if (PyFunction_GET_DEFAULTS(functions[i]) != defaults[i].get()) return false;
    }
    return true;
  }
  Drawer::Kind kind_of(PyObject* name) const {
    return static_cast<Drawer::Kind>(std::find(names.begin() + 1, names.end(), name) - names.begin());
  }
};

bool keeps_state_in_object(PyTypeObject* type) {
  auto* base = reinterpret_cast<PyObject*>(type->tp_base);
  if (type->tp_base->tp_basicsize < static_cast<Py_ssize_t>(sizeof(TwisterObject))) return false;
  const Owned one = Owned::steal(PyObject_CallFunction(base, "i", 1));
  for (int draw = 0; draw < 2; ++draw) {
    const Owned state = Owned::steal(one ? PyObject_CallMethod(one.get(), "getstate", nullptr) : nullptr);
    if (!state || !PyTuple_CheckExact(state.get()) || PyTuple_GET_SIZE(state.get()) != kTwisterWords + 1)
      return false;
    const uint32_t* words = reinterpret_cast<const TwisterObject*>(one.get())->state;
    for (size_t i = 0; i <= kTwisterWords; ++i) {  // the index comes last
      PyObject* word = PyTuple_GET_ITEM(state.get(), static_cast<Py_ssize_t>(i));
      if (PyLong_AsUnsignedLong(word) != words[i == kTwisterWords ? 0 : i + 1]) return false;
    }
    if (!Owned::steal(PyObject_CallMethod(one.get(), "random", nullptr))) return false;
  }
  return true;
}

PythonRandom::PythonRandom(PyTypeObject* candidate) : type(candidate), version(type_version(candidate)) {
  const Owned file = attribute_named(imported("random"), "__file__");
  bool own = candidate->tp_base && std::strcmp(candidate->tp_base->tp_name, "_random.Random") == 0 &&
             candidate->tp_getattro == PyObject_GenericGetAttr && keeps_state_in_object(candidate);
  for (size_t i = 1; own && i < kPythonDrawers; ++i) {
    names[i] = PyUnicode_InternFromString(kNames[i]);
    PyObject* f = functions[i] = _PyType_Lookup(candidate, names[i]);
    if (f && i <= Drawer::getrandbits) {
      own = Py_TYPE(f) == &PyMethodDescr_Type && PyDescr_TYPE(f) == candidate->tp_base;
      continue;
    }
    const auto* code =
        f && PyFunction_Check(f) ? reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(f)) : nullptr;
    const char* name = i == Drawer::randbelow ? "_randbelow_with_getrandbits" : kNames[i];
    own = code && file && PyUnicode_CompareWithASCIIString(code->co_name, name) == 0 &&
          PyUnicode_Compare(code->co_filename, file.get()) == 0;
    if (!own) break;
    codes[i] = Owned(PyFunction_GET_CODE(f));
    defaults[i] = Owned(PyFunction_GET_DEFAULTS(f));
  }
  PyErr_Clear();
  as_written = own;
}

// Null: it is no object of the class, or something of the class or the object was changed.
const PythonRandom* python_random(PyObject* generator) {
  static PythonRandom& known = *new PythonRandom;  // which outlives Python
  PyTypeObject* type = Py_TYPE(generator);
  if (type != known.type && !is_class_of(type, "random", "Random")) return nullptr;
  if (type != known.type || type_version(type) != known.version) known = PythonRandom(type);
  if (!known.as_written || known.version == 0 || !known.has_own_codes()) return nullptr;
  const Owned own = Owned::steal(PyObject_GenericGetDict(generator, nullptr));
  static PyObject* const name = PyUnicode_InternFromString("gauss_next");
  const bool plain = own && PyDict_GET_SIZE(own.get()) == 1 && PyDict_GetItemWithError(own.get(), name);
  return plain ? &known : nullptr;
}

// ---------------------------------------------------------------- NumPy

// Functions whose draws change nothing but the state of the bit generator.
constexpr std::array<const char*, 5> kOfRandomState = {"random", "random_sample", "rand", "uniform",
                                                       "randint"};
constexpr std::array<const char*, 2> kOfGenerator = {"random", "uniform"};

struct NumpyClasses {
  PyTypeObject *state = nullptr, *generator = nullptr;
};

// Those that this object may be of; null where NumPy was not imported.
const NumpyClasses& numpy_classes() {
  static NumpyClasses known;
  PyObject* module = known.state ? nullptr : imported("numpy.random");
  if (!module) return known;
  const auto find = [&](const char* name) {
    PyObject* type = attribute_named(module, name).release();
    const bool own = type && PyType_Check(type) &&
                     !PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type), Py_TPFLAGS_HEAPTYPE);
    return own ? reinterpret_cast<PyTypeObject*>(type) : nullptr;  // null: the script has put a class there
  };
  known = {find("RandomState"), find("Generator")};
  return known;
}

// Does NumPy keep the state of a twister as an array and an index?
bool is_state_at(PyObject* bits, const uint32_t* words) {
  const Owned state = attribute_named(bits, "state");
  PyObject* inner = state && PyDict_Check(state.get()) ? PyDict_GetItemString(state.get(), "state") : nullptr;
  PyObject* key = inner && PyDict_Check(inner) ? PyDict_GetItemString(inner, "key") : nullptr;
  PyObject* at = key ? PyDict_GetItemString(inner, "pos") : nullptr;
  const Owned listed = Owned::steal(at ? PyObject_CallMethod(key, "tolist", nullptr) : nullptr);
  if (!listed || !PyList_CheckExact(listed.get()) || PyList_GET_SIZE(listed.get()) != kTwisterWords)
    return false;
  for (size_t i = 0; i < kTwisterWords; ++i)
    if (PyLong_AsUnsignedLong(PyList_GET_ITEM(listed.get(), i)) != words[i]) return false;
  return PyLong_AsUnsignedLong(at) == words[kTwisterWords];
}

// Is the bit generator of no class of the script, whose state may be computed, and does no other thread draw
// from it? Draws would wait for that one.
bool may_draw(PyObject* bits) {
  if (!bits || PyType_HasFeature(Py_TYPE(bits), Py_TPFLAGS_HEAPTYPE)) return false;
  const Owned lock = attribute_named(bits, "lock");
  const Owned taken =
      Owned::steal(lock ? PyObject_CallMethod(lock.get(), "acquire", "O", Py_False) : nullptr);
  return taken.get() == Py_True && Owned::steal(PyObject_CallMethod(lock.get(), "release", nullptr));
}

// Null: it is no twister, or its state is kept otherwise.
uint32_t* numpy_twister(PyObject* bits) {
  static int known = -1;  // not yet
  if (std::strcmp(Py_TYPE(bits)->tp_name, "numpy.random._mt19937.MT19937") != 0) return nullptr;
  const Owned access = attribute_named(bits, "ctypes");
  const Owned address = attribute_named(access.get(), "state_address");
  auto* words = address && PyLong_CheckExact(address.get())
                    ? static_cast<uint32_t*>(PyLong_AsVoidPtr(address.get()))
                    : nullptr;
  if (words && known < 0) known = is_state_at(bits, words);
  return known > 0 ? words : nullptr;
}

Drawer numpy_drawer(PyObject* generator, PyObject* name) {
  const auto is_one_of = [&](const auto& names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* each) { return PyUnicode_CompareWithASCIIString(name, each) == 0; });
  };
  const NumpyClasses& classes = numpy_classes();
  PyTypeObject* type = Py_TYPE(generator);
  const bool known = type == classes.state ? is_one_of(kOfRandomState)
                                           : type == classes.generator && is_one_of(kOfGenerator);
  PyObject* function = known ? _PyType_Lookup(type, name) : nullptr;
  return function ? Drawer{Drawer::numpy, generator, function} : Drawer{};
}

}  // namespace

// ---------------------------------------------------------------- drawing

Drawer Drawer::of_method(PyObject* object, PyObject* name) {
  const PythonRandom* python = python_random(object);
  if (!python) return numpy_drawer(object, name);
  const Kind kind = python->kind_of(name);
  return kind < numpy && kind != randbelow ? Drawer{kind, object, python->functions[kind]} : Drawer{};
}

// A bound method of one of these functions.
Drawer Drawer::of(PyObject* callable) {
  PyObject *self = nullptr, *function = nullptr;
  Owned name;
  if (PyMethod_Check(callable)) {
    self = PyMethod_GET_SELF(callable);
    function = PyMethod_GET_FUNCTION(callable);
    name = PyFunction_Check(function) ? Owned(reinterpret_cast<PyFunctionObject*>(function)->func_name)
                                      : attribute_named(function, "__name__");
  } else if (PyCFunction_Check(callable) && PyCFunction_GET_SELF(callable)) {
    self = PyCFunction_GET_SELF(callable);
    name = Owned::steal(
        PyUnicode_InternFromString(reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name));
  }
  if (!name || !PyUnicode_Check(name.get())) return {};
  const Drawer found = of_method(self, interned(name.get()).get());
  if (found.kind == none || function == found.function) return found;
  const bool same = !function && Py_TYPE(found.function) == &PyMethodDescr_Type &&
                    reinterpret_cast<PyMethodDescrObject*>(found.function)->d_method ==
                        reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
  return same ? found : Drawer{};
}

PyObject* Drawer::other(Kind other) const { return python_random(generator)->functions[other]; }

bool WalkDraws::keep(const Drawer& drawer) {
  const auto is_kept = [&](const Kept& k) { return k.generator.get() == drawer.generator; };
  if (std::any_of(kept_.begin(), kept_.end(), is_kept)) return true;
  Kept kept;
  kept.generator = Owned(drawer.generator);
  if (drawer.kind != Drawer::numpy) kept.at = reinterpret_cast<TwisterObject*>(drawer.generator)->state;
  else if (const Owned bits = attribute_named(drawer.generator, "_bit_generator"); !may_draw(bits.get()))
    return false;
  else if (Py_TYPE(drawer.generator) == numpy_classes().state) kept.at = numpy_twister(bits.get());
  else kept.state = attribute_named(bits.get(), "state");
  if (kept.at) kept.words.assign(kept.at, kept.at + kTwisterWords + 1);
  else if (!kept.state) return false;
  kept_.push_back(std::move(kept));
  return true;
}

// The last one first: generators may share a state, which is as it was where the first of them was kept.
void WalkDraws::put_back() {
  for (auto kept = kept_.rbegin(); kept != kept_.rend(); ++kept) {
    std::copy(kept->words.begin(), kept->words.end(), kept->at);
    if (!kept->state) continue;
    const Owned bits = attribute_named(kept->generator.get(), "bit_generator");
    if (!bits || PyObject_SetAttrString(bits.get(), "state", kept->state.get()) < 0) PyErr_Clear();
  }
  kept_.clear();
}

}  // namespace dyc::py
