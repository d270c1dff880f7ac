// LSTMs: the usual one with its variants, and the one with a coupled forget gate.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/builders.h"

namespace dyc {

VanillaLstm::VanillaLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool layer_norm,
                         float forget_bias)
    : VanillaLstm({"VanillaLSTMBuilder", "vanilla-lstm-builder", 3, 3, 2, true}, size, outer, layer_norm,
                  forget_bias) {
  for (uint32_t l = 0; l < size.layers; ++l) {
    add_matrix(4 * size.hidden, input_size(l));
    add_matrix(4 * size.hidden, size.hidden);
    add_bias(4 * size.hidden);
    add_norms(outer);
  }
}

VanillaLstm::VanillaLstm(const CellShape& shape, const BuilderSize& size,
                         const std::shared_ptr<Collection>& outer, bool layer_norm, float forget_bias)
    : RnnBuilder(shape, size, outer), layer_norm_(layer_norm), forget_bias_(forget_bias) {}

void VanillaLstm::add_norms(const std::shared_ptr<Collection>& outer) {
  if (!layer_norm_) return;
  for (uint32_t i = 0; i < kNorms; ++i) {
    const Dim dim({i < kGc ? 4 * size_.hidden : size_.hidden});
    norms_.push_back(outer->add_parameters(dim, ConstInitialiser(i % 2 ? 0.f : 1.f)));
  }
}

// `scale`: number of the scale among a layer's norms; the shift follows it.
NodeId VanillaLstm::norm(Graph& g, NodeId x, uint32_t layer, uint32_t scale) const {
  const StoragePtr* at = &norms_[layer * kNorms + scale];
  const bool update = this->update();
  const NodeId args[3] = {x, g.parameter(at[0], update), g.parameter(at[1], update)};
  return g.record(op_id<LayerNorm>, args, 3);
}

// x {I}xB, h {H}xB or kNone -> a {4H}xB
NodeId VanillaLstm::gates(Graph& g, uint32_t l, NodeId x, NodeId h) {
  if (!layer_norm_) {
    const NodeId a = affine(g, weight(g, l, kB), weight(g, l, kWx), x);  // batched over all steps
    return h == kNone ? a : affine(g, a, weight(g, l, kWh), h);
  }
  NodeId a = norm(g, g.binary(op_id<MatMul>, weight(g, l, kWx), x), l, kGx);
  a = g.binary(op_id<Add>, a, weight(g, l, kB));
  if (h == kNone) return a;
  return g.binary(op_id<Add>, a, norm(g, g.binary(op_id<MatMul>, weight(g, l, kWh), h), l, kGh));
}

namespace {

// {rows,k}xB with another shape: k columns of one batch item, or k batch items.
NodeId reshaped(Graph& g, NodeId x, const Dim& dim) {
  return g.dim(x) == dim ? x : g.view(op_id<SubView>, x, dim, 0);
}

// Of `cols` columns; a single one stays {rows,1} where it is a `matrix`.
Dim columns(uint32_t rows, uint32_t cols, uint32_t batch, bool matrix) {
  return cols == 1 && !matrix ? Dim({rows}, batch) : Dim({rows, cols}, batch);
}

}  // namespace

// Equal batch sizes, columns as batch. z {4H,k}xB, c {H,k}xB or kNone (zeros); k and B may be 1 in one of
// them.
VanillaLstm::Gates VanillaLstm::prepare(Graph& g, NodeId z, NodeId c) const {
  const uint32_t h = size_.hidden;
  Gates r{z, c, g.dim(z).cols(), g.dim(z).bd, layer_norm_ && g.dim(z).nd == 2};
  if (c == kNone) {
    r.c = g.constant(Dim({h}, r.cols * r.batch), 0.f);
  } else {
    const Dim d = g.dim(c);
    if (d.nd > 2 || d.rows() != h)
      throw ValueError(text("add_input(): expected a cell of {", h, "}, got ", d));
    if (d.bd != r.batch || d.cols() != r.cols) {
      r.cols = std::max(r.cols, d.cols());
      r.batch = std::max(r.batch, d.bd);
      r.z = expanded(g, z, columns(4 * h, r.cols, r.batch, false));
      r.c = expanded(g, c, columns(h, r.cols, r.batch, false));
    }
    r.matrix = r.matrix || d.nd == 2;
    r.c = reshaped(g, r.c, Dim({h}, r.cols * r.batch));
  }
  r.z = reshaped(g, r.z, Dim({4 * h}, r.cols * r.batch));
  return r;
}

