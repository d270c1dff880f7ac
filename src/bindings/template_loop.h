// Loops of a script whose body is a block, and comprehensions whose element is one.
#pragma once
#include <utility>
#include <vector>

#include "bindings/template.h"

namespace dyc::py {

// What a loop goes over: an iterator or, for zip() of lists, their rows.
class LoopItems {
 public:
  LoopItems(const TemplateLoop::Target& target, PyObject* iterable, PyObject* zip);
  // The next item for the script, a new reference; null: there is none, or an error is set.
  PyObject* next();
  // Reads the next item for take_apart(); false: there is none, or an error is set.
  bool fetch();
  // Puts the names that the script would bind into their places among the arguments, borrowed; false where
  // that would run code of the script, or fail.
  bool take_apart(PyObject* item, std::vector<PyObject*>* arguments) const;
  bool take_apart(std::vector<PyObject*>* arguments) const;
  // The item that was read is done.
  void drop() { item_ = Owned(); }
  // The item that was read is the next one of the script; `must_run`: recording it was tried.
  void hand_back(bool must_run);
  // Must the script run for the item that was handed out? Asked once.
  bool must_run() { return std::exchange(must_run_, false); }
  // The error that is set is one of reading the next item.
  void keep_error();
  // Is it the first time that this is asked?
  bool first_time() { return std::exchange(first_time_, false); }
  // Does reading items run no code of the script?
  bool quiet() const { return quiet_; }

 private:
  bool zips_lists(PyObject* iterables, PyObject* zip) const;
  bool fetch_row();
  void hold_row();

  const TemplateLoop::Target& target_;
  Owned iterator_, rows_;   // until it has ended
  std::vector<Owned> row_;  // the item that was read
  Py_ssize_t at_ = 0;       // of the next row
  Owned item_;              // read, and not handed out
  bool first_time_ = true;
  bool quiet_ = false;
  bool must_run_ = false;
  bool failed_ = false;
  Owned type_, value_, traceback_;  // of the error
};

// Iterations recorded one after the other in one call.
class Template::Iterations {
 public:
  explicit Iterations(Template& t);
  // Records iterations, the first with these arguments, and those of the items that follow; elements of a
  // comprehension go to `list`. False: the first must run, or an error is set.
  bool record(Graph& graph, LoopItems* items, PyObject* list);
  // What they left behind: a tuple.
  PyObject* results();
  // When all is done, and the template is free again: may run code of the script.
  void let_go();

  std::vector<PyObject*> arguments;

 private:
  // Of the graph: is anything else than what was recorded here in it, or computed?
  struct State {
    State() = default;
    explicit State(const Graph& g) : generation(g.generation()), size(g.size()), unplaced(g.unplaced()) {}
    bool operator==(const State&) const = default;
    uint32_t generation = 0, size = 0, unplaced = 0;
  };
  bool record_rest(Graph& graph, LoopItems* items, PyObject* list);
  bool record_one(Graph& graph, LoopItems* items, PyObject* list);
  bool may_be_replaced() const;
  void leave_behind(Program& p, PyObject* list);
  void carry();
  Program* recorded(Graph& graph);
  bool record_again(Program& p, Graph& graph);
  bool read_again(Program& p, const Graph& graph);
  void learn_again(Program& p, const Graph& graph) const;
  bool derive(const Program& p, uint32_t slot, std::vector<uint32_t>* from) const;
  void hold_fixed();

  Template& template_;
  const TemplateLoop& loop_;
  std::vector<Owned> carried_, fresh_;  // what the last iteration left behind, and the present one
  // Expressions among these that no later iteration reads are made at the end: their nodes, if types are set.
  struct Late {
    NodeId node = 0;
    PyTypeObject* type = nullptr;
  };
  std::vector<Late> late_, fresh_late_;
  std::vector<Owned> left_;    // names of the target
  Program* before_ = nullptr;  // how the last iteration ran
  State after_;                // that it left behind
  bool held_ = false;
  std::vector<Owned> dropped_;
  Reads asked_;
};

}  // namespace dyc::py
