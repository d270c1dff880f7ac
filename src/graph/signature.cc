#include "graph/signature.h"

#include <algorithm>

namespace dyc {

uint32_t Signatures::dim_id(const Dim& d) {
  uint32_t key[kMaxDims + 2] = {d.nd, d.bd};
  for (uint32_t i = 0; i < d.nd; ++i) key[2 + i] = d.d[i];
  bool fresh;
  const uint32_t id = dim_keys_.intern(key, d.nd + 2, &fresh);
  if (fresh) made_->dims.push_back(d);
  return id;
}

uint32_t Signatures::of(OpId op, const uint32_t* key, uint32_t key_size) {
  uint64_t hash;
  const uint32_t found = keys_.find(key, key_size, &hash);
  if (found != InternTable::kNone) return found;
  const uint32_t id = make(op, key, nullptr);  // may throw: nothing is kept then
  keys_.add(key, key_size, hash);
  return id;
}

uint32_t Signatures::leaf(OpId op, const uint32_t* attrs, uint32_t n_attrs, const Dim& y,
                          bool requires_grad) {
  uint32_t key[5 + kMostLeafAttrs] = {op, 0, n_attrs};
  uint32_t* end = std::copy_n(attrs, n_attrs, key + 3);
  *end++ = dim_id(y);
  *end++ = requires_grad;
  const auto size = static_cast<uint32_t>(end - key);
  uint64_t hash;
  const uint32_t found = keys_.find(key, size, &hash);
  if (found != InternTable::kNone) return found;
  const uint32_t id = make(op, key, &y);
  sigs_[id]->requires_grad = requires_grad;
  keys_.add(key, size, hash);
  return id;
}

namespace {

// One GEMM per weight serves a whole launch when every weight is shared and unbatched and every
// operand has as many columns as the result.
void set_matmul_mode(Sig& s, const uint32_t* args) {
  const bool affine = s.op == op_id<Affine>;
  const size_t columns = size_t{s.y->cols()} * s.y->bd;
  s.columns = s.n_args > 1;
  for (uint32_t i = affine; i + 1 < s.n_args; i += 2) {
    const bool shared = args[2 * i + 1] != 0 && s.x[i]->bd == 1;
    s.columns = s.columns && shared && size_t{s.x[i + 1]->cols()} * s.x[i + 1]->bd == columns &&
                s.x[i]->cols() == s.x[i + 1]->rows();
  }
  if (!affine || s.n_args == 0) return;
  s.bias_per_column = s.x[0]->size() == s.y->size() && args[1] == 0;
  const bool shared_bias = args[1] != 0 && s.x[0]->bd == 1 && s.x[0]->cols() == 1;
  s.columns = s.columns && (s.bias_per_column || shared_bias);
}

}  // namespace

uint32_t Signatures::make(OpId op, const uint32_t* key, const Dim* given) {
  const OpInfo& info = op_info(op);
  Sig s;
  s.op = op;
  s.n_args = key[1];
  s.attrs.assign(key + 3, key + 3 + key[2]);
  const uint32_t* args = key + 3 + key[2];
  s.flat = true;
  for (uint32_t i = 0; i < s.n_args; ++i) {
    s.x.push_back(&made_->dims[args[2 * i] >> 1]);
    s.requires_grad_args.push_back(args[2 * i] & 1);
    s.requires_grad = s.requires_grad || (args[2 * i] & 1);
    s.requires_grad_mask |= s.requires_grad_args[i] << Sig::mask_bit(i);
    s.owns_weight = s.owns_weight || args[2 * i + 1] != 0;
    if (i < 32) s.weights |= uint32_t{args[2 * i + 1] != 0} << i;
  }
  if (info.meta->nondiff) s.requires_grad = false;
  const ShapeArgs shape{info.meta->name, s.x.data(), s.n_args, s.attrs.data(), key[2]};
  const Dim y = given ? *given : info.shape(shape);
  if (y.size() >= (size_t{1} << 31))
    throw ValueError(text(info.meta->name, "(): result ", y, " is too large"));
  s.dim = dim_id(y);
  s.y = &made_->dims[s.dim];
  s.size = static_cast<uint32_t>(y.size());
  if (info.meta->kind == OpKind::matmul) set_matmul_mode(s, args);
  s.empty = y.size() == 0;
  for (const Dim* d : s.x) s.empty = s.empty || d->size() == 0;
  for (const Dim* d : s.x) s.flat = s.flat && d->size() == y.size() && d->bd == y.bd;
  s.batch_key = batch_key_of(s, args);
  briefs_.push_back({s.dim, s.size});
  sigs_.push_back(&made_->sigs.emplace_back(std::move(s)));
  return static_cast<uint32_t>(sigs_.size() - 1);
}

// What the nodes of one launch must have in common: the op, its attributes, the weights, which
// arguments take gradients; shapes only where the rule says so.
uint32_t Signatures::batch_key_of(const Sig& s, const uint32_t* args) {
  const Meta& meta = *op_info(s.op).meta;
  std::vector<uint32_t> key = {s.op, static_cast<uint32_t>(s.attrs.size())};
  key.insert(key.end(), s.attrs.begin(), s.attrs.end());
  const bool list = op_info(s.op).list && meta.kind == OpKind::per_node;  // nodes differ in arity
  if (!list) {
    // Nodes whose ordinary arguments differ in taking gradients may share a launch: its backward writes some
    // gradients that nobody reads.
    for (uint32_t i = 0; i < s.n_args; ++i) key.push_back(args[2 * i + 1]);
  }
  if (meta.batch != Batch::ragged)
    for (uint32_t i = 0; i < s.n_args; ++i) key.push_back(args[2 * i] >> 1);
  if (meta.kind == OpKind::matmul) key.push_back(s.columns * 2 + s.bias_per_column);
  return batch_keys_.intern(key.data(), static_cast<uint32_t>(key.size()));
}

}  // namespace dyc
