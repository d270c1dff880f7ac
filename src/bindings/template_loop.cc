// What loops go over, and loops and comprehensions for Python.
//
// A loop of the script goes over an object that hands out the items, and calls the template with what the
// block reads. That records the block for this item, and for all that follow until one must run; what they
// leave behind is returned. An iterator that runs code of the script is not asked for more than one item at a
// time.
#include "bindings/template_loop.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "bindings/arguments.h"

namespace dyc::py {

namespace {

// Does asking the iterator for an item run no code of the script? What it refers to is told by what the
// collector of garbage is told.
bool runs_no_code(PyObject* o) {
  static PyTypeObject* const quiet[] = {&PyListIter_Type,      &PyTupleIter_Type,   &PyRangeIter_Type,
                                        &PyLongRangeIter_Type, &PyListRevIter_Type, &PyUnicodeIter_Type,
                                        &PyLong_Type};
  PyTypeObject* type = Py_TYPE(o);
  if (o == Py_None || std::find(std::begin(quiet), std::end(quiet), type) != std::end(quiet)) return true;
  if (type != &PyZip_Type && type != &PyEnum_Type && type != &PyTuple_Type) return false;
  const auto visit = [](PyObject* part, void*) { return runs_no_code(part) ? 0 : 1; };
  return type->tp_traverse(o, visit, nullptr) == 0;
}

}  // namespace

// ---------------------------------------------------------------- items

LoopItems::LoopItems(const TemplateLoop::Target& target, PyObject* iterable, PyObject* zip)
    : target_(target) {
  if (zip && zips_lists(iterable, zip)) {
    rows_ = Owned(iterable);
    row_.resize(target.parts.size());
    quiet_ = true;
    return;
  }
  const Owned all = zip ? Owned::steal(PyObject_Call(zip, iterable, nullptr)) : Owned(iterable);
  if (all) iterator_ = Owned::steal(PyObject_GetIter(all.get()));
  if (!iterator_) throw PythonError();
  quiet_ = runs_no_code(iterator_.get());
}

// Does zip() make rows that the target takes apart, each time in the same way?
bool LoopItems::zips_lists(PyObject* iterables, PyObject* zip) const {
  const size_t n = target_.parts.size();
  if (zip != reinterpret_cast<PyObject*>(&PyZip_Type) || n == 0) return false;
  if (PyTuple_GET_SIZE(iterables) != static_cast<Py_ssize_t>(n)) return false;
  PyObject** each = PySequence_Fast_ITEMS(iterables);
  return std::all_of(each, each + n,
                     [](PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); });
}

PyObject* LoopItems::next() {
  if (std::exchange(failed_, false)) {
    PyErr_Restore(type_.release(), value_.release(), traceback_.release());
    return nullptr;
  }
  if (!item_) {
    if (!fetch()) return nullptr;
    hold_row();
  }
  return item_.release();
}

bool LoopItems::fetch() {
  if (rows_) return fetch_row();
  if (!iterator_) return false;
  item_ = Owned::steal(PyIter_Next(iterator_.get()));
  if (!item_) iterator_ = Owned();
  return static_cast<bool>(item_);
}

bool LoopItems::fetch_row() {
  for (size_t i = 0; i < row_.size(); ++i) {
    PyObject* each = PyTuple_GET_ITEM(rows_.get(), static_cast<Py_ssize_t>(i));
    if (at_ >= Py_SIZE(each)) {
      rows_ = Owned();
      return false;
    }
    row_[i] = Owned(PySequence_Fast_ITEMS(each)[at_]);
  }
  ++at_;
  return true;
}

// The lists may change when the script runs.
void LoopItems::hold_row() {
  if (row_.empty()) return;
  item_ = Owned::steal(PyTuple_New(static_cast<Py_ssize_t>(row_.size())));
  if (!item_) throw PythonError();
  for (size_t i = 0; i < row_.size(); ++i)
    PyTuple_SET_ITEM(item_.get(), static_cast<Py_ssize_t>(i), row_[i].release());
}

void LoopItems::hand_back(bool must_run) {
  hold_row();
  must_run_ = must_run;
}

void LoopItems::keep_error() {
  failed_ = true;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  type_ = Owned::steal(type);
  value_ = Owned::steal(value);
  traceback_ = Owned::steal(traceback);
}

namespace {

bool bind(const TemplateLoop::Target& target, PyObject* value, std::vector<PyObject*>* arguments) {
  if (target.argument != kNone) (*arguments)[target.argument] = value;
  if (target.parts.empty()) return true;
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return false;
  if (Py_SIZE(value) != static_cast<Py_ssize_t>(target.parts.size())) return false;
  for (size_t i = 0; i < target.parts.size(); ++i)
    if (!bind(target.parts[i], PySequence_Fast_ITEMS(value)[i], arguments)) return false;
  return true;
}

}  // namespace

bool LoopItems::take_apart(PyObject* item, std::vector<PyObject*>* arguments) const {
  return bind(target_, item, arguments);
}

bool LoopItems::take_apart(std::vector<PyObject*>* arguments) const {
  if (row_.empty()) return bind(target_, item_.get(), arguments);
  for (size_t i = 0; i < row_.size(); ++i)
    if (!bind(target_.parts[i], row_[i].get(), arguments)) return false;
  return true;
}

