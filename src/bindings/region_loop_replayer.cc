// LoopReplayer of a loop that are recorded one after the other, without Python.
#include <algorithm>

#include "bindings/region_loop.h"

namespace dyc::py {

namespace {

constexpr size_t kMost = 256;  // in one call; then Python may look for signals

constexpr Py_ssize_t kShort = 16;

// Letting go of it runs no code of the script: sure of what ops return, constants, and short lists of these.
bool is_plain(PyObject* o, bool inside = false) {
  PyTypeObject* type = Py_TYPE(o);
  if (type->tp_dealloc == ExpressionType.tp_dealloc) return true;  // not of a class of the script
  if (type == &RnnStateType || type == &PyLong_Type || o == Py_None) return true;
  if (type == &PyFloat_Type || type == &PyUnicode_Type || type == &PyBool_Type) return true;
  if ((type != &PyTuple_Type && type != &PyList_Type) || inside || Py_SIZE(o) > kShort) return false;
  PyObject** parts = PySequence_Fast_ITEMS(o);
  return std::all_of(parts, parts + Py_SIZE(o), [](PyObject* part) { return is_plain(part, true); });
}

}  // namespace

Region::LoopReplayer::LoopReplayer(Region& t) : region_(t), loop_(*t.loop_) {
  carried_.resize(loop_.carried.size());
  new_carried_.resize(carried_.size() + loop_.appended.size());
  left_.resize(loop_.left.size());
  deferred_.resize(carried_.size());
  new_deferred_.resize(carried_.size());
}

bool Region::LoopReplayer::record(Graph& graph, LoopIterator* items, PyObject* list) {
  previous_ = nullptr;
  fixed_kept_ = false;
  // What names held before the loop that it only assigns is not known here: the script lets go of that.
  const bool unknown = items->first_time() &&
                       std::find(loop_.carried.begin(), loop_.carried.end(), kNone) != loop_.carried.end();
  const bool alone = unknown || !may_be_replaced();
  return record_one(graph, items, list) && (alone || record_rest(graph, items, list));
}

// Those after the first; false: an error that ends the script is set.
bool Region::LoopReplayer::record_rest(Graph& graph, LoopIterator* items, PyObject* list) {
  for (size_t i = 1; items->is_pure() && i < kMost && may_be_replaced() && items->fetch(); ++i) {
    const bool fits = items->unpack(&arguments);
    if (fits && record_one(graph, items, list)) continue;
    if (PyErr_Occurred()) return false;
    items->push_back_item(fits);
    return true;
  }
  if (PyErr_Occurred()) items->save_error();
  return true;
}

// May what goes from one iteration to the next be let go without running code of the script? Else the script
// does that.
bool Region::LoopReplayer::may_be_replaced() const {
  for (size_t i = 0; i < carried_.size(); ++i) {
    PyObject* value = loop_.carried[i] == kNone ? carried_[i].get() : arguments[loop_.carried[i]];
    if (value && !is_plain(value)) return false;
  }
  return true;
}

// False: it must run, or an error that ends the script is set.
bool Region::LoopReplayer::record_one(Graph& graph, LoopIterator* items, PyObject* list) {
  Specialisation* p = nullptr;
  try {
    p = recorded(graph);
    if (p) commit_outputs(*p, list);
  } catch (...) {
    set_error();
    p = nullptr;
  }
  if (!p) {
    forget_error();
    return false;
  }
  carry();
  items->release();
  return true;
}

void Region::LoopReplayer::commit_outputs(Specialisation& p, PyObject* list) {
  const auto append = [](PyObject* to, const Owned& element) {
    if (PyList_Append(to, element.get()) < 0) throw PythonError();
  };
  if (list) return append(list, Owned::steal(region_.build(p.result, p)));
  for (size_t i = 0; i < new_carried_.size(); ++i) {
    const OutputSpec& output = p.result.parts[i];
    const bool late = i < carried_.size() && loop_.carried[i] == kNone && output.number == kNone &&
                      output.kind == RegionOutput::recorded;
    if (i < carried_.size())
      new_deferred_[i] = late ? DeferredOutput{p.trace->nodes()[output.at], output.type} : DeferredOutput{};
    new_carried_[i] = late ? Owned() : Owned::steal(region_.build(output, p));
  }
  for (size_t i = 0; i < loop_.appended.size(); ++i)
    append(region_.values_[loop_.appended[i]], std::exchange(new_carried_[carried_.size() + i], {}));
}

void Region::LoopReplayer::carry() {
  deferred_.swap(new_deferred_);
  for (size_t i = 0; i < carried_.size(); ++i) {
    carried_[i] = std::move(new_carried_[i]);
    if (loop_.carried[i] != kNone) arguments[loop_.carried[i]] = carried_[i].get();
  }
  for (size_t i = 0; i < left_.size(); ++i) left_[i] = Owned(arguments[loop_.left[i]]);
}

PyObject* Region::LoopReplayer::results() {
  const size_t n = carried_.size();
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(n + left_.size()));
  if (!all) throw PythonError();
  for (size_t i = 0; i < n + left_.size(); ++i) {
    const bool late = i < n && deferred_[i].type;
    PyObject* each = late ? make_expression(deferred_[i].node, deferred_[i].type)
                          : (i < n ? carried_[i] : left_[i - n]).release();
    PyTuple_SET_ITEM(all, static_cast<Py_ssize_t>(i), each);
  }
  return all;
}

