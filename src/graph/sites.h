// Sites, phases and rounds. A site stands for a place in the program: a batch key
// refined by the sites of the arguments. Sites persist. While recording, the graph of sites is learned; a
// phase is the topological number of one of its strongly connected components, so that a loop is one phase.
//
// round(n) = max over pending arguments a of the same phase of round(a) + [site(a) >= site(n)].
// Running buckets (phase, round, site) in key order is a legal schedule for any numbering of sites; phases
// only decide how many launches there are, and are derived again when an edge contradicts them.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/intern.h"

namespace dyc {

struct Site {
  uint32_t batch_key = 0;
  uint16_t depth = 0;                         // nesting of refinement
  std::vector<uint32_t> ancestor_keys;        // refined sites: its own and those of its refined ancestors
  bool complete = false;                      // the key holds all producers: no edge can be new
  uint32_t recent[4] = {~0u, ~0u, ~0u, ~0u};  // producers seen lately
  std::vector<uint32_t> producers;
  // Buckets of the current graph: of round 0, which most sites have no other than, and of the rounds from 1.
  uint32_t first_bucket = 0;
  uint32_t epoch = 0, later_epoch = 0;  // graphs that these belong to
  std::vector<uint32_t> later_buckets;
};

class Sites {
 public:
  // The site of a batch key that is not refined. `leaf`: of nodes without arguments.
  uint32_t plain(uint32_t batch_key, bool leaf = false);
  // Batch key refined by its argument sites in order (or as a set, for long lists). An argument that descends
  // from the same batch key without passing a weight closes a recurrence (c = f.c' + i.g): it counts as
  // "itself", so that the recurrence has one site, not one per step.
  uint32_t refined(uint32_t batch_key, const uint32_t* arg_sites, uint32_t n);

  Site& operator[](uint32_t id) { return sites_[id]; }
  const Site& operator[](uint32_t id) const { return sites_[id]; }
  uint32_t phase(uint32_t id) const { return phases_[id]; }
  uint32_t size() const { return static_cast<uint32_t>(sites_.size()); }

  // An edge producer -> site was recorded.
  void edge(uint32_t producer, uint32_t site) {
    Site& s = sites_[site];
    if (s.complete) return;
    uint32_t& recent = s.recent[producer & 3];
    if (recent == producer) return;
    recent = producer;
    add_edge(producer, s);
  }
  // New sites, or edges that contradict the phases, since these were derived?
  bool changed() const { return changed_; }
  void derive_phases();
  // How often that was done.
  uint32_t derived() const { return derived_; }

 private:
  void add_edge(uint32_t producer, Site& s);
  uint32_t token(uint32_t batch_key, uint32_t arg_site) const;
  void add_refined(uint32_t batch_key, const uint32_t* tokens, uint32_t n);
  InternTable keys_;
  std::vector<Site> sites_;
  std::vector<uint32_t> phases_;  // beside sites_
  uint32_t derived_ = 0;
  bool changed_ = false;
};

}  // namespace dyc
