// What loops go over, and loops and comprehensions for Python.
//
// A loop of the script goes over an object that hands out the items, and calls the template with what the
// block reads. That records the block for this item, and for all that follow until one must run; what they
// leave behind is returned. An iterator that runs code of the script is not asked for more than one item at a
// time.
#include "bindings/region_loop.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "bindings/arguments.h"

namespace dyc::py {

namespace {

// Does asking the iterator for an item run no code of the script? What it refers to is told by what the
// collector of garbage is told.
bool runs_no_code(PyObject* o) {
  static PyTypeObject* const pure[] = {&PyListIter_Type,      &PyTupleIter_Type,   &PyRangeIter_Type,
                                       &PyLongRangeIter_Type, &PyListRevIter_Type, &PyUnicodeIter_Type,
                                       &PyLong_Type};
  PyTypeObject* type = Py_TYPE(o);
  if (o == Py_None || std::find(std::begin(pure), std::end(pure), type) != std::end(pure)) return true;
  if (type != &PyZip_Type && type != &PyEnum_Type && type != &PyTuple_Type) return false;
  const auto visit = [](PyObject* part, void*) { return runs_no_code(part) ? 0 : 1; };
  return type->tp_traverse(o, visit, nullptr) == 0;
}

}  // namespace

// ---------------------------------------------------------------- items

LoopIterator::LoopIterator(const RegionLoop::Target& target, PyObject* iterable, PyObject* zip)
    : target_(target) {
  if (zip && zips_lists(iterable, zip)) {
    rows_ = Owned(iterable);
    row_.resize(target.parts.size());
    pure_ = true;
    return;
  }
  const Owned all = zip ? Owned::steal(PyObject_Call(zip, iterable, nullptr)) : Owned(iterable);
  if (all) iterator_ = Owned::steal(PyObject_GetIter(all.get()));
  if (!iterator_) throw PythonError();
  pure_ = runs_no_code(iterator_.get());
}

// Does zip() make rows that the target takes apart, each time in the same way?
bool LoopIterator::zips_lists(PyObject* iterables, PyObject* zip) const {
  const size_t n = target_.parts.size();
  if (zip != reinterpret_cast<PyObject*>(&PyZip_Type) || n == 0) return false;
  if (PyTuple_GET_SIZE(iterables) != static_cast<Py_ssize_t>(n)) return false;
  PyObject** each = PySequence_Fast_ITEMS(iterables);
  return std::all_of(each, each + n,
                     [](PyObject* o) { return PyList_CheckExact(o) || PyTuple_CheckExact(o); });
}

PyObject* LoopIterator::next() {
  if (std::exchange(failed_, false)) {
    PyErr_Restore(type_.release(), value_.release(), traceback_.release());
    return nullptr;
  }
  if (!item_) {
    if (!fetch()) return nullptr;
    pack_row();
  }
  return item_.release();
}

bool LoopIterator::fetch() {
  if (rows_) return fetch_row();
  if (!iterator_) return false;
  item_ = Owned::steal(PyIter_Next(iterator_.get()));
  if (!item_) iterator_ = Owned();
  return static_cast<bool>(item_);
}

bool LoopIterator::fetch_row() {
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
void LoopIterator::pack_row() {
  if (row_.empty()) return;
  item_ = Owned::steal(PyTuple_New(static_cast<Py_ssize_t>(row_.size())));
  if (!item_) throw PythonError();
  for (size_t i = 0; i < row_.size(); ++i)
    PyTuple_SET_ITEM(item_.get(), static_cast<Py_ssize_t>(i), row_[i].release());
}

void LoopIterator::push_back_item(bool must_run) {
  pack_row();
  must_run_ = must_run;
}

void LoopIterator::save_error() {
  failed_ = true;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  type_ = Owned::steal(type);
  value_ = Owned::steal(value);
  traceback_ = Owned::steal(traceback);
}

namespace {

bool bind(const RegionLoop::Target& target, PyObject* value, std::vector<PyObject*>* arguments) {
  if (target.argument != kNone) (*arguments)[target.argument] = value;
  if (target.parts.empty()) return true;
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return false;
  if (Py_SIZE(value) != static_cast<Py_ssize_t>(target.parts.size())) return false;
  for (size_t i = 0; i < target.parts.size(); ++i)
    if (!bind(target.parts[i], PySequence_Fast_ITEMS(value)[i], arguments)) return false;
  return true;
}

}  // namespace

bool LoopIterator::unpack(PyObject* item, std::vector<PyObject*>* arguments) const {
  return bind(target_, item, arguments);
}

bool LoopIterator::unpack(std::vector<PyObject*>* arguments) const {
  if (row_.empty()) return bind(target_, item_.get(), arguments);
  for (size_t i = 0; i < row_.size(); ++i)
    if (!bind(target_.parts[i], row_[i].get(), arguments)) return false;
  return true;
}

// ---------------------------------------------------------------- calls

// Nothing runs between the two but what takes an item apart: where that is code of the script, or another
// thread, the item may not be the last one that was handed out.
void Region::set_pending_item(LoopIterator* items, PyObject* reads) {
  pending_item_ = {items, reads, PyThreadState_Get()};
}

void Region::forget_items(const LoopIterator* items) {
  if (pending_item_.items == items) pending_item_ = {};
}

// Null: the script must run for this item, or an error is set.
PyObject* Region::call_in_loop(PyObject* const* args, size_t n) {
  const PendingItem last = std::exchange(pending_item_, {});
  if (!last.items || last.thread != PyThreadState_Get()) return nullptr;
  try {
    return last.reads ? collect(last.items, last.reads, args, n) : iterate(last.items, args, n);
  } catch (...) {
    set_error();
    return nullptr;
  }
}

// ---------------------------------------------------------------- comprehensions

PyObject* Region::collect(LoopIterator* items, PyObject* reads, PyObject* const* args, size_t n) {
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
  LoopReplayer& all = *loop_replayer_;
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
  all.release();
  if (!recorded && PyErr_Occurred()) throw PythonError();
  return recorded ? list.release() : nullptr;
}

// ---------------------------------------------------------------- loops

// Records iterations, the first with these arguments, and returns what they leave behind; null: the first
// must run, or an error is set.
PyObject* Region::iterate(LoopIterator* items, PyObject* const* args, size_t n) {
  if (items->must_run()) return nullptr;
  Engine* e = n < loop_->n_added ? nullptr : ready(n - loop_->n_added);
  if (!e) return nullptr;
  loop_replayer_->arguments.assign(args, args + n);
  PyObject* results = nullptr;
  {
    const Busy busy(this);
    if (loop_replayer_->record(e->graph, items, nullptr)) results = loop_replayer_->results();
  }
  loop_replayer_->release();
  return results;
}

const RegionLoop& Region::loop() const {
  if (loop_) return *loop_;
  PyErr_SetString(PyExc_TypeError, "the block is not the body of a loop");
  throw PythonError();
}

namespace {

// What the loop of the script goes over. The loop alone keeps it, as it keeps any iterator; the template
// knows who has handed out an item until it is called with that.
struct PyLoopIterator {
  PyObject_HEAD LoopIterator* core;
  PyObject* owner;  // of the template
  Region* region;
  PyObject* reads;  // of a comprehension; null: a loop of statements
};

PyTypeObject LoopIteratorType = blank_type();

PyLoopIterator* items_in(PyObject* o) { return reinterpret_cast<PyLoopIterator*>(o); }

PyObject* next(PyObject* self) {
  return guarded([&] {
    const PyLoopIterator* items = items_in(self);
    PyObject* item = items->core->next();
    items->region->set_pending_item(item ? items->core : nullptr, items->reads);
    return item;
  });
}

void dealloc(PyObject* self) {
  PyLoopIterator* items = items_in(self);
  items->region->forget_items(items->core);
  if (items->reads) items->region->discard_session();  // of an element that failed
  delete items->core;
  Py_XDECREF(items->reads);
  Py_DECREF(items->owner);
  Py_TYPE(self)->tp_free(self);
}

}  // namespace

PyObject* make_loop(PyObject* owner, Region* region, PyObject* iterable, PyObject* zip, PyObject* reads) {
  auto items = std::make_unique<LoopIterator>(region->loop().target, iterable, zip);
  PyObject* made = LoopIteratorType.tp_alloc(&LoopIteratorType, 0);
  if (!made) throw PythonError();
  items_in(made)->core = items.release();
  items_in(made)->owner = Owned(owner).release();
  items_in(made)->region = region;
  items_in(made)->reads = Owned(reads).release();
  return made;
}

void add_region_loops() {
  PyTypeObject& t = LoopIteratorType;
  t.tp_name = "_dynet._LoopIterator";
  t.tp_basicsize = sizeof(PyLoopIterator);
  t.tp_flags = Py_TPFLAGS_DEFAULT;
  t.tp_dealloc = dealloc;
  t.tp_iter = PyObject_SelfIter;
  t.tp_iternext = next;
  t.tp_doc = "The items of a loop whose body is a block.";
  if (PyType_Ready(&t) < 0) throw PythonError();
}

}  // namespace dyc::py
