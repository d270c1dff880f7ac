// Matrix products on the device, and their gradients.
#include <algorithm>

#include "exec/cuda/cuda_executor.h"

namespace dyc {

using cuda::Matrix;
using cuda::Product;
using cuda::ProductKind;
using cuda::Term;

template <class F>
Matrix<F> CudaExecutor::matrix(const Columns& c, F* base) {
  return {base + c.base, c.index ? batch_.put(c.index, static_cast<size_t>(c.count)) : nullptr, c.stride};
}

// The columns at these places; without an index where they are evenly spaced.
Matrix<const float> CudaExecutor::matrix_of(const std::vector<int64_t>& places, const float* base) {
  const int64_t step = places.size() > 1 ? places[1] - places[0] : 0;
  for (size_t j = 1; j < places.size(); ++j)
    if (places[j] - places[j - 1] != step) return {base, batch_.put(places), 0};
  return {base + places[0], nullptr, step};
}

// Of values.
Matrix<const float> CudaExecutor::operand_matrix(const Columns& c, int64_t rows) {
  const Matrix<const float> m = matrix<const float>(c, values());
  if (!like_dynet || (!c.index && (c.stride == 0 || c.stride == rows))) return m;
  return gathered_columns(m, rows, c.count);
}

// ---------------------------------------------------------------- forward

void CudaExecutor::run_matmul(const Launch& l) {
  if (graph_.sig_number(l.sig).columns) return run_matmul_columns(l);
  ProductList list;
  for (uint32_t i = 0; i < l.count; ++i) add_node_products(l, i, list);
  launch_products(list, ProductKind::wx);
}

void CudaExecutor::run_matmul_columns(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows(), n = l.total / m;
  const Operand* const o = plan_.operands.data() + l.operands;
  ProductList list;
  const bool noted = may_be_kept(n);
  const auto read = [&](uint32_t k, int64_t rows, int64_t period) {
    const Columns c = columns(l, o[k], k, room_x_);
    if (noted) list.accesses.push_back(access(c, values(), rows, period, false));
    return operand_matrix(c, rows);
  };
  list.begin(m, n, {values() + l.out, nullptr, m}, affine ? Product::begin_at : Product::zero);
  if (noted) list.accesses.push_back(access({l.out, m, nullptr, n}, values(), m, m, true));
  if (affine && sig.bias_per_column) {
    list.products[0].start = read(0, m, m);
  } else if (affine) {
    list.products[0].start = {weight(o[0]), nullptr, 0};
    if (noted && o[0].base >= 0)
      list.accesses.push_back(access({o[0].base, 0, nullptr, 1}, values(), m, m, false));
  }
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t inner = sig.x[k]->cols();
    list.add({weight(o[k]), nullptr, m}, read(k + 1, inner, 1), inner);
    counters.operand_bytes += 4 * (n + m) * inner;
  }
  bool parameters = true;
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) parameters = parameters && o[k].base < 0;
  launch_product(list, ProductKind::wx, parameters);
}

// One product, of parameters or of weights that were computed.
void CudaExecutor::launch_product(const ProductList& list, ProductKind kind, bool of_parameters) {
  const size_t before = batch_.steps();
  launch_products(list, kind);
  const Product& p = list.products[0];
  if (of_parameters && may_be_kept(p.n) && batch_.steps() == before + 1)
    batch_.note_product(kind == ProductKind::wx, p, list.terms, list.accesses);
}

Access CudaExecutor::access(const Columns& c, const float* arena, int64_t rows, int64_t period, bool writes) {
  return access_to(arena, c.count, rows, period, writes, [&c](int64_t j) { return c.at(j); });
}

// One node whose weights are its own: batch item by batch item.
void CudaExecutor::add_node_products(const Launch& l, uint32_t i, ProductList& list) {
  const Item it = item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const Operand* const o = plan_.operands.data() + l.operands;
  const auto value_of = [&](uint32_t k) {
    return o[k].kind == Operand::weight ? weight(o[k]) : values() + argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const int64_t item_size = yd.batch_size(), m = yd.rows();
  for (uint32_t e = 0; e < yd.bd; ++e) {
    const auto part = [e](const Dim& d) { return d.bd > 1 ? static_cast<int64_t>(e * d.batch_size()) : 0; };
    list.begin(m, item_size / m, {values() + it.out + e * item_size, nullptr, m},
               affine ? Product::begin_at : Product::zero);
    if (affine) {
      const Dim& bd = *sig.x[0];
      list.products.back().start = {value_of(0) + part(bd), nullptr, bd.batch_size() > bd.rows() ? m : 0};
    }
    for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
      const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
      const int64_t inner = wd.cols();
      list.add({value_of(k) + part(wd), nullptr, m}, {value_of(k + 1) + part(xd), nullptr, inner}, inner);
      counters.operand_bytes += 4 * (item_size + m * inner);
    }
  }
}

