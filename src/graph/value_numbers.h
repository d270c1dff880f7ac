// Value numbering: nodes that compute the same value from the same parameters and constants have the same
// number, and only the first of them is computed. 0: a value that may differ from one instance to the next.
//
// Parameters and constants keep their numbers. What is computed from them has a number as long as the graph
// lives, and mostly longer, so that signatures of products with such weights stay the same; but a script that
// grows trees from parameters computes other values in every graph, so these numbers begin again when they
// are many.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/intern.h"
#include "graph/tuning.h"

namespace dyc {

class ValueNumbers {
 public:
  // Number of the parameter or constant with that signature.
  uint32_t number_of_leaf(uint32_t sig) { return 2 * leaves_.intern(&sig, 1) + 1; }
  // Number of the value that these words describe: a signature, numbers of arguments, indices.
  uint32_t number(const uint32_t* words, uint32_t n) { return 2 * computed_.intern(words, n) + 2; }
  // The node of the current graph with that number. If there is none, `next` becomes it and is returned.
  uint32_t node(uint32_t number, uint32_t next) {
    if (number >= nodes_.size()) nodes_.resize(number + 64);
    Numbered& known = nodes_[number];
    if (known.epoch != epoch_ || known.node >= next) known = {epoch_, next};
    return known.node;
  }
  // The same, but where there is none it changes nothing.
  uint32_t find(uint32_t number, uint32_t next) const {
    if (number >= nodes_.size() || nodes_[number].epoch != epoch_) return next;
    return nodes_[number].node < next ? nodes_[number].node : next;
  }
  // A graph begins. True: numbers of computed values begin again.
  bool renew() {
    ++epoch_;
    if (computed_.size() <= tuning::kMostNumbers) return false;
    computed_.clear();
    return true;
  }
  // Nodes from `size` on are gone.
  void revert(uint32_t size) {
    for (Numbered& v : nodes_)
      if (v.epoch == epoch_ && v.node >= size) v.epoch = 0;
  }

 private:
  struct Numbered {
    uint32_t epoch = 0, node = 0;
  };
  InternTable leaves_, computed_;
  std::vector<Numbered> nodes_;  // by number
  uint32_t epoch_ = 1;           // of the current graph
};

}  // namespace dyc
