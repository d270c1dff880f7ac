#include "exec/cuda/persistent_weights.h"

#include <algorithm>

#include "exec/cuda/tuning.h"

namespace dyc {

PersistentWeights::PersistentWeights(std::span<const WeightProduct> products) {
  for (const WeightProduct& p : products) {
    for (const cuda::Term& t : p.terms) {
      Weight* w = find(p, t);
      if (!w) w = &weights_.emplace_back(Weight{t.a, p.forward, p.product.m, t.inner, p.period});
      w->columns = std::max(w->columns, p.product.n);
      ++w->uses;
    }
  }
  std::erase_if(weights_, [](const Weight& w) { return w.uses < kKeepUses; });
  std::stable_sort(weights_.begin(), weights_.end(),
                   [](const Weight& a, const Weight& b) { return a.uses > b.uses; });
}

PersistentWeights::Weight* PersistentWeights::find(const WeightProduct& p, const cuda::Term& term) {
  for (Weight& w : weights_)
    if (w.a.base == term.a.base && w.forward == p.forward && w.rows == p.product.m && w.inner == term.inner &&
        w.period == p.period)
      return &w;
  return nullptr;
}

uint32_t PersistentWeights::blocks() const {
  int64_t elements = 1;
  for (const Weight& w : weights_) elements = std::max(elements, w.rows * ((w.columns + 3) / 4 * 4));
  return static_cast<uint32_t>((elements + kKeepElements - 1) / kKeepElements);
}

size_t PersistentWeights::Weight::bytes(uint32_t blocks) const {
  return sizeof(float) *
         static_cast<size_t>(rows / period * cuda::slice_rows(period, blocks) * cuda::weight_stride(inner));
}

size_t PersistentWeights::choose(uint32_t blocks, size_t most) {
  size_t used = 0;
  for (Weight& w : weights_) {
    w.offset = static_cast<uint32_t>(used / sizeof(float));
    w.kept = used + w.bytes(blocks) <= most;
    if (w.kept) used += w.bytes(blocks);
  }
  return used;
}

std::vector<cuda::PersistentTerm> PersistentWeights::terms(const WeightProduct& product) {
  std::vector<cuda::PersistentTerm> all;
  for (const cuda::Term& t : product.terms) {
    Weight* const w = find(product, t);
    if (!w || !w->kept) return {};
    all.push_back({t, w->offset});
  }
  for (const cuda::Term& t : product.terms) {
    Weight& w = *find(product, t);
    w.first = std::min(w.first, product.step);
  }
  return all;
}

std::vector<cuda::WeightLoad> PersistentWeights::loads() const {
  std::vector<cuda::WeightLoad> all;
  for (const Weight& w : weights_)
    if (w.first != SIZE_MAX)
      all.push_back({static_cast<uint32_t>(w.first), w.a, w.rows, w.inner, w.period, w.offset, w.forward});
  return all;
}

namespace {

bool overlap(const MemoryRange& a, const MemoryRange& b) { return a.begin < b.end && b.begin < a.end; }

// Two steps, of periods u and v: where one writes what the other reads or writes, is that in the same block?
bool independent(const MemoryRange& a, int64_t u, const MemoryRange& b, int64_t v) {
  if (!(a.writes || b.writes) || !overlap(a, b)) return true;
  return u == v && a.spacing % u == 0 && b.spacing % u == 0 && (a.begin - b.begin) % u == 0;
}

// One of the steps that may make a run.
struct Candidate {
  WeightProduct* product;  // null: a sliced step
  const SlicedStep* note_sliced;
  const std::vector<MemoryRange>& accesses() const {
    return product ? product->accesses : note_sliced->accesses;
  }
};

// The consecutive steps from product `p` on.
std::vector<Candidate> candidates_from(std::span<WeightProduct> products, std::span<const SlicedStep> sliced,
                                       size_t p) {
  std::vector<Candidate> found;
  size_t step = products[p].step;
  auto next = std::lower_bound(sliced.begin(), sliced.end(), step,
                               [](const SlicedStep& u, size_t s) { return u.step < s; });
  for (; found.size() < kBarrierFreeSteps; ++step) {
    if (p < products.size() && products[p].step == step) found.push_back({&products[p++], nullptr});
    else if (next != sliced.end() && next->step == step) found.push_back({nullptr, &*next++});
    else break;
  }
  return found;
}

// May the product have this period? Not if few blocks would then compute many rows.
bool divides(const WeightProduct& p, int64_t period) {
  const int64_t m = p.product.m;
  return m % period == 0 && m / period <= kKeepGroups && p.accesses.front().spacing % period == 0;
}

bool reads_result_of(const SlicedStep& s, const WeightProduct& p) {
  return std::any_of(s.accesses.begin(), s.accesses.end(), [&](const MemoryRange& a) {
    return std::any_of(p.accesses.begin(), p.accesses.end(),
                       [&](const MemoryRange& made) { return made.writes && overlap(a, made); });
  });
}

// That of the first step which reads a product's result.
int64_t period_of(const std::vector<Candidate>& all) {
  for (auto one = all.begin(); one != all.end(); ++one) {
    if (one->product) continue;
    const SlicedStep& s = *one->note_sliced;
    for (auto made = all.begin(); made != one; ++made)
      if (made->product && divides(*made->product, s.period) && reads_result_of(s, *made->product))
        return s.period;
  }
  return all.front().product->product.m;
}

// The period of a product in a run of this one: its own where no step reads its result.
int64_t period_of(const WeightProduct& p, const std::vector<Candidate>& all, int64_t period) {
  const bool read = std::any_of(all.begin(), all.end(), [&](const Candidate& c) {
    return !c.product && reads_result_of(*c.note_sliced, p);
  });
  return read && divides(p, period) ? period : p.product.m;
}

// How many of them, from the first on, need no barrier between them; the period of each of these.
std::vector<int64_t> periods_of(const std::vector<Candidate>& all, int64_t period) {
  struct Seen {
    MemoryRange access;
    int64_t period;
  };
  std::vector<Seen> seen;
  std::vector<int64_t> sliced;
  for (const Candidate& c : all) {
    const SlicedStep* const s = c.note_sliced;
    if (s && s->period != period && !(s->finer && s->period % period == 0)) break;
    const int64_t mine = s ? period : period_of(*c.product, all, period);
    const auto apart = [&](const MemoryRange& a) {
      return std::all_of(seen.begin(), seen.end(),
                         [&](const Seen& b) { return independent(b.access, b.period, a, mine); });
    };
    if (!std::all_of(c.accesses().begin(), c.accesses().end(), apart)) break;
    for (const MemoryRange& a : c.accesses()) seen.push_back({a, mine});
    sliced.push_back(mine);
  }
  return sliced;
}

// Shortens `all` to a run, and sets its products' periods. A product whose result is only read behind the end
// of the run keeps its own.
void cut_to_run(std::vector<Candidate>& all, int64_t period) {
  std::vector<int64_t> sliced = periods_of(all, period);
  while (sliced.size() < all.size()) {
    all.resize(sliced.size());
    sliced = periods_of(all, period);
  }
  if (all.size() < 2) return;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].product) all[i].product->period = sliced[i];
}

