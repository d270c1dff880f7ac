// A loop whose body is a block: iterations are recorded one after the other in one call, without Python.
//
// The script goes over an object that hands out the items, and calls it with what the block reads. That
// records the block for this item, and for all that follow until one must run; what they leave behind is
// returned. An iterator that runs code of the script is not asked for more than one item at a time.
#include <algorithm>
#include <cstddef>

#include "bindings/arguments.h"
#include "bindings/template.h"

namespace dyc::py {

namespace {

constexpr size_t kMost = 256;  // iterations in one call; then Python may look for signals

// Neither when it is asked for an item nor when an item is let go: what it refers to is told by what the
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

// Letting go of it runs no code of the script.
bool is_plain(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  return type == &ExpressionType || type == &RnnStateType || type == &PyLong_Type || type == &PyFloat_Type ||
         type == &PyUnicode_Type || o == Py_None;
}

}  // namespace

class Template::Loop {
 public:
  Loop(PyObject* self, Template& t, PyObject* iterable)
      : self_(self), template_(t), iterator_(Owned::steal(PyObject_GetIter(iterable))) {
    if (!iterator_) throw PythonError();
    quiet_ = runs_no_code(iterator_.get());
    carried_.resize(t.loop_->carried.size());
    fresh_.resize(carried_.size() + t.loop_->appended.size());
    left_.resize(t.loop_->left.size());
  }
  // The next item that the script binds its names to; null: there is none, or an error is set.
  PyObject* next() {
    if (failed_) {
      PyErr_Restore(type_.release(), value_.release(), traceback_.release());
      failed_ = false;
      return nullptr;
    }
    if (!item_ && !fetch()) return nullptr;
    return item_.release();
  }
  PyObject* run(PyObject* const* args, size_t n);
  PyObject* collect(PyObject* run, PyObject* reads);

 private:
  bool fetch();
  bool collect_from(PyObject* item, PyObject* reads);
  void collect_ran(PyObject* item, PyObject* run);
  bool start(Graph& graph);
  bool take_apart(const TemplateLoop::Target& target, PyObject* value);
  bool record_rest(Graph& graph);
  bool iterate(Graph& graph);
  Program* recorded(Graph& graph);
  bool record_again(Program& p, Graph& graph);
  bool read_again(Program& p, const Graph& graph);
  void learn_again(Program& p, const Graph& graph) const;
  bool derive(const Program& p, uint32_t slot, std::vector<uint32_t>* from) const;
  void hold_fixed();
  void note_left();
  void add(PyObject* element);
  PyObject* results();