// ---------------------------------------------------------------- backward

void CudaExecutor::back_matmul(const Launch& l) {
  if (graph_.sig_number(l.sig).columns) back_matmul_columns(l);
  else back_matmul_nodes(l);
}

// Where the gradient of a weight is collected.
int64_t CudaExecutor::weight_target(const Operand& o) {
  if (o.base >= 0) return o.base;
  const ParameterUse& use = graph_.parameter_use(o.node);
  reached_[&use - graph_.parameters().data()] = 1;
  return use.gradient;
}

void CudaExecutor::back_matmul_columns(const Launch& l) {
  const Sig& sig = graph_.sig_number(l.sig);
  const bool affine = l.op == op_id<Affine>;
  const int64_t m = sig.y->rows();
  const Operand* const o = plan_.operands.data() + l.operands;
  const Columns dy = result_columns(l, room_y_);
  if (affine && wanted(l, 0)) {
    if (sig.bias_per_column) {
      const Columns db = columns(l, o[0], 0, room_x_);
      std::vector<Addition> pieces;
      for (int64_t j = 0; j < dy.count; ++j) pieces.push_back({db.at(j), dy.at(j), m});
      add_all(pieces);
    } else {
      defer(o[0], m, 0, dy, dy);
    }
  }
  const Matrix<const float> dym = matrix<const float>(dy, gradients());
  for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
    const int64_t inner = sig.x[k]->cols();
    const Columns x = columns(l, o[k + 1], k + 1, room_x_);
    if (wanted(l, k + 1)) back_columns(o[k], m, inner, dy, dym, x);
    if (wanted(l, k)) defer(o[k], m, inner, dy, x);
  }
}

// dx += W' dy, where columns of dx may repeat.
void CudaExecutor::back_columns(const Operand& w, int64_t m, int64_t inner, const Columns& dy,
                                const Matrix<const float>& dym, const Columns& x) {
  ProductList list;
  Columns dx = x;
  bool through_scratch = false;
  std::vector<int64_t> places;
  if (x.index || (x.count > 1 && x.stride < inner) || (like_dynet && x.stride > inner)) {
    std::vector<GradientRange> targets;
    for (int64_t j = 0; j < x.count; ++j) targets.push_back({x.at(j), inner});
    through_scratch = reduce_through_scratch(targets, like_dynet);
    if (through_scratch) {
      for (const GradientRange& t : targets) places.push_back(t.at);
      dx = {0, 0, places.data(), x.count};
    }
  }
  list.begin(inner, x.count, matrix<float>(dx, gradients()), Product::add);
  list.add({weight(w), nullptr, m}, dym, m);
  if (may_be_kept(x.count))
    list.accesses = {access(dx, gradients(), inner, inner, true), access(dy, gradients(), m, 1, false)};
  launch_product(list, ProductKind::wdy, w.base < 0);
  if (through_scratch) add_from_scratch();
}

// Gradients of nodes whose weights are their own. Products that add to the same gradient become terms of one,
// in the order of members.
void CudaExecutor::back_matmul_nodes(const Launch& l) {
  std::vector<Sum> of_w, of_x;
  std::vector<Addition> of_b;
  for (uint32_t i = 0; i < l.count; ++i) collect_node(l, i, of_w, of_x, of_b);
  add_all(of_b);
  launch_sums(of_x, ProductKind::wdy);
  launch_sums(of_w, ProductKind::dyx);
}