// A weight that has one period is kept once: outside of runs a product may have any.
void share_periods(std::span<WeightProduct> products, const std::vector<BarrierFreeRun>& runs) {
  std::vector<const WeightProduct*> in_runs;  // one of each weight and period
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
    const bool known = std::any_of(in_runs.begin(), in_runs.end(), [&](const WeightProduct* o) {
      return alike(p, *o) && p.period == o->period;
    });
    if (!known) in_runs.push_back(&p);
  }
  for (WeightProduct* p : outside) {
    const auto same = std::find_if(in_runs.begin(), in_runs.end(), [&](const WeightProduct* o) {
      return alike(*p, *o) && divides(*p, o->period);
    });
    if (same != in_runs.end()) p->period = (*same)->period;
  }
}

}  // namespace

std::vector<BarrierFreeRun> find_barrier_free_runs(std::span<WeightProduct> products,
                                                   std::span<const SlicedStep> sliced, size_t begin,
                                                   const std::function<bool(size_t)>& needs_grid_sync) {
  std::vector<BarrierFreeRun> runs;
  size_t end = begin;
  for (size_t p = 0; p < products.size(); ++p) {
    const size_t step = products[p].step;
    // What was there before may not be there yet.
    if (step < end || (step != begin && !needs_grid_sync(step))) continue;
    std::vector<Candidate> all = candidates_from(products, sliced, p);
    const int64_t period = period_of(all);
    cut_to_run(all, period);
    end = step + all.size();
    if (end > step + 1) runs.push_back({step, end, period});
  }
  share_periods(products, runs);
  return runs;
}

}  // namespace dyc
