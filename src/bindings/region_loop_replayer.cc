#include "bindings/region_loop.h"
#include "bindings/tuning.h"

namespace dyc::py {

LoopReplayer::LoopReplayer(Region& region) : region_(region), loop_(*region.spec_.loop) {
  const size_t n = loop_.carried.size();
  carried_.values.resize(n);
  next_.values.resize(n + loop_.appended.size());
  carried_.deferred.resize(n);
  next_.deferred.resize(n);
  left_.resize(loop_.left.size());
}

bool LoopReplayer::record(Graph& graph, LoopIterator* items, PyObject* list) {
  previous_ = nullptr;
  fixed_kept_ = false;
  // Values that names had before the loop, which the region only assigns, are not known here: the script has
  // to release them.
  const bool unknown = items->first_time() &&
                       std::find(loop_.carried.begin(), loop_.carried.end(), kNone) != loop_.carried.end();
  const bool alone = unknown || !may_be_replaced();
  return record_one(graph, items, list) && (alone || record_rest(graph, items, list));
}

// Those after the first. False: an error that ends the script is set.
bool LoopReplayer::record_rest(Graph& graph, LoopIterator* items, PyObject* list) {
  for (size_t i = 1; items->is_pure() && i < tuning::kIterations && may_be_replaced() && items->fetch();
       ++i) {
    const bool unpacked = items->unpack(&arguments);
    if (unpacked && record_one(graph, items, list)) continue;
    if (PyErr_Occurred()) return false;
    items->push_back(unpacked);
    return true;
  }
  if (PyErr_Occurred()) items->save_error();
  return true;
}

// May the values that the next iteration replaces be released without running code of the script?
bool LoopReplayer::may_be_replaced() const {
  for (size_t i = 0; i < loop_.carried.size(); ++i) {
    PyObject* value = loop_.carried[i] == kNone ? carried_.values[i].get() : arguments[loop_.carried[i]];
    if (value && !frees_quietly(value)) return false;
  }
  return true;
}

// False: the iteration must run, or an error that ends the script is set.
bool LoopReplayer::record_one(Graph& graph, LoopIterator* items, PyObject* list) {
  Specialisation* s = nullptr;
  try {
    s = replay(graph);
    if (s) commit_outputs(*s, list);
  } catch (...) {
    set_error();
    s = nullptr;
  }
  if (!s) {
    forget_own_error();
    return false;
  }
  carry();
  items->release();
  return true;
}

void LoopReplayer::commit_outputs(Specialisation& s, PyObject* list) {
  const auto append = [](PyObject* to, const Owned& element) {
    if (PyList_Append(to, element.get()) < 0) throw PythonError();
  };
  Replayer& replayer = region_.replayer_;
  if (list) return append(list, Owned::steal(replayer.build(s.output, s)));
  const size_t n = loop_.carried.size();
  for (size_t i = 0; i < next_.values.size(); ++i) {
    const OutputSpec& output = s.output.parts[i];
    const bool deferred =
        i < n && loop_.carried[i] == kNone && output.number == kNone && output.kind == RegionOutput::recorded;
    if (i < n)
      next_.deferred[i] =
          deferred ? DeferredOutput{s.trace->nodes()[output.at], output.type} : DeferredOutput{};
    next_.values[i] = deferred ? Owned() : Owned::steal(replayer.build(output, s));
  }
  for (size_t i = 0; i < loop_.appended.size(); ++i)
    append(region_.sources_.values.all[loop_.appended[i]], std::exchange(next_.values[n + i], {}));
}

// The results become the arguments of the next iteration.
void LoopReplayer::carry() {
  carried_.deferred.swap(next_.deferred);
  for (size_t i = 0; i < loop_.carried.size(); ++i) {
    carried_.values[i] = std::move(next_.values[i]);
    if (loop_.carried[i] != kNone) arguments[loop_.carried[i]] = carried_.values[i].get();
  }
  for (size_t i = 0; i < left_.size(); ++i) left_[i] = Owned(arguments[loop_.left[i]]);
}

PyObject* LoopReplayer::results() {
  const size_t n = loop_.carried.size();
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(n + left_.size()));
  if (!all) throw PythonError();
  for (size_t i = 0; i < n + left_.size(); ++i) {
    const DeferredOutput deferred = i < n ? carried_.deferred[i] : DeferredOutput{};
    PyObject* each = deferred.type ? make_expression(deferred.node, deferred.type)
                                   : (i < n ? carried_.values[i] : left_[i - n]).release();
    PyTuple_SET_ITEM(all, static_cast<Py_ssize_t>(i), each);
  }
  return all;
}

void LoopReplayer::release() {
  for (std::vector<Owned>* all : {&carried_.values, &next_.values, &left_})
    for (Owned& o : *all)
      if (o) dropped_.push_back(std::exchange(o, {}));
  std::vector<Owned> dropped;
  dropped.swap(dropped_);
  dropped.clear();  // which may call this region
  if (dropped_.empty()) dropped_.swap(dropped);
}

// ---------------------------------------------------------------- one iteration

// Records the iteration, and returns the specialisation that it used; null: its statements must run.
Specialisation* LoopReplayer::replay(Graph& graph) {
  if (previous_ && replay_fast(*previous_, graph)) return previous_;
  Specialisation* s = region_.select(arguments.data(), graph);
  if (s && s == previous_ && !s->fast_path.tried) learn_fast_path(*s, graph);
  previous_ = s;
  if (s) region_.replayer_.replay(*s);
  state_after_ = GraphState(graph);
  return s;
}

