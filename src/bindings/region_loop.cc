#include "bindings/region_loop.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "bindings/signatures.h"

namespace dyc::py {

namespace {

// Does fetching an item from the iterator run no code of the script? tp_traverse shows what it iterates over.
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
    lists_ = Owned(iterable);
    items_.resize(target.parts.size());
    pure_ = true;
    return;
  }
  const Owned all = zip ? Owned::steal(PyObject_Call(zip, iterable, nullptr)) : Owned(iterable);
  if (all) iterator_ = Owned::steal(PyObject_GetIter(all.get()));
  if (!iterator_) throw PythonError();
  pure_ = runs_no_code(iterator_.get());
}

// Would the target unpack the items of these lists as it unpacks the tuples of zip()?
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
    pack_items();
  }
  return item_.release();
}

bool LoopIterator::fetch() {
  if (lists_) return fetch_from_lists();
  if (!iterator_) return false;
  item_ = Owned::steal(PyIter_Next(iterator_.get()));
  if (!item_) iterator_ = Owned();
  return static_cast<bool>(item_);
}

bool LoopIterator::fetch_from_lists() {
  for (size_t i = 0; i < items_.size(); ++i) {
    PyObject* each = PyTuple_GET_ITEM(lists_.get(), static_cast<Py_ssize_t>(i));
    if (next_index_ >= Py_SIZE(each)) {
      lists_ = Owned();
      return false;
    }
    items_[i] = Owned(PySequence_Fast_ITEMS(each)[next_index_]);
  }
  ++next_index_;
  return true;
}

// Makes a tuple of the items, as the lists may change when the script runs.
void LoopIterator::pack_items() {
  if (items_.empty()) return;
  item_ = Owned::steal(PyTuple_New(static_cast<Py_ssize_t>(items_.size())));
  if (!item_) throw PythonError();
  for (size_t i = 0; i < items_.size(); ++i)
    PyTuple_SET_ITEM(item_.get(), static_cast<Py_ssize_t>(i), items_[i].release());
}

void LoopIterator::push_back(bool must_run) {
  pack_items();
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

bool LoopIterator::unpack(std::vector<PyObject*>* arguments) const {
  if (items_.empty()) return bind(target_, item_.get(), arguments);
  for (size_t i = 0; i < items_.size(); ++i)
    if (!bind(target_.parts[i], items_[i].get(), arguments)) return false;
  return true;
}

// ---------------------------------------------------------------- the Python type

namespace {

// Only the loop of the script refers to it, as to any iterator. The region has a borrowed pointer while an
// item that was returned has not been passed to it.
struct PyLoopIterator {
  PyObject_HEAD LoopIterator* core;
  PyObject* owner;  // of the region
  Region* region;
  PyObject* reads;  // of a comprehension; null: a loop of statements
};

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

PyTypeObject LoopIteratorType =
    static_type({"_dynet._LoopIterator", "The items of a loop whose body is a region.",
                 sizeof(PyLoopIterator), dealloc, nullptr, nullptr, nullptr, 0});

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
  LoopIteratorType.tp_iter = PyObject_SelfIter;
  LoopIteratorType.tp_iternext = next;
  if (PyType_Ready(&LoopIteratorType) < 0) throw PythonError();
}

}  // namespace dyc::py
