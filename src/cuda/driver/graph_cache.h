// Lists of operations that repeat, as CUDA graphs: which lists are worth one, and the graphs there are.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "cuda/driver/backend.h"

namespace dyc::cuda {

// A list is identified by everything that a graph keeps: kernels, grids, addresses and sizes, in their order.
// The contents of memory are not part of it.
class GraphCache {
 public:
  using List = std::span<const Backend::Operation>;
  using Graph = void*;

  // make: a graph that does what the list says, or null.
  GraphCache(std::function<Graph(List)> make, std::function<void(Graph)> drop)
      : make_(std::move(make)), drop_(std::move(drop)) {}
  ~GraphCache() { clear(); }
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // The list's graph, made now if it is worth it; null: run the list itself.
  Graph find(List list);
  // Is there a graph, or is the list worth one? Counts that it has come.
  bool is_worth(List list);
  void clear();

 private:
  struct Known {
    uint64_t hash;
    std::vector<Backend::Operation> list;
    Graph graph;
    uint64_t used;  // at this turn
  };
  struct Seen {
    uint64_t hash;
    uint32_t times;
  };
  Known* known(uint64_t hash, List list);
  bool seen_often(uint64_t hash);
  void evict();

  const std::function<Graph(List)> make_;
  const std::function<void(Graph)> drop_;
  std::vector<Known> known_;
  std::vector<Seen> seen_;
  uint64_t turn_ = 0;
};

}  // namespace dyc::cuda
