#include "exec/cuda/matmul_launcher.h"

#include <algorithm>

namespace dyc {

using cuda::Matrix;
using cuda::Product;
using cuda::ProductKind;
using cuda::Term;

template <class F>
Matrix<F> MatmulLauncher::matrix(const Columns& c, F* base) {
  return {base + c.base, c.index ? c_.commands.put(c.index, static_cast<size_t>(c.count)) : nullptr,
          c.stride};
}

// The columns at these offsets; without an index where they are evenly spaced.
Matrix<const float> MatmulLauncher::matrix_of(const std::vector<int64_t>& offsets, const float* base) {
  const int64_t step = offsets.size() > 1 ? offsets[1] - offsets[0] : 0;
  for (size_t j = 1; j < offsets.size(); ++j)
    if (offsets[j] - offsets[j - 1] != step) return {base, c_.commands.put(offsets), 0};
  return {base + offsets[0], nullptr, step};
}

void MatmulLauncher::forward(const Launch& l) {
  if (c_.graph().sig_number(l.sig).columns) return forward_columns(l);
  ProductList list;
  for (uint32_t i = 0; i < l.count; ++i) add_node_products(l, i, list);
  dispatcher_.launch(list, ProductKind::wx);
}

void MatmulLauncher::forward_columns(const Launch& l) {
  const Sig& sig = c_.graph().sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows(), n = l.total / m;
  const Operand* const o = &c_.launches.operand(l, 0);
  ProductList list;
  std::vector<int64_t> memory;
  const bool noted = dispatcher_.may_be_kept(n);
  const auto read = [&](uint32_t k, int64_t rows, int64_t period) {
    const Columns c = c_.launches.columns(l, o[k], k, memory);
    if (noted) list.accesses.push_back(access(c, c_.values(), rows, period, false));
    return c_.strategy().columns(encoder_, matrix<const float>(c, c_.values()), rows, c.count);
  };
  list.begin(m, n, {c_.values() + l.out, nullptr, m}, affine ? Product::begin_at : Product::zero);
  if (noted) list.accesses.push_back(access({l.out, m, nullptr, n}, c_.values(), m, m, true));
  if (affine && sig.bias_per_column) {
    list.products[0].start = read(0, m, m);
  } else if (affine) {
    list.products[0].start = {parameters_.weight(o[0]), nullptr, 0};
    if (noted && o[0].base >= 0)
      list.accesses.push_back(access({o[0].base, 0, nullptr, 1}, c_.values(), m, m, false));
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t inner = sig.x[k]->cols();
    list.add({parameters_.weight(o[k]), nullptr, m}, read(k + 1, inner, 1), inner);
    c_.counters.operand_bytes += 4 * (n + m) * inner;
  }
  bool parameters = true;
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) parameters = parameters && o[k].base < 0;
  dispatcher_.launch_one(list, ProductKind::wx, parameters);
}

MemoryRange MatmulLauncher::access(const Columns& c, const float* arena, int64_t rows, int64_t period,
                                   bool writes) {
  return access_to(arena, c.count, rows, period, writes, [&c](int64_t j) { return c.at(j); });
}

const float* MatmulLauncher::node_value(const Launch& l, const Operand& o, uint32_t i) {
  return o.kind == Operand::weight ? parameters_.weight(o) : c_.values() + c_.launches.argument(l, o, i);
}

// Of a node whose weights are its own: one product for each batch item.
void MatmulLauncher::add_node_products(const Launch& l, uint32_t i, ProductList& list) {
  const LaunchReader::Item it = c_.launches.item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const Operand* const o = &c_.launches.operand(l, 0);
  const auto value_of = [&](uint32_t k) { return node_value(l, o[k], i); };
  const Dim& yd = *sig.y;
  const int64_t item_size = yd.batch_size(), m = yd.rows();
  for (uint32_t e = 0; e < yd.bd; ++e) {
    const auto part = [e](const Dim& d) { return d.bd > 1 ? static_cast<int64_t>(e * d.batch_size()) : 0; };
    list.begin(m, item_size / m, {c_.values() + it.out + e * item_size, nullptr, m},
               affine ? Product::begin_at : Product::zero);
    if (affine) {
      const Dim& bd = *sig.x[0];
      list.products.back().start = {value_of(0) + part(bd), nullptr, bd.batch_size() > bd.rows() ? m : 0};
    }
    for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
      const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
      const int64_t inner = wd.cols();
      list.add({value_of(k) + part(wd), nullptr, m}, {value_of(k + 1) + part(xd), nullptr, inner}, inner);
      c_.counters.operand_bytes += 4 * (item_size + m * inner);
    }
  }
}