  Owned self_;
  Template& template_;
  Owned iterator_;  // until it has ended
  Owned item_;      // read, and not handed out
  bool quiet_ = false;
  bool must_run_ = false;  // the item that is handed out, or will be next
  bool failed_ = false;    // reading an item did, with this error
  Owned type_, value_, traceback_;
  std::vector<PyObject*> arguments_;    // of the block
  std::vector<Owned> carried_, fresh_;  // what the last iteration left behind, and the present one
  std::vector<Owned> left_;             // names of the target
  Owned list_;                          // of a comprehension
  // In one call: how the last iteration ran, and what is let go when all is done.
  Program* before_ = nullptr;
  bool held_ = false;
  std::vector<Owned> dropped_;
  Reads asked_;
};

bool Template::Loop::fetch() {
  if (!iterator_) return false;
  item_ = Owned::steal(PyIter_Next(iterator_.get()));
  if (!item_) iterator_ = Owned();
  return static_cast<bool>(item_);
}

// Only what Python takes apart without running code of the script.
bool Template::Loop::take_apart(const TemplateLoop::Target& target, PyObject* value) {
  if (target.argument != kNone) arguments_[target.argument] = value;
  if (target.parts.empty()) return true;
  if (!PyTuple_CheckExact(value) && !PyList_CheckExact(value)) return false;
  if (Py_SIZE(value) != static_cast<Py_ssize_t>(target.parts.size())) return false;
  for (size_t i = 0; i < target.parts.size(); ++i)
    if (!take_apart(target.parts[i], PySequence_Fast_ITEMS(value)[i])) return false;
  return true;
}

void Template::Loop::note_left() {
  const std::vector<uint32_t>& left = template_.loop_->left;
  for (size_t i = 0; i < left.size(); ++i) left_[i] = Owned(arguments_[left[i]]);
}

// Records one iteration; false: it must run.
bool Template::Loop::iterate(Graph& graph) {
  const TemplateLoop& loop = *template_.loop_;
  try {
    Program* p = recorded(graph);
    if (!p) return false;
    if (list_) add(Owned::steal(template_.build(p->result, *p)).get());
    for (size_t i = 0; i < fresh_.size(); ++i)
      fresh_[i] = Owned::steal(template_.build(p->result.parts[i], *p));
    for (size_t i = 0; i < loop.appended.size(); ++i) {
      Owned& element = fresh_[carried_.size() + i];
      if (PyList_Append(template_.values_[loop.appended[i]], element.get()) < 0) throw PythonError();
      element = Owned();
    }
  } catch (...) {
    set_error();
    // As in Template::call.
    if (PyErr_ExceptionMatches(PyExc_Exception)) PyErr_Clear();
    return false;
  }
  for (size_t i = 0; i < carried_.size(); ++i) {
    std::swap(carried_[i], fresh_[i]);
    if (fresh_[i] && !is_plain(fresh_[i].get())) dropped_.push_back(std::move(fresh_[i]));
    fresh_[i] = Owned();
    if (loop.carried[i] != kNone) arguments_[loop.carried[i]] = carried_[i].get();
  }
  note_left();
  item_ = Owned();
  return true;
}

// ---------------------------------------------------------------- one iteration after the other

// How the iteration ran, which is recorded; null: it must run.
Template::Program* Template::Loop::recorded(Graph& graph) {
  if (before_ && record_again(*before_, graph)) return before_;
  Program* p = template_.known(arguments_.data(), graph);
  if (p && p == before_ && !p->again.tried) learn_again(*p, graph);
  before_ = p;
  if (p) template_.replay(*p);
  return p;
}

// What an iteration leaves behind for the next one needs no guards: it is what it was the last time. So they
// are asked of the item only, and what the block reads besides is not read again.
bool Template::Loop::record_again(Program& p, Graph& graph) {
  if (!p.again.known || (p.hits + 1) % kReview == 0) return false;
  if (!read_again(p, graph)) return false;
  const Reads& reads = template_.reads_;
  const std::vector<uint32_t>& asked = p.again.inputs;
  const uint32_t before = graph.size();
  if (!p.pattern->record_again(graph, reads.inputs.data(), asked.empty() ? kNone : reads.inputs[asked[0]],
                               reads.holes.data()))
    return false;
  ++p.hits;
  ++template_.hits_;
  ++template_.again_hits_;
  template_.note_replay(p, before);
  return true;
}

bool Template::Loop::read_again(Program& p, const Graph& graph) {
  Template& t = template_;
  const Program::Again& again = p.again;
  hold_fixed();
  std::copy_n(arguments_.begin(), t.n_args_, t.values_.begin());
  asked_.clear();
  for (const Read& r : t.again_) {
    if (!(r.parts ? t.read_parts(&t.parts_[r.at]) : t.read_one(r.at))) return false;
    if (r.parts && !t.parts_hold(p, r.at, graph, &asked_)) return false;
  }
  for (const uint32_t slot : again.asked)
    if (!p.guards[slot].holds(t.values_[slot], t.values_.data(), graph, &asked_)) return false;
  for (size_t i = 0; i < again.from.size(); ++i) {
    if (again.from[i] == kNone) continue;
    t.reads_.inputs[i] = p.pattern->nodes()[again.from[i]];
    if (again.objects[i] != kNone) t.reads_.objects[i] = t.values_[again.objects[i]];
  }
  for (size_t i = 0; i < again.inputs.size(); ++i) {
    t.reads_.inputs[again.inputs[i]] = asked_.inputs[i];
    t.reads_.objects[again.inputs[i]] = asked_.objects[i];
  }
  for (size_t i = 0; i < again.holes.size(); ++i) t.reads_.holes[again.holes[i]] = asked_.holes[i];
  return true;
}

// What does not vary is not read again, so it must not go away.
void Template::Loop::hold_fixed() {
  if (std::exchange(held_, true)) return;
  asked_.appended = template_.reads_.appended;
  for (size_t i = template_.n_args_; i < template_.slots_.size(); ++i)
    if (template_.fixed_[i]) dropped_.emplace_back(template_.values_[i]);
}

// The program runs again, right after itself, and the nodes of its pattern are those of before.
void Template::Loop::learn_again(Program& p, const Graph& graph) const {
  Program::Again& again = p.again = {};
  again.tried = true;
  if (!template_.lists_stay_) return;
  Reads all;
  all.appended = template_.reads_.appended;
  for (const uint32_t slot : p.always) {
    const auto first = static_cast<uint32_t>(all.inputs.size());
    const auto hole = static_cast<uint32_t>(all.holes.size());
    if (!p.guards[slot].holds(template_.values_[slot], template_.values_.data(), graph, &all)) return;
    const auto end = static_cast<uint32_t>(all.inputs.size());
    const bool fixed = template_.fixed_[slot];
    const bool derived = !fixed && derive(p, slot, &again.from);
    const bool is_expression = p.guards[slot].kind == Guard::expression;
    for (uint32_t i = first; i < end; ++i) {
      if (fixed) again.from.push_back(i);
      if (!fixed && !derived) again.from.push_back(kNone), again.inputs.push_back(i);
      again.objects.push_back(derived && is_expression ? slot : kNone);
    }
    if (fixed || derived) continue;
    again.asked.push_back(slot);
    for (auto i = hole; i < all.holes.size(); ++i) again.holes.push_back(i);
  }
  const NodeId* before = p.pattern->nodes();
  again.known = again.inputs.size() <= 1;
  for (size_t i = 0; i < again.from.size(); ++i)
    again.known &= again.from[i] == kNone || before[again.from[i]] == all.inputs[i];
}

// Where the inputs that an argument stands for come from, if it is an expression or a state that the block
// left behind.
bool Template::Loop::derive(const Program& p, uint32_t slot, std::vector<uint32_t>* from) const {
  const std::vector<uint32_t>& carried = template_.loop_->carried;
  const auto at = std::find(carried.begin(), carried.end(), slot);
  if (at == carried.end()) return false;
  const Guard& guard = p.guards[slot];
  const Made& made = p.result.parts[static_cast<size_t>(at - carried.begin())];
  if (guard.kind == Guard::expression &&
      (made.kind == TemplateResult::recorded || made.kind == TemplateResult::input)) {
    from->push_back(made.at);
    return true;
  }
  if (guard.kind != Guard::state || made.kind != TemplateResult::state) return false;
  const std::vector<uint32_t>& places = p.steps[made.at].places;
  for (uint32_t i = 0; i < guard.equals.size(); ++i) {
    if (guard.equals[i] != i) continue;
    // What follows the nodes of the step are masks, the same for the whole sequence.
    from->push_back(i < places.size() ? places[i] : static_cast<uint32_t>(from->size()));
  }
  return true;
}

PyObject* Template::Loop::results() {
  const size_t n = carried_.size();
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(n + left_.size()));
  if (!all) throw PythonError();
  for (size_t i = 0; i < n + left_.size(); ++i)
    PyTuple_SET_ITEM(all, static_cast<Py_ssize_t>(i), (i < n ? carried_[i] : left_[i - n]).release());
  return all;
}