void Region::LoopReplayer::release() {
  for (std::vector<Owned>* all : {&carried_, &new_carried_, &left_})
    for (Owned& o : *all)
      if (o) dropped_.push_back(std::exchange(o, {}));
  std::vector<Owned> dropped;
  dropped.swap(dropped_);
  dropped.clear();  // which may come back here
  if (dropped_.empty()) dropped_.swap(dropped);
}

// ---------------------------------------------------------------- one after the other

// How the iteration ran, which is recorded; null: it must run.
Region::Specialisation* Region::LoopReplayer::recorded(Graph& graph) {
  if (previous_ && replay_fast(*previous_, graph)) return previous_;
  Specialisation* p = region_.select(arguments.data(), graph);
  if (p && p == previous_ && !p->fast_path.tried) learn_fast_path(*p, graph);
  previous_ = p;
  if (p) region_.replay(*p);
  state_after_ = State(graph);
  return p;
}

// What an iteration leaves behind for the next one needs no guards: it is what it was the last time. So they
// are asked of the item only, and what the block reads besides is not read again.
bool Region::LoopReplayer::replay_fast(Specialisation& p, Graph& graph) {
  if (!p.fast_path.known || (p.hits + 1) % kReview == 0) return false;
  if (!(state_after_ == State(graph))) return false;  // garbage was collected, which ran code of the script
  if (!read_varying(p, graph)) return false;
  const CapturedInputs& captured = region_.captured_;
  const uint32_t before = graph.size();
  if (!p.trace->record_again(graph, captured.inputs.data(), p.fast_path.inputs, captured.placeholders.data()))
    return false;
  ++p.hits;
  ++region_.hits_;
  ++region_.loop_hits_;
  region_.note_replay(p, before);
  state_after_ = State(graph);
  return true;
}

bool Region::LoopReplayer::read_varying(Specialisation& p, const Graph& graph) {
  Region& t = region_;
  const Specialisation::LoopFastPath& fast_path = p.fast_path;
  keep_fixed_values();
  std::copy_n(arguments.begin(), t.n_args_, t.values_.begin());
  varying_inputs_.clear();
  for (const ReadStep& r : t.varying_reads_) {
    if (!(r.parts ? t.read_parts(&t.parts_[r.at]) : t.read_one(r.at))) return false;
    if (r.parts && !t.check_parts(p, r.at, graph, &varying_inputs_)) return false;
  }
  if (!t.check(p, fast_path.checked, graph, &varying_inputs_)) return false;
  for (size_t i = 0; i < fast_path.from.size(); ++i) {
    if (fast_path.from[i] == kNone) continue;
    t.captured_.inputs[i] = p.trace->nodes()[fast_path.from[i]];
    if (fast_path.object_sources[i] != kNone) t.captured_.objects[i] = t.values_[fast_path.object_sources[i]];
  }
  for (size_t i = 0; i < fast_path.inputs.size(); ++i) {
    t.captured_.inputs[fast_path.inputs[i]] = varying_inputs_.inputs[i];
    t.captured_.objects[fast_path.inputs[i]] = varying_inputs_.objects[i];
  }
  for (size_t i = 0; i < fast_path.placeholders.size(); ++i)
    t.captured_.placeholders[fast_path.placeholders[i]] = varying_inputs_.placeholders[i];
  return true;
}

