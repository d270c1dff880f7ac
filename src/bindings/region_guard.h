// What must hold of the values that a block of a script reads for its trace to be recorded in its place.
#pragma once
#include <utility>
#include <vector>

#include "bindings/expression.h"

namespace dyc::py {

// A reference that is owned.
class Owned {
 public:
  Owned() = default;
  explicit Owned(PyObject* borrowed) : object_(borrowed) { Py_XINCREF(borrowed); }
  static Owned steal(PyObject* reference) {
    Owned o;
    o.object_ = reference;
    return o;
  }
  Owned(const Owned& other) : Owned(other.object_) {}
  Owned(Owned&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Owned& operator=(Owned other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// What differs between two runs of a block that record the same: its inputs and its indices.
struct CapturedInputs {
  std::vector<NodeId> inputs;
  std::vector<PyObject*> objects;  // the inputs' own, borrowed; null: there is none
  std::vector<uint32_t> placeholders;
  std::vector<NodeId> nodes;        // room for those of one state
  std::vector<PyObject*> appended;  // lists that the block appends to, which no op may read; kept
  void clear() {
    inputs.clear();
    objects.clear();
    placeholders.clear();
  }
};

// Is the value this constant of the script: None, a bool, number or text? Runs no code of the script.
bool is_constant(PyObject* value, PyObject* constant);

struct Guard {
  static Guard of_state(PyObject* value);

  enum Kind : uint8_t {
    none,         // not read, or only for its parts
    same,         // this object
    parameters,   // Parameters or LookupParameters whose storage has number `number`: models are not kept
                  // alive
    function,     // of the script, with this code and these defaults
    equal,        // a number or text of this type and value
    placeholder,  // an index
    expression,   // of this graph
    method,       // of this function, bound to the value in number `number`
    state,        // an RNNState of this graph and of the builder with number `number`
    items         // a list or tuple (type `object`) of values for which `parts` hold
  };
  Kind kind = none;
  Owned object;  // same, method: a weak reference, where there can be one: the script's globals die with it
  bool weak = false;
  // Of a function of the script. Only constants are kept of the defaults.
  Owned code, defaults;
  bool by_name = false;          // has it defaults of arguments that go by name only?
  uint64_t by_name_version = 0;  // of their dict
  uint32_t number = 0;
  std::vector<Guard> parts;
  // state: settings of the builder; is it at the start; and which of its nodes are equal: for each the first
  // that is equal to it.
  uint32_t settings = 0;
  bool start = false;
  std::vector<uint32_t> equals;

  static Guard of_function(PyObject* function);
  void refer_to(PyObject* value);
  bool refers_to(PyObject* value) const;
  void note_function(PyObject* function);
  bool check_function(PyObject* function) const;
  bool check_state(PyObject* value, CapturedInputs* captured) const;
  // Does it hold of a value for ever, whatever becomes of that, and tell `captured` nothing?
  bool is_permanent() const {
    return kind == none || kind == parameters || kind == equal || (kind == same && !code);
  }
  // Appends to `captured`. `values`: of all sources.
  bool check(PyObject* value, PyObject* const* values, const Graph& graph, CapturedInputs* captured) const;
  // The guard of a value as it is now; `kind` none where values of its kind can change without a guard
  // noticing. The value of a placeholder is told apart by the caller.
  static Guard of(PyObject* value, const std::vector<Owned>& values, uint32_t* budget);
};

}  // namespace dyc::py
