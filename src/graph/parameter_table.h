// The parameters of one graph: which storages it reads, by which nodes, and the values it sees.
//
// A graph sees a parameter as it was when it first read it (base/storage.h: the buffer is pinned), times the
// factor of weight decay of that moment. Slots, one per storage of the process, survive renewals: an epoch
// says which of them belong to the current graph.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/arena.h"
#include "base/storage.h"
#include "graph/record_cache.h"

namespace dyc {

using NodeId = uint32_t;
constexpr uint32_t kNone = 0xffffffffu;

// Role of a parameter's node: a constant, a value that takes a gradient, or one that lets none pass but shows
// the one that arrives (const_parameter).
constexpr uint32_t kConstant = 0, kUpdated = 1, kStopped = 2;

// A node that is a parameter.
struct ParameterUse {
  Storage* storage;
  NodeId node;
  const float* pinned = nullptr;  // the storage's buffer as of the first use in the graph
  int64_t slot = -1;  // offset in the gradient arena reserved for its gradient, once that was needed
  int64_t gradient =
      -1;               // where the last backward put its gradient: that slot, its offset, or -1: the storage
  bool direct = false;  // the last backward added to the storage's gradient
  bool borrowed = false;  // `pinned` is held by hold() and has no pin of its own yet
  const float* values =
      nullptr;           // what the host reads: `pinned`, or a copy of it times `factor`; null: not read yet
  float factor = 1.f;    // of weight decay
  uint64_t version = 0;  // of what is pinned (Storage::version)
  bool on_device = false;  // when it was pinned, only a device had it
};

class ParameterTable {
 public:
  explicit ParameterTable(Arena& values) : values_(values) {}
  ~ParameterTable() { unpin(); }

  // ---- storages
  bool uses(uint32_t uid) const { return uid < slots_.size() && slots_[uid].epoch == epoch_; }
  // Keeps the storage for as long as this graph.
  void use(const std::shared_ptr<Storage>& storage) {
    if (!uses(storage->uid)) adopt(storage);
  }
  // The same, without counting its users twice.
  void use(std::shared_ptr<Storage>&& storage) {
    if (!uses(storage->uid)) adopt(std::move(storage));
  }
  Storage& storage(uint32_t uid) { return *storages_[slots_[uid].storage]; }
  const std::shared_ptr<Storage>& shared_storage(uint32_t uid) { return storages_[slots_[uid].storage]; }
  // The node of a storage that is used; kNone: not recorded yet.
  NodeId& node(uint32_t uid, uint32_t role) { return slots_[uid].node[role]; }
  // The same of any storage.
  NodeId find(uint32_t uid, uint32_t role) const { return uses(uid) ? slots_[uid].node[role] : kNone; }
  NodeId find(const Storage& storage, uint32_t role) const { return find(storage.uid, role); }
  // Of a parameter and of a lookup of one row: the signature in the tables with this number
  // (Graph::tables()).
  struct KnownSignature {
    uint32_t tables = 0, sig = 0, value_number = 0;
  };
  struct RowLookup {
    uint32_t tables = 0;
    CachedSignature signature = {};
  };
  RowLookup& row_lookup(uint32_t uid, bool update) { return slots_[uid].row_lookup[update]; }
  KnownSignature& parameter_signature(uint32_t uid, uint32_t role) { return slots_[uid].parameter[role]; }

  // ---- nodes
  std::vector<ParameterUse>& all() { return all_; }
  ParameterUse& operator[](uint32_t i) { return all_[i]; }
  uint32_t size() const { return static_cast<uint32_t>(all_.size()); }
  void add(const std::shared_ptr<Storage>& storage, NodeId node) { all_.push_back({storage.get(), node}); }

  // ---- values
  // From now on the graph sees the parameter's values of this moment.
  void pin(ParameterUse& use);
  // Those values. They are on the host, or `fetch` copies them there: fetch(to).
  template <class F>
  const float* values(ParameterUse& use, F fetch) {
    if (use.values) return use.values;
    pin(use);
    if (!use.on_device && use.factor == 1.f) return use.values = use.pinned;
    float* const copy = values_.base() + values_.allocate(use.storage->size(), 16);
    const float* from = use.pinned;
    if (use.on_device) {
      fetch(copy);
      from = copy;
    }
    for (size_t i = 0; i < use.storage->size(); ++i) copy[i] = from[i] * use.factor;
    return use.values = copy;
  }
  const float* values(ParameterUse& use) {
    return values(use, [&use](float* to) { std::copy_n(use.pinned, use.storage->size(), to); });
  }
  void unpin();  // the next use reads current values
  // Values of a storage of this graph, and the factor they are to be multiplied with.
  struct Values {
    const float* raw;
    float factor;
    uint64_t version;  // Storage::version
    bool on_device;    // Storage::on_device
  };
  Values values_of(const Storage& storage) const;
  // Between the two, the graph can be evaluated without the interpreter lock: it reads parameters as they
  // were at hold(), whatever other threads write, and touches nothing they could write to. Both are called
  // with the lock.
  void hold();
  void release();

  // ---- life
  void renew();
  void swap(ParameterTable& other);  // neither holds
  // Drops all but the first `n`; the nodes of the graph end at `nodes`, and its values at offset `top`.
  void revert(uint32_t n, NodeId nodes, int64_t top);

 private:
  void adopt(std::shared_ptr<Storage> storage);

  Arena& values_;
  std::vector<ParameterUse> all_;
  std::vector<std::shared_ptr<Storage>> storages_;  // used in this graph, kept alive
  struct Slot {                                     // of one storage uid
    uint32_t epoch = 0, storage = 0;
    NodeId node[3] = {kNone, kNone, kNone};  // by role
    RowLookup row_lookup[2];                 // by `update`
    KnownSignature parameter[3];             // by role
  };
  std::vector<Slot> slots_;
  uint32_t epoch_ = 1;  // of the current graph
  bool holding_ = false;
  std::vector<Values> held_;  // while holding_: for each of storages_
};

}  // namespace dyc
