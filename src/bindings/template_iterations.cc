// Iterations of a loop that are recorded one after the other, without Python.
#include <algorithm>

#include "bindings/template_loop.h"

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

Template::Iterations::Iterations(Template& t) : template_(t), loop_(*t.loop_) {
  carried_.resize(loop_.carried.size());
  fresh_.resize(carried_.size() + loop_.appended.size());
  left_.resize(loop_.left.size());
  late_.resize(carried_.size());
  fresh_late_.resize(carried_.size());
}

bool Template::Iterations::record(Graph& graph, LoopItems* items, PyObject* list) {
  before_ = nullptr;
  held_ = false;
  // What names held before the loop that it only assigns is not known here: the script lets go of that.
  const bool unknown = items->first_time() &&
                       std::find(loop_.carried.begin(), loop_.carried.end(), kNone) != loop_.carried.end();
  const bool alone = unknown || !may_be_replaced();
  return record_one(graph, items, list) && (alone || record_rest(graph, items, list));
}

// Those after the first; false: an error that ends the script is set.
bool Template::Iterations::record_rest(Graph& graph, LoopItems* items, PyObject* list) {
  for (size_t i = 1; items->quiet() && i < kMost && may_be_replaced() && items->fetch(); ++i) {
    const bool fits = items->take_apart(&arguments);
    if (fits && record_one(graph, items, list)) continue;
    if (PyErr_Occurred()) return false;
    items->hand_back(fits);
    return true;
  }
  if (PyErr_Occurred()) items->keep_error();
  return true;
}

// May what goes from one iteration to the next be let go without running code of the script? Else the script
// does that.
bool Template::Iterations::may_be_replaced() const {
  for (size_t i = 0; i < carried_.size(); ++i) {
    PyObject* value = loop_.carried[i] == kNone ? carried_[i].get() : arguments[loop_.carried[i]];
    if (value && !is_plain(value)) return false;
  }
  return true;
}

// False: it must run, or an error that ends the script is set.
bool Template::Iterations::record_one(Graph& graph, LoopItems* items, PyObject* list) {
  Program* p = nullptr;
  try {
    p = recorded(graph);
    if (p) leave_behind(*p, list);
  } catch (...) {
    set_error();
    p = nullptr;
  }
  if (!p) {
    forget_error();
    return false;
  }
  carry();
  items->drop();
  return true;
}

void Template::Iterations::leave_behind(Program& p, PyObject* list) {
  const auto append = [](PyObject* to, const Owned& element) {
    if (PyList_Append(to, element.get()) < 0) throw PythonError();
  };
  if (list) return append(list, Owned::steal(template_.build(p.result, p)));
  for (size_t i = 0; i < fresh_.size(); ++i) {
    const Made& made = p.result.parts[i];
    const bool late = i < carried_.size() && loop_.carried[i] == kNone && made.number == kNone &&
                      made.kind == TemplateResult::recorded;
    if (i < carried_.size()) fresh_late_[i] = late ? Late{p.pattern->nodes()[made.at], made.type} : Late{};
    fresh_[i] = late ? Owned() : Owned::steal(template_.build(made, p));
  }
  for (size_t i = 0; i < loop_.appended.size(); ++i)
    append(template_.values_[loop_.appended[i]], std::exchange(fresh_[carried_.size() + i], {}));
}

void Template::Iterations::carry() {
  late_.swap(fresh_late_);
  for (size_t i = 0; i < carried_.size(); ++i) {
    carried_[i] = std::move(fresh_[i]);
    if (loop_.carried[i] != kNone) arguments[loop_.carried[i]] = carried_[i].get();
  }
  for (size_t i = 0; i < left_.size(); ++i) left_[i] = Owned(arguments[loop_.left[i]]);
}

PyObject* Template::Iterations::results() {
  const size_t n = carried_.size();
  PyObject* all = PyTuple_New(static_cast<Py_ssize_t>(n + left_.size()));
  if (!all) throw PythonError();
  for (size_t i = 0; i < n + left_.size(); ++i) {
    const bool late = i < n && late_[i].type;
    PyObject* each =
        late ? make_expression(late_[i].node, late_[i].type) : (i < n ? carried_[i] : left_[i - n]).release();
    PyTuple_SET_ITEM(all, static_cast<Py_ssize_t>(i), each);
  }
  return all;
}

