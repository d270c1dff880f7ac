// Objects of classes of the script that a walk makes, and random numbers that it draws.
#include <algorithm>
#include <bit>

#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"

namespace dyc::py {

namespace {

PyObject* in_class(PyTypeObject* type, const char* name) {
  const Owned key = Owned::steal(PyUnicode_InternFromString(name));
  if (!key) throw PythonError();
  return _PyType_Lookup(type, key.get());
}

}  // namespace

// Calls of a class whose objects Python itself makes, and whose __init__ is a function that the walk can run.
// Nobody sees an object whose walk is refused: its attributes are assigned at the end.
WalkValue Walker::construct(PyTypeObject* type, const WalkNode& node, Frame& frame) {
  WalkNode::Known& known = node.value;
  if (known.walk != walk_ || known.of != type) {
    const bool plain = Py_TYPE(type) == &PyType_Type && PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) &&
                       type->tp_new == PyBaseObject_Type.tp_new && type->tp_alloc == PyType_GenericAlloc;
    if (!plain) refuse("a class that makes its objects itself");
    if (in_class(type, "__del__")) refuse("a class whose objects run code at their end");
    PyObject* init = in_class(type, "__init__");
    const bool none = init == in_class(&PyBaseObject_Type, "__init__");
    if (!none && (!init || !PyFunction_Check(init))) refuse("an __init__ that is no plain function");
    known = {walk_, type, none ? nullptr : init};
    if (log_) log_->constructor(type, known.function);
  }
  PyObject* const init = known.function;
  if (!init && node.parts.size() > 1) refuse("arguments of a class without __init__");
  static PyObject* const no_arguments = PyTuple_New(0);
  const WalkValue made = keep(type->tp_new(type, no_arguments, nullptr));
  objects_.insert(made.object);
  if (log_) log_->constructed(made.object);
  if (!init) return made;
  ++depth_;  // the call of the class
  const WalkValue returned = call_function(init, made, node, frame);
  --depth_;
  if (returned.object != Py_None) refuse("an __init__ that returns something");
  return made;
}

// ---------------------------------------------------------------- random numbers

// As the functions of random.Random draw.
WalkValue Walker::draw(const Drawer& from, const WalkNode& node, Frame& frame) {
  const size_t n = node.parts.size() - 1;
  if (PyTuple_GET_SIZE(node.object.get()) != 0 || n > 3) refuse("a draw with other arguments");
  WalkValue args[3];
  for (size_t i = 0; i < n; ++i) args[i] = evaluate(node.parts[1 + i], frame);
  if (log_) log_->drawn();
  if (!draws_.keep(from)) refuse("a generator whose state is not known");
  const auto number = [&](WalkValue v) {
    Py_ssize_t found;
    if (!as_short_int(v, &found)) refuse("a draw of something else than numbers");
    return found;
  };
  switch (from.kind) {
    case Drawer::random:
      if (n == 0) return call_drawer(from, args, 0);
      break;
    case Drawer::uniform: {
      if (n != 2 || !is_python_value(args[0].object) || !is_python_value(args[1].object)) break;
      const WalkValue width = arithmetic(WalkNode::subtract, args[1], args[0]);
      const WalkValue part =
          call_drawer({Drawer::random, from.generator, from.other(Drawer::random)}, args, 0);
      return arithmetic(WalkNode::add, args[0], arithmetic(WalkNode::multiply, width, part));
    }
    case Drawer::randint:
      if (n == 2) return draw_below(from, number(args[0]), number(args[1]) + 1);
      break;
    case Drawer::randrange:
      if (n == 1 || n == 2) return draw_below(from, n == 2 ? number(args[0]) : 0, number(args[n - 1]));
      break;
    case Drawer::choice: {
      if (n != 1) break;
      const auto size = static_cast<Py_ssize_t>(length(args[0]));
      return element(args[0], static_cast<size_t>(number(draw_below(from, 0, size))));
    }
    case Drawer::numpy:
      return call_drawer(from, args, n);
    default:
      break;
  }
  refuse("a draw with other arguments");
}

// From `first` up to, but not including, `end`.
WalkValue Walker::draw_below(const Drawer& from, Py_ssize_t first, Py_ssize_t end) {
  if (end <= first) refuse("a draw of no number");
  const auto width = static_cast<uint64_t>(end - first);
  const WalkValue bits = keep(PyLong_FromLong(std::bit_width(width)));
  const Drawer of_bits{Drawer::getrandbits, from.generator, from.other(Drawer::getrandbits)};
  for (;;) {
    Py_ssize_t drawn;
    if (!as_short_int(call_drawer(of_bits, &bits, 1), &drawn))
      refuse("a draw of something else than numbers");
    if (drawn < static_cast<Py_ssize_t>(width)) return keep_part(PyLong_FromSsize_t(first + drawn));
  }
}

WalkValue Walker::call_drawer(const Drawer& from, const WalkValue* args, size_t n) {
  PyObject* objects[4] = {from.generator};
  for (size_t i = 0; i < n; ++i) {
    objects[1 + i] = args[i].object;
    if (!args[i].object || !is_python_value(args[i].object)) refuse("a draw of something else than numbers");
  }
  const WalkValue drawn = keep_part(PyObject_Vectorcall(from.function, objects, n + 1, nullptr));
  if (!is_python_value(drawn.object)) refuse("a draw of something else than numbers");
  return drawn;
}

// A call in a replay. Its function is as it was when the walk was written down.
WalkValue Walker::walk_again(PyObject* function, const std::vector<WalkValue>& args) {
  const WalkProgram* program = find_program(PyFunction_GET_CODE(function));
  if (!program || !program->usable || program->parameters.size() != args.size()) refuse("another function");
  WalkValue* slots = take_slots(*program);
  std::copy(args.begin(), args.end(), slots);
  const WalkValue made = call_bound(function, *program, slots);
  if (!assigned_.is_empty() || !appends_.empty()) refuse("a call that does more than record");
  // What it was given has objects of its own in a replay.
  const bool given = std::find(args.begin(), args.end(), made) != args.end();
  if (given || !made.result || made.result->is_sequence())
    refuse("a call that returns something else than before");
  return made;
}

}  // namespace dyc::py
