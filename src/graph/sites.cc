#include "graph/sites.h"

#include <algorithm>

#include "graph/components.h"
#include "graph/tuning.h"

namespace dyc {

uint32_t Sites::plain(uint32_t batch_key, bool leaf) {
  const uint32_t key[2] = {batch_key, 0xffffffffu};
  bool fresh;
  const uint32_t id = keys_.intern(key, 2, &fresh);
  if (fresh) {
    sites_.emplace_back();
    phases_.push_back(0);
    sites_.back().batch_key = batch_key;
    changed_ = changed_ || !leaf;  // leaves may as well come before all others
  }
  return id;
}

namespace {

constexpr uint32_t kItself = 0xfffffffeu;
constexpr uint32_t kKeyOnly = 0x80000000u;  // with its batch key: an argument that is refined too deeply
// Derivations after which a program counts as one that keeps making sites. Results do not depend on it.
constexpr uint32_t kDerivedOften = 64;
constexpr uint32_t kPhaseGap = 16;  // between phases that are derived

}  // namespace

uint32_t Sites::token(uint32_t batch_key, uint32_t arg_site) const {
  const Site& a = sites_[arg_site];
  if (std::find(a.ancestor_keys.begin(), a.ancestor_keys.end(), batch_key) != a.ancestor_keys.end())
    return kItself;
  return a.depth >= tuning::kSiteDepth ? kKeyOnly | a.batch_key : arg_site;
}

uint32_t Sites::refined(uint32_t batch_key, const uint32_t* arg_sites, uint32_t n) {
  uint32_t key[tuning::kMostProducers + 1] = {batch_key};
  uint32_t count = 0;
  if (n <= tuning::kOrderedProducers) {
    for (uint32_t i = 0; i < n; ++i) key[++count] = token(batch_key, arg_sites[i]);
  } else {  // the set of argument sites
    uint32_t last = ~0u;
    for (uint32_t i = 0; i < n; ++i) {
      if (arg_sites[i] == last) continue;
      last = arg_sites[i];
      const uint32_t t = token(batch_key, last);
      if (std::find(key + 1, key + 1 + count, t) != key + 1 + count) continue;
      if (count == tuning::kMostProducers) return plain(batch_key);
      key[++count] = t;
    }
    std::sort(key + 1, key + 1 + count);
  }
  bool fresh;
  const uint32_t id = keys_.intern(key, count + 1, &fresh);
  if (fresh) add_refined(batch_key, key + 1, count);
  return id;
}

void Sites::add_refined(uint32_t batch_key, const uint32_t* tokens, uint32_t n) {
  Site s;
  s.batch_key = batch_key;
  s.complete = true;
  s.ancestor_keys = {batch_key};
  for (uint32_t i = 0; i < n; ++i) {
    if (tokens[i] >= kKeyOnly) {  // its producers are known only when nodes are recorded
      s.complete = false;
      s.depth = std::max<uint16_t>(s.depth, tokens[i] == kItself ? 1 : 2);
      continue;
    }
    const Site& a = sites_[tokens[i]];
    s.depth = std::max<uint16_t>(s.depth, a.depth + 1);
    s.producers.push_back(tokens[i]);
    for (uint32_t c : a.ancestor_keys)
      if (std::find(s.ancestor_keys.begin(), s.ancestor_keys.end(), c) == s.ancestor_keys.end())
        s.ancestor_keys.push_back(c);
  }
  // A program that keeps making sites (each rate of dropout has one) would have all phases derived for every
  // graph: a site whose producers are all known comes right after them, as long as the gap has room.
  uint32_t phase = 0;
  for (const uint32_t p : s.producers) phase = std::max(phase, phases_[p] + 1);
  const bool fits = s.complete && derived_ >= kDerivedOften && phase % kPhaseGap != 0;
  sites_.push_back(std::move(s));
  phases_.push_back(fits ? phase : 0);
  changed_ = changed_ || !fits;
}

void Sites::add_edge(uint32_t producer, Site& s) {
  if (std::find(s.producers.begin(), s.producers.end(), producer) != s.producers.end()) return;
  s.producers.push_back(producer);
  changed_ = changed_ || phases_[producer] > phases_[static_cast<size_t>(&s - sites_.data())];
}

void Sites::derive_phases() {
  uint32_t phase = 0;
  for_each_component(
      size(), [this](uint32_t site) -> const std::vector<uint32_t>& { return sites_[site].producers; },
      [&](const std::vector<uint32_t>& component) {
        phase += kPhaseGap;
        for (const uint32_t site : component) phases_[site] = phase;
      });
  ++derived_;
  changed_ = false;
}

}  // namespace dyc