// ---------------------------------------------------------------- calls

// Nothing runs between the two but what takes an item apart: where that is code of the script, or another
// thread, the item may not be the last one that was handed out.
void Template::handed_out(LoopItems* items, PyObject* reads) {
  handed_out_ = {items, reads, PyThreadState_Get()};
}

void Template::forget(const LoopItems* items) {
  if (handed_out_.items == items) handed_out_ = {};
}

// Null: the script must run for this item, or an error is set.
PyObject* Template::call_in_loop(PyObject* const* args, size_t n) {
  const HandedOut last = std::exchange(handed_out_, {});
  if (!last.items || last.thread != PyThreadState_Get()) return nullptr;
  try {
    return last.reads ? collect(last.items, last.reads, args, n) : iterate(last.items, args, n);
  } catch (...) {
    set_error();
    return nullptr;
  }
}

// ---------------------------------------------------------------- comprehensions

PyObject* Template::collect(LoopItems* items, PyObject* reads, PyObject* const* args, size_t n) {
  if (items->must_run()) return nullptr;
  Engine* e = ready(n_args_);
  if (!e) return nullptr;
  const Owned values = Owned::steal(PyObject_CallNoArgs(reads));
  if (!values) {
    if (!is_unbound_name()) throw PythonError();
    PyErr_Clear();  // then the element fails when it runs, if it reads that name
    return nullptr;
  }
  const auto more = static_cast<size_t>(PyTuple_GET_SIZE(values.get()));
  if (n + more != n_args_) return nullptr;
  Iterations& all = *iterations_;
  all.arguments.assign(args, args + n);
  all.arguments.insert(all.arguments.end(), PySequence_Fast_ITEMS(values.get()),
                       PySequence_Fast_ITEMS(values.get()) + more);
  Owned list = Owned::steal(PyList_New(0));
  if (!list) throw PythonError();
  bool recorded;
  {
    const Busy busy(this);
    recorded = all.record(e->graph, items, list.get());
  }
  all.let_go();
  if (!recorded && PyErr_Occurred()) throw PythonError();
  return recorded ? list.release() : nullptr;
}

// ---------------------------------------------------------------- loops

// Records iterations, the first with these arguments, and returns what they leave behind; null: the first
// must run, or an error is set.
PyObject* Template::iterate(LoopItems* items, PyObject* const* args, size_t n) {
  if (items->must_run()) return nullptr;
  Engine* e = n < loop_->n_added ? nullptr : ready(n - loop_->n_added);
  if (!e) return nullptr;
  iterations_->arguments.assign(args, args + n);
  PyObject* results = nullptr;
  {
    const Busy busy(this);
    if (iterations_->record(e->graph, items, nullptr)) results = iterations_->results();
  }
  iterations_->let_go();
  return results;
}

const TemplateLoop& Template::loop() const {
  if (loop_) return *loop_;
  PyErr_SetString(PyExc_TypeError, "the block is not the body of a loop");
  throw PythonError();
}

namespace {

// What the loop of the script goes over. The loop alone keeps it, as it keeps any iterator; the template
// knows who has handed out an item until it is called with that.
struct PyItems {
  PyObject_HEAD LoopItems* core;
  PyObject* owner;  // of the template
  Template* block;
  PyObject* reads;  // of a comprehension; null: a loop of statements
};

PyTypeObject ItemsType = blank_type();

PyItems* items_in(PyObject* o) { return reinterpret_cast<PyItems*>(o); }

PyObject* next(PyObject* self) {
  return guarded([&] {
    const PyItems* items = items_in(self);
    PyObject* item = items->core->next();
    items->block->handed_out(item ? items->core : nullptr, items->reads);
    return item;
  });
}

void dealloc(PyObject* self) {
  PyItems* items = items_in(self);
  items->block->forget(items->core);
  if (items->reads) items->block->drop();  // of an element that failed
  delete items->core;
  Py_XDECREF(items->reads);
  Py_DECREF(items->owner);
  Py_TYPE(self)->tp_free(self);
}

}  // namespace

PyObject* make_loop(PyObject* owner, Template* block, PyObject* iterable, PyObject* zip, PyObject* reads) {
  auto items = std::make_unique<LoopItems>(block->loop().target, iterable, zip);
  PyObject* made = ItemsType.tp_alloc(&ItemsType, 0);
  if (!made) throw PythonError();
  items_in(made)->core = items.release();
  items_in(made)->owner = Owned(owner).release();
  items_in(made)->block = block;
  items_in(made)->reads = Owned(reads).release();
  return made;
}

void add_template_loops() {
  PyTypeObject& t = ItemsType;
  t.tp_name = "_dynet._LoopItems";
  t.tp_basicsize = sizeof(PyItems);
  t.tp_flags = Py_TPFLAGS_DEFAULT;
  t.tp_dealloc = dealloc;
  t.tp_iter = PyObject_SelfIter;
  t.tp_iternext = next;
  t.tp_doc = "The items of a loop whose body is a block.";
  if (PyType_Ready(&t) < 0) throw PythonError();
}

}  // namespace dyc::py