// What does not vary is not read again, so it must not go away.
void Region::LoopReplayer::keep_fixed_values() {
  if (std::exchange(fixed_kept_, true)) return;
  varying_inputs_.appended = region_.captured_.appended;
  for (size_t i = region_.n_args_; i < region_.sources_.size(); ++i)
    if (region_.fixed_[i]) dropped_.emplace_back(region_.values_[i]);
}

// The program runs again, right after itself, and the nodes of its trace are those of before.
void Region::LoopReplayer::learn_fast_path(Specialisation& p, const Graph& graph) const {
  Specialisation::LoopFastPath& fast_path = p.fast_path = {};
  fast_path.tried = true;
  if (!region_.lists_stay_) return;
  CapturedInputs all;
  all.appended = region_.captured_.appended;
  for (const uint32_t source : p.always) {
    const auto first = static_cast<uint32_t>(all.inputs.size());
    const auto placeholder = static_cast<uint32_t>(all.placeholders.size());
    if (!p.guards[source].check(region_.values_[source], region_.values_.data(), graph, &all)) return;
    const auto end = static_cast<uint32_t>(all.inputs.size());
    const bool fixed = region_.fixed_[source];
    const bool derived = !fixed && derive(p, source, &fast_path.from);
    const bool is_expression = p.guards[source].kind == Guard::expression;
    for (uint32_t i = first; i < end; ++i) {
      if (!derived) fast_path.from.push_back(fixed ? i : kNone);
      if (!derived && !fixed) fast_path.inputs.push_back(i);
      fast_path.object_sources.push_back(derived && is_expression ? source : kNone);
    }
    if (fixed || derived) continue;
    fast_path.checked.push_back(source);
    for (auto i = placeholder; i < all.placeholders.size(); ++i) fast_path.placeholders.push_back(i);
  }
  const NodeId* before = p.trace->nodes();
  fast_path.known = true;
  for (size_t i = 0; i < fast_path.from.size(); ++i)
    fast_path.known &= fast_path.from[i] == kNone || before[fast_path.from[i]] == all.inputs[i];
}

// Where the inputs that an argument stands for come from, if it is an expression or a state that the block
// left behind.
bool Region::LoopReplayer::derive(const Specialisation& p, uint32_t source,
                                  std::vector<uint32_t>* from) const {
  const std::vector<uint32_t>& carried = loop_.carried;
  const auto at = std::find(carried.begin(), carried.end(), source);
  if (at == carried.end()) return false;
  const Guard& guard = p.guards[source];
  const OutputSpec& output = p.result.parts[static_cast<size_t>(at - carried.begin())];
  if (guard.kind == Guard::expression &&
      (output.kind == RegionOutput::recorded || output.kind == RegionOutput::input)) {
    from->push_back(output.at);
    return true;
  }
  if (guard.kind != Guard::state || output.kind != RegionOutput::state) return false;
  const std::vector<uint32_t>& positions = p.steps[output.at].positions;
  for (uint32_t i = 0; i < guard.equals.size(); ++i) {
    if (guard.equals[i] != i) continue;
    const auto input = static_cast<uint32_t>(from->size());  // its own number: what it was before
    const bool mask = i >= positions.size();                 // these are the same for the whole sequence
    from->push_back(mask ? input : positions[i]);
  }
  return true;
}

}  // namespace dyc::py