// Records iterations, the first with these arguments, and returns what they leave behind; null: the first
// must run, or an error is set.
PyObject* Template::Loop::run(PyObject* const* args, size_t n) {
  if (std::exchange(must_run_, false)) return nullptr;
  const size_t added = template_.loop_->n_added;
  Engine* e = n < added ? nullptr : template_.ready(n - added);
  if (!e) return nullptr;
  arguments_.assign(args, args + n);
  PyObject* made = nullptr;
  if (start(e->graph)) made = results();
  const auto dropped = std::exchange(dropped_, {});  // which may run code of the script
  return made;
}

// With these arguments; false: the first iteration must run, or an error is set.
bool Template::Loop::start(Graph& graph) {
  const Busy busy(&template_);
  before_ = nullptr;
  held_ = false;
  return iterate(graph) && record_rest(graph);
}

// Those after the first; false: an error that ends the script is set.
bool Template::Loop::record_rest(Graph& graph) {
  for (size_t i = 1; quiet_ && i < kMost && fetch(); ++i) {
    if (!take_apart(template_.loop_->target, item_.get())) return true;
    must_run_ = !iterate(graph);
    if (must_run_) return !PyErr_Occurred();
  }
  if (!PyErr_Occurred()) return true;
  failed_ = true;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  type_ = Owned::steal(type);
  value_ = Owned::steal(value);
  traceback_ = Owned::steal(traceback);
  return true;
}

