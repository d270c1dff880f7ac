#include "exec/cuda_resident.h"

#include <algorithm>

namespace dyc {

namespace {

// Fewer steps would not make up for loading the weights into shared memory apart from using them.
constexpr uint32_t kLeastUses = 3;
// Each block reads all columns, which is soon more than what is saved of the weights. What counts more is
// that a warp can ask for all it reads at once, as long as that is little.
constexpr int64_t kMostColumns = 16;
constexpr int64_t kBlockElements = 64;  // of a result: 2 x 4 for each of 8 warps

}  // namespace

Residency::Residency(std::span<const WeightProduct> products) {
  for (const WeightProduct& p : products) {
    if (p.product.n > kMostColumns) continue;
    for (const cuda::Term& t : p.terms) {
      Weight* w = find(p, t);
      if (!w) w = &weights_.emplace_back(Weight{t.a.base, p.forward, p.product.m, t.inner, p.unit});
      w->columns = std::max(w->columns, p.product.n);
      ++w->uses;
    }
  }
  std::erase_if(weights_, [](const Weight& w) { return w.uses < kLeastUses; });
  std::stable_sort(weights_.begin(), weights_.end(),
                   [](const Weight& a, const Weight& b) { return a.uses > b.uses; });
}

Residency::Weight* Residency::find(const WeightProduct& p, const cuda::Term& term) {
  for (Weight& w : weights_)
    if (w.base == term.a.base && w.forward == p.forward && w.rows == p.product.m && w.inner == term.inner &&
        w.unit == p.unit)
      return &w;
  return nullptr;
}

bool Residency::wanted(bool forward) const {
  return std::any_of(weights_.begin(), weights_.end(), [&](const Weight& w) { return w.forward == forward; });
}

uint32_t Residency::blocks() const {
  int64_t elements = 1;
  for (const Weight& w : weights_) elements = std::max(elements, w.rows * ((w.columns + 3) / 4 * 4));
  return static_cast<uint32_t>((elements + kBlockElements - 1) / kBlockElements);
}

size_t Residency::Weight::bytes(uint32_t blocks) const {
  return sizeof(float) *
         static_cast<size_t>(rows / unit * cuda::resident_rows(unit, blocks) * cuda::resident_stride(inner));
}

size_t Residency::choose(uint32_t blocks, size_t most) {
  size_t used = 0;
  for (Weight& w : weights_) {
    w.place = static_cast<uint32_t>(used / sizeof(float));
    w.kept = used + w.bytes(blocks) <= most;
    if (w.kept) used += w.bytes(blocks);
  }
  return used;
}

std::vector<cuda::ResidentTerm> Residency::terms(const WeightProduct& product) {
  std::vector<cuda::ResidentTerm> all;
  if (product.product.n > kMostColumns) return all;
  for (const cuda::Term& t : product.terms) {
    Weight* const w = find(product, t);
    if (!w || !w->kept) return {};
    all.push_back({t, w->place, false});
  }
  for (cuda::ResidentTerm& t : all) {
    Weight& w = *find(product, t.term);
    t.first = !w.read;
    w.read = true;
  }
  return all;
}

// ---------------------------------------------------------------- steps that need not wait

namespace {

struct Written {
  const float *begin, *end;
};

// Are the product's columns one behind the other, of whole units?
bool has_units(const cuda::Product& p, int64_t unit) {
  return !p.c.index && p.c.stride == p.m && p.m % unit == 0 && p.n <= kMostColumns;
}

// Does the step read of `written` its own units alone?
bool reads_own(const UnitStep& s, const std::vector<Written>& written) {
  for (const UnitStep::Read& r : s.reads)
    for (const Written& w : written)
      if (r.begin < w.end && w.begin < r.end && (!r.even || (r.begin - w.begin) % s.unit != 0)) return false;
  return true;
}

}  // namespace

std::vector<UnitRun> find_unit_runs(std::span<WeightProduct> products, std::span<const UnitStep> units,
                                    size_t begin, const std::function<bool(size_t)>& waits) {
  std::vector<UnitRun> runs;
  auto next = units.begin();
  for (size_t p = 0; p < products.size();) {
    const size_t first = p, step = products[p].step;
    size_t after = step + 1;  // the first step behind the products
    for (++p; p < products.size() && products[p].step == after && !waits(after); ++p) ++after;
    if (step != begin && !waits(step)) continue;  // what was there before may not be there yet
    next = std::find_if(next, units.end(), [&](const UnitStep& u) { return u.step >= after; });
    if (next == units.end()) break;
    const int64_t unit = next->unit;
    std::vector<Written> written;
    bool whole = true;
    for (size_t i = first; i < p; ++i) {
      const cuda::Product& made = products[i].product;
      whole = whole && has_units(made, unit);
      written.push_back({made.c.base, made.c.base + made.m * made.n});
    }
    size_t end = after;
    for (; whole && next != units.end() && next->step == end && next->unit == unit; ++next, ++end) {
      if (!reads_own(*next, written)) break;
      written.push_back({next->begin, next->end});
    }
    if (end == after) continue;
    for (size_t i = first; i < p; ++i) products[i].unit = unit;
    runs.push_back({step, after, end});
  }
  return runs;
}

}  // namespace dyc