void MatmulLauncher::backward(const Launch& l) {
  if (c_.graph().sig_number(l.sig).columns) backward_columns(l);
  else backward_nodes(l);
}

void MatmulLauncher::backward_columns(const Launch& l) {
  const Sig& sig = c_.graph().sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  const Operand* const o = &c_.launches.operand(l, 0);
  std::vector<int64_t> result_memory, operand_memory;
  const Columns dy = c_.launches.result_columns(l, result_memory);
  if (affine && c_.launches.wanted(l, 0)) {
    if (sig.bias_per_column) {
      add_biases(c_.launches.columns(l, o[0], 0, operand_memory), dy, m);
    } else {
      deferred_.add(o[0], m, 0, dy, dy);
    }
  }
  const Matrix<const float> dym = matrix<const float>(dy, c_.gradients());
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t inner = sig.x[k]->cols();
    const Columns x = c_.launches.columns(l, o[k + 1], k + 1, operand_memory);
    if (c_.launches.wanted(l, k + 1)) backward_operand(o[k], m, inner, dy, dym, x);
    if (c_.launches.wanted(l, k)) deferred_.add(o[k], m, inner, dy, x);
  }
}

void MatmulLauncher::add_biases(const Columns& db, const Columns& dy, int64_t m) {
  std::vector<Addition> additions;
  std::vector<GradientRange> targets;
  ArenaRange reads, adds;
  for (int64_t j = 0; j < dy.count; ++j) {
    additions.push_back({db.at(j), dy.at(j), m});
    targets.push_back({db.at(j), m});
    reads.include({dy.at(j), dy.at(j) + m});
    adds.include({db.at(j), db.at(j) + m});
  }
  if (GradientReducer::overlap(targets) == GradientReducer::Overlap::none &&
      followers_.add_columns(db, dy, m))
    return;
  const size_t first = c_.commands.size();
  reducer_.add(additions);
  c_.commands.followers().note_added(reads, adds, first, c_.commands.size() - 1);
}

// Of columns that do not ascend there is no description.
AddedColumns MatmulLauncher::added_columns(const Columns& dx, int64_t rows, const Columns& dy, int64_t m) {
  AddedColumns added;
  added.rows = rows;
  for (int64_t j = 0; j < dx.count; ++j) {
    if (j > 0 && dx.at(j) < added.end()) return {};
    added.columns.push_back(dx.at(j));
  }
  for (int64_t j = 0; j < dy.count; ++j) added.reads.include({dy.at(j), dy.at(j) + m});
  return added;
}

// dx += W' dy, where columns of dx may repeat.
void MatmulLauncher::backward_operand(const Operand& w, int64_t m, int64_t inner, const Columns& dy,
                                      const Matrix<const float>& dym, const Columns& x) {
  ProductList list;
  Columns dx = x;
  std::vector<Addition> additions;
  std::vector<int64_t> offsets;
  const bool copies = c_.strategy().copies_gradients();
  if (x.index || (x.count > 1 && x.stride < inner) || (copies && x.stride > inner)) {
    std::vector<GradientRange> targets;
    for (int64_t j = 0; j < x.count; ++j) targets.push_back({x.at(j), inner});
    additions = reducer_.through_scratch(targets, copies);
    if (!additions.empty()) {
      for (const GradientRange& t : targets) offsets.push_back(t.at);
      dx = {0, 0, offsets.data(), x.count};
    }
  }
  list.begin(inner, x.count, matrix<float>(dx, c_.gradients()), Product::add);
  list.add({parameters_.weight(w), nullptr, m}, dym, m);
  if (dispatcher_.may_be_kept(x.count))
    list.accesses = {access(dx, c_.gradients(), inner, inner, true), access(dy, c_.gradients(), m, 1, false)};
  if (!copies) list.added = added_columns(dx, inner, dy, m);
  dispatcher_.launch_one(list, ProductKind::wdy, w.base < 0);
  reducer_.add(additions);
}

// Of nodes whose weights are their own. Products that add to the same gradient become terms of one product,
// in the order of nodes.
void MatmulLauncher::backward_nodes(const Launch& l) {
  std::vector<Sum> of_w, of_x;
  std::vector<Addition> of_b;
  for (uint32_t i = 0; i < l.count; ++i) collect_node(l, i, of_w, of_x, of_b);
  reducer_.add(of_b);
  launch_sums(of_x, ProductKind::wdy);
  launch_sums(of_w, ProductKind::dyx);
}

