// Values that a script reads one by one although it recorded them all before (the scores of a chart, the
// losses of a minibatch) are computed together: from the second read of a site on, a read also computes the
// nodes of that site which were recorded after it. As in a file's read-ahead, the window grows with each read
// that was not served by it, so that at most a few times as many values are computed as are read.
#pragma once
#include <span>
#include <vector>

#include "graph/graph.h"

namespace dyc {

class ReadAhead {
 public:
  // `id` is read and not computed yet. Returns it, and nodes of its site in [id, end) that would have the
  // same values if they were computed later: none that needs a parameter which the graph has not read yet, or
  // a table's row that was looked up after `id`. All nodes below `first_pending` are computed. Ascending;
  // valid until the next call.
  std::span<const NodeId> nodes(Graph& graph, NodeId id, NodeId first_pending, NodeId end);

 private:
  struct Window {
    uint32_t version = 0xffffffffu;  // of the graph it belongs to
    uint32_t size = 0;               // nodes to compute ahead; 0: read once so far
    uint32_t skip = 0;               // reads that do not look ahead
    uint32_t misses = 0;             // how often nothing was found
  };
  void find_site(Graph& graph, NodeId id, NodeId end, size_t most);
  void drop_unsettled(Graph& graph, NodeId first_pending);
  bool unsettled(Graph& graph, NodeId id) const;

  std::vector<Window> windows_;  // by site
  std::vector<NodeId> nodes_;
  std::vector<uint8_t> unsettled_;  // by node, from first_ on
  NodeId first_ = 0;
};

}  // namespace dyc
