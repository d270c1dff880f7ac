// A walk from its beginning to its end, or the replay of one.
#include <algorithm>

#include "bindings/python_compat.h"
#include "bindings/region_walk_log.h"
#include "bindings/region_walk_replay.h"
#include "bindings/tuning.h"

namespace dyc::py {

Walker::Walker() : logs_(std::make_unique<WalkLog>()), replays_(std::make_unique<MemoReplay>(*this)) {}
Walker::~Walker() = default;

PyObject* Walker::run(WalkProgram& program, PyObject* recording, PyObject* const* args, size_t n,
                      MemoTable& memos, const MemoFound& found, bool walks) {
  if (running_) return nullptr;
  clear();
  recording_ = recording;
  unknown_ = Owned();
  learning_ = was_replayed_ = false;
  comparing_ = found.reviews;
  has_walked_ = true;  // or would have
  engine_ = engine_or_error();
  if (!engine_) {
    forget_own_error();
    return nullptr;
  }
  const size_t expected = program.parameters.size() + program.free.size();
  if (engine_->options.immediate || n != expected || is_traced()) return nullptr;
  globals_ = PyEval_GetGlobals();
  builtins_ = PyEval_GetBuiltins();
  if (stack_.empty()) stack_.resize(tuning::kWalkDepth * tuning::kWalkFrame);
  ++walk_;
  depth_ = 0;
  spent_ = 0;
  stack_start_ = stack_pointer();
  most_depth_ = std::min(tuning::kWalkDepth, remaining_depth() - tuning::kWalkMargin);
  running_ = true;
  PyObject* made = found.memo && !comparing_ ? replay(memos, *found.memo, args, n) : nullptr;
  was_replayed_ = made != nullptr;
  has_walked_ = !made && !PyErr_Occurred() && (walks || found.writes || comparing_);
  if (has_walked_) {
    log_ = found.writes ? logs_.get() : nullptr;
    if (log_) log_->begin(*engine_, args, n, globals_, builtins_);
    made = or_revert([&] { return walk(program, args, n); });
    if (log_ && made) memos.add(found.key, log_->take());
    log_ = nullptr;
  }
  running_ = false;
  if (!kept_.empty()) const std::vector<Owned> released = std::move(kept_);  // may run code, which may walk
  return made;
}

// The nodes of a walk are counted at its end and as a region's, whatever recorded them.
class CountsOfWalk {
 public:
  explicit CountsOfWalk(Engine& engine)
      : engine_(engine),
        region_nodes_(engine.timing.region_nodes),
        builder_nodes_(engine.timing.builder_nodes),
        on_recorded_(std::exchange(Engine::on_recorded, nullptr)) {}
  ~CountsOfWalk() { Engine::on_recorded = on_recorded_; }
  CountsOfWalk(const CountsOfWalk&) = delete;
  CountsOfWalk& operator=(const CountsOfWalk&) = delete;

  void add(uint32_t nodes) {
    engine_.timing.region_nodes = region_nodes_ + nodes;
    engine_.timing.builder_nodes = builder_nodes_;
  }