void MatmulLauncher::collect_node(const Launch& l, uint32_t i, std::vector<Sum>& of_w, std::vector<Sum>& of_x,
                                  std::vector<Addition>& of_b) {
  const LaunchReader::Item it = c_.launches.item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const Operand* const o = &c_.launches.operand(l, 0);
  const auto value_of = [&](uint32_t k) { return node_value(l, o[k], i); };
  const auto target_of = [&](uint32_t k) {
    return o[k].kind == Operand::weight ? parameters_.gradient_of_weight(o[k])
                                        : c_.launches.argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const int64_t item_size = yd.batch_size();
  for (uint32_t e = 0; e < yd.bd; ++e) {
    const auto part = [e](const Dim& d) { return d.bd > 1 ? static_cast<int64_t>(e * d.batch_size()) : 0; };
    const int64_t dy = it.out + e * item_size;
    if (affine && c_.launches.wanted(l, 0)) {
      const Dim& bd = *sig.x[0];
      const int64_t rows = bd.rows(), step = bd.batch_size() > bd.rows() ? rows : 0,
                    to = target_of(0) + part(bd);
      for (int64_t c = 0; c < item_size / rows; ++c) of_b.push_back({to + c * step, dy + c * rows, rows});
    }
    for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
      const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
      const int64_t m = wd.rows(), inner = wd.cols(), cols = xd.cols();
      const Matrix<const float> w{value_of(k) + part(wd), nullptr, m}, dym{c_.gradients() + dy, nullptr, m},
          x{value_of(k + 1) + part(xd), nullptr, inner};
      if (c_.launches.wanted(l, k + 1))
        of_x.push_back({{target_of(k + 1) + part(xd), inner * cols}, inner, cols, {w, dym, m}});
      if (c_.launches.wanted(l, k))
        of_w.push_back({{target_of(k) + part(wd), m * inner}, m, inner, {dym, x, cols}});
    }
  }
}

void MatmulLauncher::launch_sums(std::vector<Sum>& sums, ProductKind kind) {
  if (sums.empty()) return;
  std::vector<GradientRange> targets;
  for (const Sum& s : sums) targets.push_back(s.target);
  const GradientReducer::Overlap how = GradientReducer::overlap(targets);
  if (how != GradientReducer::Overlap::none)  // those of one target side by side, in their order
    std::stable_sort(sums.begin(), sums.end(),
                     [](const Sum& a, const Sum& b) { return a.target.at < b.target.at; });
  ProductList list;
  const Sum* before = nullptr;
  for (const Sum& s : sums) {
    const bool same = before && before->target.at == s.target.at && before->m == s.m && before->n == s.n;
    if (!same) list.begin(s.m, s.n, {c_.gradients() + s.target.at, nullptr, s.m}, Product::add);
    list.add(s.term.a, s.term.b, s.term.inner);
    before = &s;
  }
  bool disjoint = how != GradientReducer::Overlap::partial;
  for (size_t p = 1; p < list.products.size() && disjoint; ++p)  // equal targets of other dimensions
    disjoint =
        how == GradientReducer::Overlap::none || list.products[p].c.base != list.products[p - 1].c.base;
  if (disjoint) dispatcher_.launch(list, kind);
  else dispatcher_.launch_in_order(list, kind);
}

void MatmulLauncher::add_weight_gradients(const std::vector<DeferredGradient*>& deferred) {
  ProductList list;
  SegmentList biases;
  for (DeferredGradient* d : deferred) {
    if (d->dy.empty()) continue;
    Operand o;
    o.node = d->node;
    o.base = d->offset;
    const int64_t to = parameters_.gradient_of_weight(o), n = static_cast<int64_t>(d->dy.size());
    if (d->k == 0) {
      biases.begin(to, d->m);
      biases.sources.insert(biases.sources.end(), d->dy.begin(), d->dy.end());
    } else {
      list.begin(d->m, d->k, {c_.gradients() + to, nullptr, d->m}, Product::add);
      list.add(matrix_of(d->dy, c_.gradients()), matrix_of(d->x, c_.values()), n);
    }
    d->dy.clear();
    d->x.clear();
  }
  dispatcher_.launch(list, ProductKind::dyx);
  reducer_.launch(biases);
}

void MatmulLauncher::add_all_weight_gradients() {
  std::vector<DeferredGradient*> disjoint;
  for (uint32_t i = 0; i < deferred_.size(); ++i) {
    DeferredGradient& d = deferred_[i];
    if (deferred_.is_only(d)) disjoint.push_back(&d);
    else add_weight_gradients({&d});
  }
  add_weight_gradients(disjoint);
  deferred_.clear();
}

}  // namespace dyc