void VanillaLstm::cell(Graph& g, uint32_t layer, NodeId z, NodeId c, NodeId* next_c, NodeId* next_h) const {
  const Gates in = prepare(g, z, c);
  const uint32_t h = size_.hidden, n = h * in.cols * in.batch;
  const Dim dim = columns(h, in.cols, in.batch, in.matrix);
  if (layer_norm_) {
    const NodeId a = with_number(g, op_id<LstmActivate>, in.z, forget_bias_);
    *next_c = reshaped(g, g.binary(op_id<VanillaLstmC>, in.c, a), dim);
    const NodeId scaled = reshaped(g, norm(g, *next_c, layer, kGc), Dim({h}, in.cols * in.batch));
    *next_h = reshaped(g, g.binary(op_id<VanillaLstmH>, scaled, a), dim);
    return;
  }
  uint32_t bias;
  std::memcpy(&bias, &forget_bias_, 4);
  const NodeId args[2] = {in.z, in.c};
  const NodeId block = g.record(op_id<LstmCell>, args, 2, &bias, 1, Graph::Ids{});
  *next_c = g.view(op_id<SubView>, block, dim, 0);
  *next_h = g.view(op_id<SubView>, block, dim, n);
}

void VanillaLstm::record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) {
  const uint32_t n = size_.layers;
  for (uint32_t l = 0; l < n; ++l) {
    const NodeId in = dropped(g, x, l, 0);
    const NodeId h = prev ? dropped(g, prev[n + l], l, 1) : kNone;
    cell(g, l, gates(g, l, in, h), prev ? prev[l] : kNone, next + l, next + n + l);
    x = next[n + l];
  }
  next[2 * n] = x;
}

CompactLstm::CompactLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer)
    : VanillaLstm({"CompactVanillaLSTMBuilder", "compact-vanilla-lstm-builder", 3, 3, 2, true}, size, outer,
                  false, 1.f) {
  for (uint32_t l = 0; l < size.layers; ++l) {
    add_matrix(4 * size.hidden, input_size(l));
    add_matrix(4 * size.hidden, size.hidden);
    add_bias(4 * size.hidden);
  }
}

void CompactLstm::set_weight_noise(float deviation) {
  if (!(deviation >= 0.f))
    throw ValueError(text("set_weightnoise(): expected a standard deviation >= 0, got ", deviation));
  change("set_weightnoise()", kOwnRate, deviation);
}

NodeId CompactLstm::weight(Graph& g, uint32_t layer, uint32_t which) {
  const NodeId w = p(g, layer, which);
  const float noise = rates_[kOwnRate];
  if (noise == 0.f) return w;
  const Dim dim = g.dim(w);
  return g.binary(op_id<Add>, w, g.draw(DrawKind::normal, 0.f, noise, dim));
}

SparseLstm::SparseLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool layer_norm,
                       float forget_bias)
    : VanillaLstm({"SparseLSTMBuilder", "vanilla-lstm-builder", 5, 5, 2, true}, size, outer, layer_norm,
                  forget_bias) {
  const ConstInitialiser one(1.f);
  for (uint32_t l = 0; l < size.layers; ++l) {
    const Dim x({4 * size.hidden, input_size(l)}), h({4 * size.hidden, size.hidden});
    add(x, GlorotInitialiser());
    add(h, GlorotInitialiser());
    add(x, one);
    add(h, one);
    add_bias(4 * size.hidden);
    std::rotate(storages_.end() - 3, storages_.end() - 1, storages_.end());  // created last, listed third
    add_norms(outer);
  }
}

NodeId SparseLstm::weight(Graph& g, uint32_t layer, uint32_t which) {
  const NodeId w = p(g, layer, which);
  if (which == kB) return w;
  // The same for the whole graph, so recording it again costs nothing when it is computed.
  const StoragePtr& mask = storages_[layer * shape_.per_layer + (which == kWx ? kMaskX : kMaskH)];
  return g.binary(op_id<CMult>, w, g.parameter(mask, false));
}

