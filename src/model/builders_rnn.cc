// Cells without memory cells: Elman's and the GRU.
#include "base/error.h"
#include "model/builders.h"

namespace dyc {

SimpleRnn::SimpleRnn(const BuilderSize& size, const std::shared_ptr<Collection>& outer)
    : RnnBuilder({"SimpleRNNBuilder", "simple-rnn-builder", 3, 3, 2, false}, size, outer) {
  for (uint32_t l = 0; l < size.layers; ++l) {
    add_matrix(size.hidden, input_size(l));
    add_matrix(size.hidden, size.hidden);
    add_bias(size.hidden);
  }
}

void SimpleRnn::record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) {
  for (uint32_t l = 0; l < size_.layers; ++l) {
    NodeId a = affine(g, p(g, l, 2), p(g, l, 0), dropped(g, x, l, 0));
    if (prev) a = affine(g, a, p(g, l, 1), dropped(g, prev[l], l, 1));
    x = next[l] = g.unary(op_id<Tanh>, a);
  }
  next[size_.layers] = x;
}

Gru::Gru(const BuilderSize& size, const std::shared_ptr<Collection>& outer)
    : RnnBuilder({"GRUBuilder", "gru-builder", 9, 9, 0, false}, size, outer) {
  for (uint32_t l = 0; l < size.layers; ++l)
    for (int gate = 0; gate < 3; ++gate) {
      add_matrix(size.hidden, input_size(l));
      add_matrix(size.hidden, size.hidden);
      add_bias(size.hidden);
    }
}

void Gru::set_dropout(float rate) {
  check_rate("set_dropout", rate);
  change("set_dropout()", kOwnRate, rate);
}

NodeId Gru::drop_out(Graph& g, NodeId x) const {
  const float rate = rates_[kOwnRate];
  if (rate == 0.f) return x;
  const float keep = 1.f - rate;
  const Dim dim = g.dim(x);
  const NodeId mask = g.draw(DrawKind::bernoulli, keep, 1.f / keep, dim);
  return g.binary(op_id<CMult>, x, mask);
}

void Gru::record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) {
  for (uint32_t l = 0; l < size_.layers; ++l) {
    x = drop_out(g, x);
    // The parts that do not depend on the recurrence come first: they are batched over all steps.
    NodeId z = affine(g, p(g, l, 2), p(g, l, 0), x);
    NodeId c = affine(g, p(g, l, 8), p(g, l, 6), x);
    if (prev) {
      const NodeId h = prev[l];
      NodeId r = affine(g, p(g, l, 5), p(g, l, 3), x);
      z = g.unary(op_id<Logistic>, affine(g, z, p(g, l, 1), h));
      r = g.unary(op_id<Logistic>, affine(g, r, p(g, l, 4), h));
      c = g.unary(op_id<Tanh>, affine(g, c, p(g, l, 7), g.binary(op_id<CMult>, r, h)));
      // (1 - z) .* h' + z .* c with one product less
      x = g.binary(op_id<Add>, h, g.binary(op_id<CMult>, z, g.binary(op_id<Sub>, c, h)));
    } else {
      x = g.binary(op_id<CMult>, g.unary(op_id<Logistic>, z), g.unary(op_id<Tanh>, c));
    }
    next[l] = x;
  }
  next[size_.layers] = drop_out(g, x);
}

}  // namespace dyc
