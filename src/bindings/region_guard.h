// Guards: conditions on the values that a region reads under which its trace may be replayed in its place.
//
// A guard is made of a value when the region is traced (Guard::of) and checked against the value of the same
// source at each call. A value satisfies it if the region would record the same ops with it. What may differ,
// the nodes of expressions and states and the numbers that are indices, check() captures.
// Guards nest: that of a list or tuple has one for each item.
#pragma once
#include <vector>

#include "bindings/expression.h"
#include "bindings/owned.h"
#include "graph/trace.h"

namespace dyc::py {

// Values of all sources of a region at one call, borrowed.
struct SourceValues {
  std::vector<PyObject*> all;       // null: an op of the region reads this, which is no part of a list
  std::vector<PyObject*> appended;  // lists that the region appends to, which no op may read
};

// What differs between two runs of a region that record the same ops: its inputs and its indices.
struct CapturedInputs {
  std::vector<NodeId> inputs;
  std::vector<PyObject*> objects;  // the expressions of the inputs, borrowed; null: a node of a state
  std::vector<uint32_t> placeholders;
  std::vector<NodeId> nodes;  // scratch: those of one state
  // Repeated inputs: for each input the index of the first one that is the same node, and whether it is the
  // same object, too.
  struct Repeated {
    std::vector<uint32_t> first;  // empty: all are distinct
    std::vector<uint8_t> same_object;
    bool operator==(const Repeated&) const = default;
  };
  Repeated repeated() const;
  // Removes repetitions from `inputs`, but not from `objects`. False: other inputs are repeated than
  // expected. `values`: one for each input, compared in place of the objects.
  template <class T>
  bool merge(const Repeated& known, const std::vector<T>& values) {
    if (known.first.empty()) return true;
    if (known.first.size() != inputs.size()) return false;
    size_t n = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const uint32_t first = known.first[i];
      if ((values[i] == values[first]) != (known.same_object[i] != 0)) return false;
      if (first_equal(inputs, i) != first) return false;
    }
    for (size_t i = 0; i < inputs.size(); ++i)
      if (known.first[i] == i) inputs[n++] = inputs[i];
    inputs.resize(n);
    return true;
  }
  bool merge(const Repeated& known) { return merge(known, objects); }
  void clear() {
    inputs.clear();
    objects.clear();
    placeholders.clear();
  }
};

// Is the value equal to this constant of the script: None, a bool, number or text? Runs no code of the
// script.
bool is_constant(PyObject* value, PyObject* constant);

// What a function of the script does when it is called: its code, and those of its defaults that are
// constants.
struct FunctionBody {
  explicit operator bool() const { return static_cast<bool>(code); }
  void note(PyObject* function);  // other objects are ignored
  bool matches(PyObject* function) const;

 private:
  Owned code, defaults;
  bool by_name = false;          // has it defaults of keyword-only arguments?
  uint64_t by_name_version = 0;  // of their dict
};

struct Guard {
  enum Kind : uint8_t {
    none,        // not read, or only for its parts
    same,        // this object
    parameters,  // of this type, whose storage has `number`: models are not kept alive
    parameter,  // an expression of this graph of the node of the parameters with `number`, in role `settings`
    function,   // of the script, with this code and these defaults
    equal,      // a number or text of this type and value
    placeholder,  // an index
    index,        // the index `number`
    expression,   // of this graph
    method,       // of this function, bound to the value of source `number`
    state,        // an RNNState of this graph and of the builder with `number`
    items,        // a list, tuple or dict (type `object`) of values that satisfy `parts`
    filled        // a list, tuple or dict, which is empty if `number` is 0
  };
  Kind kind = none;
  Owned object;  // same, method: a weak reference, where there can be one: the script's globals die with it
  bool weak = false;
  FunctionBody body;
  uint32_t number = 0;
  std::vector<Guard> parts;
  Owned keys;  // items of a dict: a tuple
  // state: settings of the builder; is it at the start; and which of its nodes are equal: for each the index
  // of the first that is equal to it.
  uint32_t settings = 0;
  bool start = false;
  std::vector<uint32_t> equals;

  // The guard of a value as it is now; `kind` none where values of its kind can change without a guard
  // noticing. `budget`: how many more values it may look at. The caller recognises placeholders.
  static Guard of(PyObject* value, const std::vector<PyObject*>& values, uint32_t* budget);
  static Guard of_function(PyObject* function);
  static Guard of_truth(PyObject* container);

  // Does the value satisfy the guard? Appends what it finds to `captured`.
  bool check(PyObject* value, const SourceValues& values, const Graph& graph, CapturedInputs* captured) const;
  // Of a method: is this the function that it is bound to, and as it was?
  bool is_of(PyObject* function) const { return refers_to(function) && body.matches(function); }
  // If a value satisfies the guard once, does it always, with nothing to capture?
  bool is_permanent() const {
    return kind == none || kind == parameters || kind == equal || kind == index || (kind == same && !body);
  }

 private:
  static Guard of_state(PyObject* value);
  static Guard of_items(PyObject* value, const std::vector<PyObject*>& values, uint32_t* budget);
  void refer_to(PyObject* value);
  bool refers_to(PyObject* value) const;
  bool check_state(PyObject* value, CapturedInputs* captured) const;
  bool check_items(PyObject* value, const SourceValues& values, const Graph& graph,
                   CapturedInputs* captured) const;
  bool check_dict(PyObject* value, const SourceValues& values, const Graph& graph,
                  CapturedInputs* captured) const;
  bool check_filled(PyObject* value, const SourceValues& values) const;
};

// None, a bool, number or text of Python's own classes: what is computed of it depends on nothing else.
inline bool is_python_value(PyObject* o) {
  return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
         PyUnicode_CheckExact(o);
}
// A scalar of NumPy: a whole number, or a float of at most 64 bits.
bool is_numpy_number(PyObject* o);
// Of no class of the script: comparing and testing it runs no code.
inline bool is_plain_value(PyObject* o) { return is_python_value(o) || is_numpy_number(o); }
// A float of Python or NumPy.
inline bool is_float(PyObject* o) {
  return PyFloat_CheckExact(o) || (is_numpy_number(o) && !PyIndex_Check(o));
}
// A number that is an index, of Python or NumPy, in the range of indices.
bool as_index(PyObject* value, uint32_t* index);
// Are all keys of the dict of built-in types? Looking others up may run code of the script.
bool has_plain_keys(PyObject* dict);
// Does releasing the object run no code of the script? True of what ops return, of constants, and of lists of
// at most so many of these.
bool frees_quietly(PyObject* o, ptrdiff_t most = tuning::kShortList);
// A list or tuple; or a dict, too; and of no class of the script?
inline bool is_sequence(PyObject* o) { return PyTuple_CheckExact(o) || PyList_CheckExact(o); }
inline bool is_container(PyObject* o) { return is_sequence(o) || PyDict_CheckExact(o); }
// Of a list, tuple or dict.
inline Py_ssize_t size_of(PyObject* container) {
  return is_sequence(container) ? Py_SIZE(container) : PyDict_GET_SIZE(container);
}
// Is it a dict, perhaps of a class derived from it, such as Counter, whose items are read as those of a dict?
bool is_derived_dict(PyObject* o);
inline bool is_dict(PyObject* o) { return PyDict_CheckExact(o) || (PyDict_Check(o) && is_derived_dict(o)); }

}  // namespace dyc::py