bool LoopReplayer::replay_fast(Specialisation& s, Graph& graph) {
  if (!s.fast_path.known || (s.hits + 1) % tuning::kRevalidateEvery == 0) return false;
  if (!(state_after_ == GraphState(graph))) return false;  // garbage collection has run code of the script
  if (!read_varying(s, graph)) return false;
  const CapturedInputs& captured = region_.replayer_.captured;
  const uint32_t before = graph.size();
  if (!s.trace->record_again(graph, captured.inputs.data(), s.fast_path.inputs, captured.placeholders.data()))
    return false;
  ++s.hits;
  ++region_.statistics_.hits;
  ++region_.statistics_.loop_hits;
  region_.replayer_.finish(s, before);
  state_after_ = GraphState(graph);
  return true;
}

// Reads what the item determines, and updates what was captured for the last iteration.
bool LoopReplayer::read_varying(Specialisation& s, const Graph& graph) {
  SourceReader& sources = region_.sources_;
  Replayer& replayer = region_.replayer_;
  const LoopFastPath& path = s.fast_path;
  keep_fixed_values();
  checked_.clear();
  const bool read = sources.read_varying(
      arguments.data(), [&](uint32_t parts) { return replayer.check_parts(s, parts, graph, &checked_); });
  if (!read || !replayer.check(s, path.checked, graph, &checked_)) return false;
  CapturedInputs& captured = replayer.captured;
  for (size_t i = 0; i < path.from.size(); ++i) {
    if (path.from[i] == kNone) continue;
    captured.inputs[i] = s.trace->nodes()[path.from[i]];
    if (path.object_sources[i] != kNone) captured.objects[i] = sources.values.all[path.object_sources[i]];
  }
  for (size_t i = 0; i < path.inputs.size(); ++i) {
    captured.inputs[path.inputs[i]] = checked_.inputs[i];
    captured.objects[path.inputs[i]] = checked_.objects[i];
  }
  for (size_t i = 0; i < path.placeholders.size(); ++i)
    captured.placeholders[path.placeholders[i]] = checked_.placeholders[i];
  return true;
}

// Fixed values are not read again, so they must stay alive.
void LoopReplayer::keep_fixed_values() {
  if (std::exchange(fixed_kept_, true)) return;
  const std::vector<PyObject*>& values = region_.sources_.values.all;
  for (uint32_t i = region_.spec_.n_args; i < values.size(); ++i)
    if (region_.sources_.is_fixed(i)) dropped_.emplace_back(values[i]);
}

// The specialisation runs again right after itself; its trace still has the nodes of the last iteration.
void LoopReplayer::learn_fast_path(Specialisation& s, const Graph& graph) const {
  LoopFastPath& path = s.fast_path = {};
  path.tried = true;
  const SourceReader& sources = region_.sources_;
  if (!sources.lists_are_fixed()) return;
  CapturedInputs all;
  for (const uint32_t source : s.always) {
    const auto first = static_cast<uint32_t>(all.inputs.size());
    const auto placeholder = static_cast<uint32_t>(all.placeholders.size());
    if (!s.guards[source].check(sources.values.all[source], sources.values, graph, &all)) return;
    const auto end = static_cast<uint32_t>(all.inputs.size());
    const bool fixed = sources.is_fixed(source);
    const bool derived = !fixed && derive(s, source, &path.from);
    const bool is_expression = s.guards[source].kind == Guard::expression;
    for (uint32_t i = first; i < end; ++i) {
      if (!derived) path.from.push_back(fixed ? i : kNone);
      if (!derived && !fixed) path.inputs.push_back(i);
      path.object_sources.push_back(derived && is_expression ? source : kNone);
    }
    if (fixed || derived) continue;
    path.checked.push_back(source);
    for (auto i = placeholder; i < all.placeholders.size(); ++i) path.placeholders.push_back(i);
  }
  const NodeId* before = s.trace->nodes();
  path.known = true;
  for (size_t i = 0; i < path.from.size(); ++i)
    path.known &= path.from[i] == kNone || before[path.from[i]] == all.inputs[i];
}

// Appends which nodes of the last iteration are the inputs of this source in the next one. False: the
// source is not an expression or a state that an iteration assigns.
bool LoopReplayer::derive(const Specialisation& s, uint32_t source, std::vector<uint32_t>* from) const {
  const std::vector<uint32_t>& carried = loop_.carried;
  const auto at = std::find(carried.begin(), carried.end(), source);
  if (at == carried.end()) return false;
  const Guard& guard = s.guards[source];
  const OutputSpec& output = s.output.parts[static_cast<size_t>(at - carried.begin())];
  if (guard.kind == Guard::expression &&
      (output.kind == RegionOutput::recorded || output.kind == RegionOutput::input)) {
    from->push_back(output.at);
    return true;
  }
  if (guard.kind != Guard::state || output.kind != RegionOutput::state) return false;
  const std::vector<uint32_t>& positions = s.steps[output.at].positions;
  for (uint32_t i = 0; i < guard.equals.size(); ++i) {
    if (guard.equals[i] != i) continue;
    const auto input = static_cast<uint32_t>(from->size());  // its own number: it does not change
    const bool mask = i >= positions.size();                 // these are the same for the whole sequence
    from->push_back(mask ? input : positions[i]);
  }
  return true;
}

}  // namespace dyc::py
