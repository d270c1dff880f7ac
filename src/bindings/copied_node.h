// The node that values in other memory are a copy of.
#pragma once
#include "bindings/compute.h"

namespace dyc::py {

class CopiedNode {
 public:
  CopiedNode() = default;
  explicit CopiedNode(NodeId id)
      : id_(id),
        generation_(engine().graph.generation()),
        graph_(engine().graph.number),
        invalidations_(engine().invalidations()) {}

  // Its values on the host, where they may come from the device with those of other nodes; null: the graph of
  // this thread has others by now, or none.
  const float* values() const {
    if (id_ == kNone || !this_thread) return nullptr;
    Engine& e = engine();
    const Graph& g = e.graph;
    if (generation_ != g.generation() && !(graph_ == g.number && g.keeps(id_, generation_))) return nullptr;
    return invalidations_ == e.invalidations() ? e.computed_value(id_) : nullptr;
  }

 private:
  NodeId id_ = kNone;
  uint32_t generation_ = 0, graph_ = 0, invalidations_ = 0;
};

}  // namespace dyc::py