void Template::Iterations::let_go() {
  for (std::vector<Owned>* all : {&carried_, &fresh_, &left_})
    for (Owned& o : *all)
      if (o) dropped_.push_back(std::exchange(o, {}));
  std::vector<Owned> dropped;
  dropped.swap(dropped_);
  dropped.clear();  // which may come back here
  if (dropped_.empty()) dropped_.swap(dropped);
}

// ---------------------------------------------------------------- one after the other

// How the iteration ran, which is recorded; null: it must run.
Template::Program* Template::Iterations::recorded(Graph& graph) {
  if (before_ && record_again(*before_, graph)) return before_;
  Program* p = template_.known(arguments.data(), graph);
  if (p && p == before_ && !p->again.tried) learn_again(*p, graph);
  before_ = p;
  if (p) template_.replay(*p);
  after_ = State(graph);
  return p;
}

// What an iteration leaves behind for the next one needs no guards: it is what it was the last time. So they
// are asked of the item only, and what the block reads besides is not read again.
bool Template::Iterations::record_again(Program& p, Graph& graph) {
  if (!p.again.known || (p.hits + 1) % kReview == 0) return false;
  if (!(after_ == State(graph))) return false;  // garbage was collected, which ran code of the script
  if (!read_again(p, graph)) return false;
  const Reads& reads = template_.reads_;
  const uint32_t before = graph.size();
  if (!p.pattern->record_again(graph, reads.inputs.data(), p.again.inputs, reads.holes.data())) return false;
  ++p.hits;
  ++template_.hits_;
  ++template_.again_hits_;
  template_.note_replay(p, before);
  after_ = State(graph);
  return true;
}

bool Template::Iterations::read_again(Program& p, const Graph& graph) {
  Template& t = template_;
  const Program::Again& again = p.again;
  hold_fixed();
  std::copy_n(arguments.begin(), t.n_args_, t.values_.begin());
  asked_.clear();
  for (const Read& r : t.varying_) {
    if (!(r.parts ? t.read_parts(&t.parts_[r.at]) : t.read_one(r.at))) return false;
    if (r.parts && !t.parts_hold(p, r.at, graph, &asked_)) return false;
  }
  if (!t.hold(p, again.asked, graph, &asked_)) return false;
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
void Template::Iterations::hold_fixed() {
  if (std::exchange(held_, true)) return;
  asked_.appended = template_.reads_.appended;
  for (size_t i = template_.n_args_; i < template_.slots_.size(); ++i)
    if (template_.fixed_[i]) dropped_.emplace_back(template_.values_[i]);
}

// The program runs again, right after itself, and the nodes of its pattern are those of before.
void Template::Iterations::learn_again(Program& p, const Graph& graph) const {
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
      if (!derived) again.from.push_back(fixed ? i : kNone);
      if (!derived && !fixed) again.inputs.push_back(i);
      again.objects.push_back(derived && is_expression ? slot : kNone);
    }
    if (fixed || derived) continue;
    again.asked.push_back(slot);
    for (auto i = hole; i < all.holes.size(); ++i) again.holes.push_back(i);
  }
  const NodeId* before = p.pattern->nodes();
  again.known = true;
  for (size_t i = 0; i < again.from.size(); ++i)
    again.known &= again.from[i] == kNone || before[again.from[i]] == all.inputs[i];
}

// Where the inputs that an argument stands for come from, if it is an expression or a state that the block
// left behind.
bool Template::Iterations::derive(const Program& p, uint32_t slot, std::vector<uint32_t>* from) const {
  const std::vector<uint32_t>& carried = loop_.carried;
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
    const auto input = static_cast<uint32_t>(from->size());  // its own number: what it was before
    const bool mask = i >= places.size();                    // these are the same for the whole sequence
    from->push_back(mask ? input : places[i]);
  }
  return true;
}

}  // namespace dyc::py