std::vector<NodeId> SparseLstm::listed(Graph& g, uint32_t layer) {
  return {weight(g, layer, kWx), weight(g, layer, kWh), weight(g, layer, kB)};
}

SparseLstm::Counts SparseLstm::set_sparsity(float rate) {
  if (!(rate >= 0.f && rate <= 1.f))
    throw ValueError(text("set_sparsity(): expected 0 <= sparsity <= 1, got ", rate));
  std::vector<std::vector<float>> sizes;  // |W .* mask| per matrix
  std::vector<float> all;
  for (uint32_t l = 0; l < size_.layers; ++l)
    for (const uint32_t which : {kWx, kWh}) {
      const Storage& w = *storages_[l * shape_.per_layer + which];
      const float* mask = storages_[l * shape_.per_layer + (which == kWx ? kMaskX : kMaskH)]->values();
      std::vector<float> size(w.size());
      for (size_t i = 0; i < size.size(); ++i) size[i] = std::fabs(w.values()[i] * mask[i]);
      all.insert(all.end(), size.begin(), size.end());
      sizes.push_back(std::move(size));
    }
  const size_t cut = static_cast<size_t>(rate * static_cast<float>(all.size()));
  std::vector<size_t> order(all.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return all[a] < all[b]; });
  std::vector<float> mask(all.size(), 1.f);
  for (size_t i = 0; i < cut; ++i) mask[order[i]] = 0.f;
  const float* from = mask.data();
  for (uint32_t l = 0; l < size_.layers; ++l)
    for (const uint32_t which : {kMaskX, kMaskH}) {
      Storage& m = *storages_[l * shape_.per_layer + which];
      m.set_values(from);
      from += m.size();
    }
  return {all.size(), all.size() - cut};
}

CoupledLstm::CoupledLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool peepholes)
    : RnnBuilder({peepholes ? "CoupledLSTMBuilder" : "FastLSTMBuilder",
                  peepholes ? "lstm-builder" : "fast-lstm-builder", kCount, kCount, 3, true},
                 size, outer),
      peepholes_(peepholes) {
  const uint32_t h = size.hidden;
  for (uint32_t l = 0; l < size.layers; ++l)
    for (int gate = 0; gate < 3; ++gate) {
      add_matrix(h, input_size(l));
      add_matrix(h, h);
      if (gate < 2) add_matrix(h, peepholes ? h : 1);
      add_bias(h);
    }
}

void CoupledLstm::set_dropout(float rate) {
  if (peepholes_) RnnBuilder::set_dropout(rate);
  else check_rate("set_dropout", rate);
}

void CoupledLstm::record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) {
  const uint32_t n = size_.layers;
  const auto cmult = [&g](NodeId a, NodeId b) { return g.binary(op_id<CMult>, a, b); };
  for (uint32_t l = 0; l < n; ++l) {
    const NodeId in = dropped(g, x, l, 0);
    NodeId i = affine(g, p(g, l, kBi), p(g, l, kWxi), in);
    NodeId o = affine(g, p(g, l, kBo), p(g, l, kWxo), in);
    NodeId u = affine(g, p(g, l, kBc), p(g, l, kWxc), in);
    if (prev) {
      const NodeId h = dropped(g, prev[n + l], l, 1);
      i = affine(g, i, p(g, l, kWhi), h);
      if (peepholes_) i = affine(g, i, p(g, l, kWci), dropped(g, prev[l], l, 2));
      o = affine(g, o, p(g, l, kWho), h);
      u = affine(g, u, p(g, l, kWhc), h);
    }
    i = g.unary(op_id<Logistic>, i);
    u = g.unary(op_id<Tanh>, u);
    // (1 - i) .* c' + i .* u = c' + i .* (u - c')
    NodeId c = prev ? g.binary(op_id<Add>, prev[l], cmult(i, g.binary(op_id<Sub>, u, prev[l]))) : cmult(i, u);
    next[l] = c;
    if (peepholes_) o = affine(g, o, p(g, l, kWco), dropped(g, c, l, 2));
    x = next[n + l] = cmult(g.unary(op_id<Logistic>, o), g.unary(op_id<Tanh>, c));
  }
  next[2 * n] = x;
}

}  // namespace dyc
