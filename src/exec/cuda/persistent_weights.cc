#include "exec/cuda/persistent_weights.h"

#include <algorithm>

namespace dyc {

namespace {

// Fewer steps would not make up for loading the weights into shared memory apart from using them.
constexpr uint32_t kLeastUses = 3;
constexpr int64_t kBlockElements = 64;  // of a result: 2 x 4 for each of 8 warps

}  // namespace

Residency::Residency(std::span<const WeightProduct> products) {
  for (const WeightProduct& p : products) {
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

constexpr size_t kMostSteps = 64;  // of a run, as each is compared with all before it

bool overlap(const Access& a, const Access& b) { return a.begin < b.end && b.begin < a.end; }

// Two steps, of units u and v: where one writes what the other reads or writes, is that in the same block?
bool keep_apart(const Access& a, int64_t u, const Access& b, int64_t v) {
  if (!(a.writes || b.writes) || !overlap(a, b)) return true;
  return u == v && a.spacing % u == 0 && b.spacing % u == 0 && (a.begin - b.begin) % u == 0;
}

// One of the steps that may make a run.
struct Candidate {
  WeightProduct* product;  // null: a step by units
  const UnitStep* by_units;
  const std::vector<Access>& accesses() const { return product ? product->accesses : by_units->accesses; }
};

// The steps from product `p` on that lie one behind the other.
std::vector<Candidate> candidates_from(std::span<WeightProduct> products, std::span<const UnitStep> units,
                                       size_t p) {
  std::vector<Candidate> found;
  size_t step = products[p].step;
  auto next = std::lower_bound(units.begin(), units.end(), step,
                               [](const UnitStep& u, size_t s) { return u.step < s; });
  for (; found.size() < kMostSteps; ++step) {
    if (p < products.size() && products[p].step == step) found.push_back({&products[p++], nullptr});
    else if (next != units.end() && next->step == step) found.push_back({nullptr, &*next++});
    else break;
  }
  return found;
}

// May the product's rows have this unit? Not if few blocks would then make many rows.
bool can_have(const WeightProduct& p, int64_t unit) {
  constexpr int64_t kMostGroups = 8;
  const int64_t m = p.product.m;
  return m % unit == 0 && m / unit <= kMostGroups && p.accesses.front().spacing % unit == 0;
}

bool goes_on_with(const UnitStep& s, const WeightProduct& p) {
  return std::any_of(s.accesses.begin(), s.accesses.end(),
                     [&](const Access& a) { return overlap(a, p.accesses.front()); });
}

// That of the first step which goes on with a product's result.
int64_t unit_of(const std::vector<Candidate>& all) {
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (one->product) continue;
    const UnitStep& s = *one->by_units;
    for (auto made = all.begin(); made != one; ++made)
      if (made->product && can_have(*made->product, s.unit) && goes_on_with(s, *made->product)) return s.unit;
  }
  return all.front().product->product.m;
}

// The unit of a product in a run of this one: its own where no step goes on with its result.
int64_t unit_of(const WeightProduct& p, const std::vector<Candidate>& all, int64_t unit) {
  const bool read = std::any_of(
      all.begin(), all.end(), [&](const Candidate& c) { return !c.product && goes_on_with(*c.by_units, p); });
  return read && can_have(p, unit) ? unit : p.product.m;
}

// How many of them, from the first on, need not wait for each other; the unit of each of these.
std::vector<int64_t> units_of(const std::vector<Candidate>& all, int64_t unit) {
  struct Seen {
    Access access;
    int64_t unit;
  };
  std::vector<Seen> seen;
  std::vector<int64_t> units;
  for (const Candidate& c : all) {
    const UnitStep* const s = c.by_units;
    if (s && s->unit != unit && !(s->finer && s->unit % unit == 0)) break;
    const int64_t mine = s ? unit : unit_of(*c.product, all, unit);
    const auto apart = [&](const Access& a) {
      return std::all_of(seen.begin(), seen.end(),
                         [&](const Seen& b) { return keep_apart(b.access, b.unit, a, mine); });
    };
    if (!std::all_of(c.accesses().begin(), c.accesses().end(), apart)) break;
    for (const Access& a : c.accesses()) seen.push_back({a, mine});
    units.push_back(mine);
  }
  return units;
}

// Shortens `all` to a run, and sets its products' units. A product whose result is read by units behind the
// end of the run alone keeps its own.
void cut_to_run(std::vector<Candidate>& all, int64_t unit) {
  std::vector<int64_t> units = units_of(all, unit);
  while (units.size() < all.size()) {
    all.resize(units.size());
    units = units_of(all, unit);
  }
  if (all.size() < 2) return;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].product) all[i].product->unit = units[i];
}

// A weight that has one unit is kept once: outside of runs a product may have any.
void share_units(std::span<WeightProduct> products, const std::vector<UnitRun>& runs) {
  std::vector<const WeightProduct*> in_runs;  // one of each weight and unit
  std::vector<WeightProduct*> outside;
  const auto alike = [](const WeightProduct& p, const WeightProduct& o) {
    return p.forward == o.forward && p.product.m == o.product.m && p.terms[0].a.base == o.terms[0].a.base;
  };
  auto run = runs.begin();
  for (WeightProduct& p : products) {
    if (p.terms.empty()) continue;
    while (run != runs.end() && run->end <= p.step) ++run;
    if (run == runs.end() || p.step < run->begin) {
      outside.push_back(&p);
      continue;
    }
    const bool known = std::any_of(in_runs.begin(), in_runs.end(),
                                   [&](const WeightProduct* o) { return alike(p, *o) && p.unit == o->unit; });
    if (!known) in_runs.push_back(&p);
  }
  for (WeightProduct* p : outside) {
    const auto same = std::find_if(in_runs.begin(), in_runs.end(), [&](const WeightProduct* o) {
      return alike(*p, *o) && can_have(*p, o->unit);
    });
    if (same != in_runs.end()) p->unit = (*same)->unit;
  }
}

}  // namespace

std::vector<UnitRun> find_unit_runs(std::span<WeightProduct> products, std::span<const UnitStep> units,
                                    size_t begin, const std::function<bool(size_t)>& waits) {
  std::vector<UnitRun> runs;
  size_t end = begin;
  for (size_t p = 0; p < products.size(); ++p) {
    const size_t step = products[p].step;
    // What was there before may not be there yet.
    if (step < end || (step != begin && !waits(step))) continue;
    std::vector<Candidate> all = candidates_from(products, units, p);
    const int64_t unit = unit_of(all);
    cut_to_run(all, unit);
    end = step + all.size();
    if (end > step + 1) runs.push_back({step, end, unit});
  }
  share_units(products, runs);
  return runs;
}

}  // namespace dyc