// ---------------------------------------------------------------- comprehensions

void Template::Loop::add(PyObject* element) {
  if (PyList_Append(list_.get(), element) < 0) throw PythonError();
}

// The list of elements. `run(item)` is the element as it was written, `reads()` the arguments of the block
// after those that are parts of the item.
PyObject* Template::Loop::collect(PyObject* run, PyObject* reads) {
  list_ = Owned::steal(PyList_New(0));
  if (!list_) throw PythonError();
  while (const Owned item = Owned::steal(next()))
    if (!collect_from(item.get(), reads)) collect_ran(item.get(), run);
  if (PyErr_Occurred()) throw PythonError();
  return list_.release();
}

// Records the elements of this item and those that follow; false: this one must run.
bool Template::Loop::collect_from(PyObject* item, PyObject* reads) {
  if (std::exchange(must_run_, false)) return false;
  Engine* e = template_.ready(template_.n_args_);
  if (!e) return false;
  arguments_.assign(template_.n_args_, nullptr);
  if (!take_apart(template_.loop_->target, item)) return false;
  const Owned values = Owned::steal(PyObject_CallNoArgs(reads));
  if (!values) {  // then the element fails when it runs
    if (!PyErr_ExceptionMatches(PyExc_Exception)) throw PythonError();
    PyErr_Clear();
    return false;
  }
  const Py_ssize_t n = PyTuple_GET_SIZE(values.get());
  for (Py_ssize_t i = 0; i < n; ++i)
    arguments_[arguments_.size() - static_cast<size_t>(n - i)] = PyTuple_GET_ITEM(values.get(), i);
  const bool recorded = start(e->graph);
  const auto dropped = std::exchange(dropped_, {});
  if (!recorded && PyErr_Occurred()) throw PythonError();
  return recorded;
}

void Template::Loop::collect_ran(PyObject* item, PyObject* run) {
  const Owned element = Owned::steal(PyObject_CallOneArg(run, item));
  if (!element) throw PythonError();
  template_.done(element.get());
  add(element.get());
}

PyObject* Template::map(PyObject* iterable, PyObject* run, PyObject* reads) {
  return make_loop(nullptr, iterable)->collect(run, reads);
}

std::unique_ptr<Template::Loop> Template::make_loop(PyObject* self, PyObject* iterable) {
  if (!loop_) {
    PyErr_SetString(PyExc_TypeError, "the block is not the body of a loop");
    throw PythonError();
  }
  return std::make_unique<Loop>(self, *this, iterable);
}

// ---------------------------------------------------------------- the Python type

struct PyLoop {
  PyObject_HEAD vectorcallfunc call;
  Template::Loop* core;
};

namespace {

PyTypeObject LoopType = blank_type();

PyLoop* loop_in(PyObject* o) { return reinterpret_cast<PyLoop*>(o); }

// What the iterations leave behind, or None: then the script runs.
PyObject* run(PyObject* self, PyObject* const* args, size_t n, PyObject*) {
  return guarded([&] {
    PyObject* results = loop_in(self)->core->run(args, static_cast<size_t>(PyVectorcall_NARGS(n)));
    return results || PyErr_Occurred() ? results : Owned(Py_None).release();
  });
}

PyObject* next(PyObject* self) { return loop_in(self)->core->next(); }

void dealloc(PyObject* self) {
  delete loop_in(self)->core;
  Py_TYPE(self)->tp_free(self);
}

}  // namespace

PyObject* Template::loop(PyObject* self, PyObject* iterable) {
  auto core = make_loop(self, iterable);
  PyObject* made = LoopType.tp_alloc(&LoopType, 0);
  if (!made) throw PythonError();
  loop_in(made)->call = run;
  loop_in(made)->core = core.release();
  return made;
}

void add_template_loops() {
  PyTypeObject& t = LoopType;
  t.tp_name = "_dynet._Loop";
  t.tp_basicsize = sizeof(PyLoop);
  t.tp_vectorcall_offset = offsetof(PyLoop, call);
  t.tp_call = PyVectorcall_Call;
  t.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL;
  t.tp_dealloc = dealloc;
  t.tp_iter = PyObject_SelfIter;
  t.tp_iternext = next;
  t.tp_doc = "Items of a loop whose body is a block, which it records when it is called.";
  if (PyType_Ready(&t) < 0) throw PythonError();
}

}  // namespace dyc::py