void CudaExecutor::collect_node(const Launch& l, uint32_t i, std::vector<Sum>& of_w, std::vector<Sum>& of_x,
                                std::vector<Addition>& of_b) {
  const Item it = item(l, i);
  const Sig& sig = *it.sig;
  const bool affine = l.op == op_id<Affine>;
  const Operand* const o = plan_.operands.data() + l.operands;
  const auto value_of = [&](uint32_t k) {
    return o[k].kind == Operand::weight ? weight(o[k]) : values() + argument(l, o[k], i);
  };
  const auto target_of = [&](uint32_t k) {
    return o[k].kind == Operand::weight ? weight_target(o[k]) : argument(l, o[k], i);
  };
  const Dim& yd = *sig.y;
  const int64_t item_size = yd.batch_size();
  for (uint32_t e = 0; e < yd.bd; ++e) {
    const auto part = [e](const Dim& d) { return d.bd > 1 ? static_cast<int64_t>(e * d.batch_size()) : 0; };
    const int64_t dy = it.out + e * item_size;
    if (affine && wanted(l, 0)) {
      const Dim& bd = *sig.x[0];
      const int64_t rows = bd.rows(), step = bd.batch_size() > bd.rows() ? rows : 0,
                    to = target_of(0) + part(bd);
      for (int64_t c = 0; c < item_size / rows; ++c) of_b.push_back({to + c * step, dy + c * rows, rows});
    }
    for (uint32_t k = affine; k + 1 < sig.n_args; k += 2) {
      const Dim &wd = *sig.x[k], &xd = *sig.x[k + 1];
      const int64_t m = wd.rows(), inner = wd.cols(), cols = xd.cols();
      const Matrix<const float> w{value_of(k) + part(wd), nullptr, m}, dym{gradients() + dy, nullptr, m},
          x{value_of(k + 1) + part(xd), nullptr, inner};
      if (wanted(l, k + 1))
        of_x.push_back({{target_of(k + 1) + part(xd), inner * cols}, inner, cols, {w, dym, m}});
      if (wanted(l, k)) of_w.push_back({{target_of(k) + part(wd), m * inner}, m, inner, {dym, x, cols}});
    }
  }
}

void CudaExecutor::launch_sums(std::vector<Sum>& sums, ProductKind kind) {
  if (sums.empty()) return;
  std::vector<GradientRange> targets;
  for (const Sum& s : sums) targets.push_back(s.target);
  const Overlap how = overlap(targets);
  if (how != Overlap::none)  // those of one target side by side, in their order
    std::stable_sort(sums.begin(), sums.end(),
                     [](const Sum& a, const Sum& b) { return a.target.at < b.target.at; });
  ProductList list;
  const Sum* before = nullptr;
  for (const Sum& s : sums) {
    const bool same = before && before->target.at == s.target.at && before->m == s.m && before->n == s.n;
    if (!same) list.begin(s.m, s.n, {gradients() + s.target.at, nullptr, s.m}, Product::add);
    list.add(s.term.a, s.term.b, s.term.inner);
    before = &s;
  }
  bool apart = how != Overlap::partial;
  for (size_t p = 1; p < list.products.size() && apart; ++p)  // equal targets seen as other extents
    apart = how == Overlap::none || list.products[p].c.base != list.products[p - 1].c.base;
  if (apart) launch_products(list, kind);
  else launch_in_order(list, kind);
}

// ---------------------------------------------------------------- weight gradients

// Those whose targets are apart run together.
void CudaExecutor::run_together(const std::vector<Deferred*>& deferred) {
  ProductList list;
  SegmentList biases;
  for (Deferred* d : deferred) {
    if (d->dy.empty()) continue;
    Operand o;
    o.node = d->node;
    o.base = d->place;
    const int64_t to = weight_target(o), n = static_cast<int64_t>(d->dy.size());
    if (d->k == 0) {
      biases.begin(to, d->m);
      biases.sources.insert(biases.sources.end(), d->dy.begin(), d->dy.end());
    } else {
      list.begin(d->m, d->k, {gradients() + to, nullptr, d->m}, Product::add);
      list.add(matrix_of(d->dy, gradients()), matrix_of(d->x, values()), n);
    }
    d->dy.clear();
    d->x.clear();
  }
  launch_products(list, ProductKind::dyx);
  launch_segments(biases);
}

void CudaExecutor::run_all_deferred() {
  std::vector<Deferred*> cooperative;
  for (uint32_t i = 0; i < n_deferred_; ++i) {
    Deferred& d = deferred_[i];
    if (is_only(d)) cooperative.push_back(&d);
    else run_deferred(d);
  }
  run_together(cooperative);
  n_deferred_ = 0;
}

}  // namespace dyc