 private:
  Engine& engine_;
  const uint64_t region_nodes_, builder_nodes_;  // before
  void (*const on_recorded_)(const Engine&);
};

// What f() returns; null: it was refused or failed, and all that it has recorded is taken back.
template <class F>
PyObject* Walker::or_revert(F f) {
  Graph& g = engine_->graph;
  const GraphMark before = g.mark();
  CountsOfWalk counts(*engine_);
  RnnBuilder::StepLog steps(g);
  size_ = g.size();
  PyObject* made = nullptr;
  try {
    const WithoutCollection none;
    made = f();
  } catch (const Refused&) {
  } catch (...) {
    set_error();
  }
  if (!made) {
    forget_own_error();
    if (g.size() != size_) g.revert(before);
    steps.take_back();
    draws_.put_back();
  }
  counts.add(made ? recorded_ : 0);
  draws_.forget();
  clear();
  return made;
}

PyObject* Walker::walk(WalkProgram& program, PyObject* const* args, size_t n) {
  WalkValue* slots = take_slots(program);
  for (size_t i = 0; i < n; ++i) slots[i] = {args[i]};
  const WalkValue returned = call(program, slots);
  if (returned.object == Py_Ellipsis) refuse("what stands for nothing recorded");
  learning_ = comparing_;
  if (comparing_) refuse("regions that are compared");
  return finish(returned);
}

PyObject* Walker::replay(MemoTable& memos, WalkMemo& memo, PyObject* const* args, size_t n) {
  PyObject* made = or_revert([&]() -> PyObject* {
    replays_->begin(memo, args, n);
    return replays_->fits() ? replays_->run() : nullptr;
  });
  if (made) memos.count_replay();
  else memos.count_misfit(&memo);
  return made;
}

void Walker::clear() {
  for (size_t i = 0; i < n_results_; ++i) {
    WalkResult& r = result(i);
    if (r.kind != WalkResult::recorded) r.items.clear();
    if (r.made) r.made = Owned();
  }
  n_results_ = n_stack_ = 0;
  used_.clear();
  appends_.clear();
  appended_.clear();
  objects_.clear();
  for (AssignedAttributes::Entry& each : assigned_.take()) kept_.push_back(std::move(each.object));
}

void Walker::add_results() {
  if (n_results_ == tuning::kWalkResults) refuse("too many results");
  results_.push_back(std::make_unique<WalkResult[]>(tuning::kResultChunk));
}

// ---------------------------------------------------------------- the end

// `is_last`: the walk does not change the value after this, so that the object made now stays its object.
PyObject* Walker::object_of(WalkValue value, bool is_last, int depth) {
  if (depth > tuning::kWalkNesting) refuse("lists deep inside one another");
  if (value.object) return Owned(value.object).release();
  WalkResult* r = value.result;
  if (r->made) return Owned(r->made.get()).release();
  Owned made;
  if (r->kind == WalkResult::recorded) {
    made = Owned::steal(make_expression(r->id, r->type));
  } else {
    const auto n = static_cast<Py_ssize_t>(r->items.size());
    const bool tuple = r->kind == WalkResult::tuple;
    made = Owned::steal(tuple ? PyTuple_New(n) : PyList_New(n));
    if (is_last) r->made = made;  // which may be in itself
    for (Py_ssize_t i = 0; made && i < n; ++i) {
      PyObject* part = object_of(r->items[static_cast<size_t>(i)], is_last, depth + 1);
      if (tuple) PyTuple_SET_ITEM(made.get(), i, part);
      else PyList_SET_ITEM(made.get(), i, part);
    }
  }
  if (!made) throw PythonError();
  if (is_last || !r->is_sequence()) r->made = made;
  return made.release();
}

PyObject* Walker::finish(WalkValue returned) {
  Graph& g = engine_->graph;
  const std::vector<AssignedAttributes::Entry> assigned = assigned_.take();
  if (log_) log_->finish(returned, appends_, assigned);
  std::vector<Owned> values, attributes;
  for (const auto& [list, value] : appends_) values.push_back(Owned::steal(object_of(value)));
  for (const auto& [object, name, value] : assigned) attributes.push_back(Owned::steal(object_of(value)));
  PyObject* result = object_of(returned);
  for (RegionUse* use : used_) {
    use->region.statistics_.hits += std::exchange(use->replays, 0);
    use->region.walked_ = true;
  }
  recorded_ = g.size() - size_;
  if (g.size() > size_) engine_->recorded(g.size() - 1);
  for (size_t i = 0; i < appends_.size(); ++i)
    if (PyList_Append(appends_[i].first, values[i].get()) < 0) PyErr_Clear();
  for (size_t i = 0; i < assigned.size(); ++i) {
    const auto& [object, name, value] = assigned[i];
    // The replaced value is kept until the walk ends, as releasing it may run code.
    PyObject* old = objects_.contains(object.get()) ? nullptr : attribute_or_null(object.get(), name);
    if (old) kept_.push_back(Owned::steal(old));
    kept_.push_back(object);
    if (PyObject_SetAttr(object.get(), name, attributes[i].get()) < 0) PyErr_Clear();
  }
  return result;
}

}  // namespace dyc::py
