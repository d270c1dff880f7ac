// Writes down what a walk reads of the script's objects (region_walk_memo.h).
//
// An object may be read if it is an argument or was read before. What this does not know how to write makes
// the walk no memo.
//
// WalkReads has 30 methods: one for each kind of read.
#pragma once
#include <unordered_map>
#include <unordered_set>

#include "bindings/region_walk.h"
#include "bindings/region_walk_memo.h"

namespace dyc::py {

class WalkReads {
 public:
  virtual ~WalkReads() = default;
  // The walk cannot be a memo.
  void give_up() { is_on_ = false; }
  bool is_on() const { return is_on_; }

  // `value`: what was read; an item may be absent (null).
  void read(MemoRead::Kind kind, PyObject* base, PyObject* key = nullptr, PyObject* value = nullptr);
  void length(PyObject* container);
  void element(PyObject* sequence, size_t i);
  void entries(PyObject* dict);
  void function(PyObject* function, const WalkProgram& program);
  void cell(PyObject* function, uint32_t index, PyObject* value);
  // Its guards are checked.
  // The walk makes objects of the class, which `init` (or null) begins.
  void constructor(PyTypeObject* type, PyObject* init);
  void constructed(PyObject* object) { made_.insert(object); }
  void specialisation(Specialisation& s);
  void guard(const Guard& guard, PyObject* value);
  void builder(PyObject* object, bool starts);
  // The method of the builder sets no rate that is another one.
  void dropout(PyObject* builder, PyObject* method);
  void depth(int depth) {
    if (is_on()) memo_->depth = std::max(memo_->depth, depth);
  }

 protected:
  void begin_reads(PyObject* const* args, size_t n, PyObject* globals, PyObject* builtins);
  virtual void reads_of_state(const Guard& guard, PyObject* state) = 0;
  void keep(PyObject* object) { memo_->kept.emplace_back(object); }

  std::unique_ptr<WalkMemo> memo_;
  std::vector<PyObject*> args_;
  std::unordered_set<PyObject*> known_;             // objects that reads gave
  std::unordered_map<PyObject*, uint32_t> inputs_;  // expressions
  std::vector<NodeId> input_ids_;                   // their nodes, by number
  std::unordered_set<PyObject*> made_;              // objects of the script that the walk makes

 private:
  struct Done {
    uint64_t kind;
    const void *base, *key;
    bool operator==(const Done&) const = default;
  };
  struct HashDone {
    size_t operator()(const Done& d) const;
  };
  bool is_new(uint64_t kind, const void* base, const void* key);
  void read_made(PyObject* value);
  bool find_base(PyObject* base, MemoRead* r);
  MemoRead* add_read(MemoRead::Kind kind, PyObject* base, PyObject* key = nullptr);
  MemoExpected expect(PyObject* value);
  void expect(PyObject* value, MemoRead* r);
  void parameters(PyObject* object);
  uint16_t type_of(PyTypeObject* type);
  uint16_t key_of(PyObject* key);
  void items(PyObject* sequence);
  bool is_of_program(PyObject* o) const;
  void add_guard(const Guard& guard, PyObject* value);
  void guard_items(const Guard& guard, PyObject* value);

  bool is_on_ = false;
  std::unordered_set<Done, HashDone> done_;
  std::unordered_set<const Specialisation*> specialisations_;
  std::unordered_map<PyTypeObject*, uint16_t> types_;
  std::unordered_map<PyObject*, uint16_t> keys_;
  std::unordered_map<NodeId, uint32_t> input_nodes_;
};

}  // namespace dyc::py
