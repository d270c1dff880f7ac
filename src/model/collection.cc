#include "model/collection.h"

#include <cmath>
#include <iostream>
#include <limits>

#include "base/error.h"

namespace dyc {

namespace {

float default_lambda = 0.f;

// The roots by their factors of weight decay, which their parameters share. Never destroyed: collections may
// live until the process ends. Under the interpreter lock.
std::unordered_map<const WeightDecay*, Collection*>& roots() {
  static auto* const all = new std::unordered_map<const WeightDecay*, Collection*>;
  return *all;
}

void check_name(const char* call, const std::string& name) {
  if (name.find_first_of("/_") != std::string::npos)
    throw RuntimeError(text(call, ": got the name '", name, "'; wanted a name without '/' and '_'"));
}

std::string with_suffix(const std::string& name, std::unordered_map<std::string, uint32_t>& counts) {
  const uint32_t k = counts[name]++;
  return k == 0 && !name.empty() ? name : name + "_" + std::to_string(k);
}

// Sizes whose bytes cannot be counted are refused before any memory is asked for.
void check_size(const char* call, const Dim& dim, uint32_t rows) {
  if (dim.bd != 1) throw ValueError(text(call, ": got dimensions ", dim, "; wanted a batch size of 1"));
  size_t n = rows ? rows : 1;
  for (uint32_t i = 0; i < dim.nd; ++i)
    if (__builtin_mul_overflow(n, static_cast<size_t>(dim[i]), &n) ||
        n > std::numeric_limits<size_t>::max() / 64)
      throw MemoryError(
          text(call, ": parameters of dimensions ", dim, rows ? " x rows" : "", " are too large"));
}

}  // namespace

Collection::Collection(Private, std::string name, std::shared_ptr<Collection> parent)
    : name_(std::move(name)),
      parent_(std::move(parent)),
      decay_(parent_ ? parent_->decay_ : std::make_shared<WeightDecay>()),
      lambda_(parent_ ? parent_->lambda_ : default_lambda) {
  if (!parent_) roots()[decay_.get()] = this;
}

Collection::~Collection() {
  if (!parent_) roots().erase(decay_.get());
}

std::shared_ptr<Collection> Collection::make_root() {
  return std::make_shared<Collection>(Private{}, "/", nullptr);
}

std::shared_ptr<Collection> Collection::root_of(const Storage& storage) {
  const auto found = roots().find(storage.decay.get());
  return found == roots().end() ? nullptr : found->second->weak_from_this().lock();
}

std::shared_ptr<Collection> Collection::restored(Saved state, std::shared_ptr<Collection> parent,
                                                 std::vector<StoragePtr> parameters,
                                                 std::vector<StoragePtr> lookups) {
  auto c = std::make_shared<Collection>(Private{}, std::move(state.name), std::move(parent));
  c->lambda_ = state.lambda;
  c->parameter_counts_ = std::move(state.parameter_counts);
  c->child_counts_ = std::move(state.child_counts);
  c->parameters_ = std::move(parameters);
  c->lookups_ = std::move(lookups);
  return c;
}

void Collection::set_default_weight_decay(float lambda) {
  if (!(lambda >= 0.f && lambda < 1.f))
    throw ValueError(text("weight decay: got ", lambda, "; wanted 0 <= lambda < 1"));
  default_lambda = lambda;
}

StoragePtr Collection::add_parameters(const Dim& dim, const Initialiser& init, const std::string& name) {
  check_name("add_parameters()", name);
  check_size("add_parameters()", dim, 0);
  return add(name_ + with_suffix(name, parameter_counts_), dim, std::nullopt, init);
}

StoragePtr Collection::add_lookup_parameters(uint32_t rows, const Dim& row_dim, const Initialiser& init,
                                             const std::string& name) {
  check_name("add_lookup_parameters()", name);
  check_size("add_lookup_parameters()", row_dim, rows);
  return add(name_ + with_suffix(name, parameter_counts_), row_dim, rows, init);
}

StoragePtr Collection::add(std::string full_name, const Dim& dim, std::optional<uint32_t> rows,
                           const Initialiser& init) {
  InitTarget target{full_name, {dim.d, dim.d + dim.nd}, rows.has_value()};
  if (rows) target.dims.push_back(*rows);
  auto storage = std::make_shared<Storage>(std::move(full_name), dim, rows, decay_);
  init.fill(storage->begin_write(false), target);
  for (Collection* c = this; c; c = c->parent_.get())
    (rows ? c->lookups_ : c->parameters_).push_back(storage);
  return storage;
}

std::shared_ptr<Collection> Collection::add_subcollection(const std::string& name) {
  check_name("add_subcollection()", name);
  return std::make_shared<Collection>(Private{}, name_ + with_suffix(name, child_counts_) + "/",
                                      shared_from_this());
}

std::vector<StoragePtr> Collection::storages() const {
  std::vector<StoragePtr> all = parameters_;
  all.insert(all.end(), lookups_.begin(), lookups_.end());
  return all;
}

size_t Collection::parameter_count() const {
  size_t n = 0;
  for (const StoragePtr& p : storages()) n += p->size();
  return n;
}

std::vector<Collection::ListSizes> Collection::mark() {
  std::vector<ListSizes> marks;
  for (Collection* c = this; c; c = c->parent_.get())
    marks.push_back({c->shared_from_this(), c->parameters_.size(), c->lookups_.size(), c->parameter_counts_,
                     c->child_counts_});
  return marks;
}

void Collection::roll_back(const std::vector<ListSizes>& marks) {
  for (const ListSizes& m : marks) {
    m.collection->parameters_.resize(m.parameters);
    m.collection->lookups_.resize(m.lookups);
    m.collection->parameter_counts_ = m.parameter_counts;
    m.collection->child_counts_ = m.child_counts;
  }
}

void Collection::set_weight_decay(float lambda) {
  if (!(lambda >= 0.f) || !std::isfinite(lambda))
    throw ValueError(text("set_weight_decay(): got ", lambda, "; wanted a finite number >= 0"));
  lambda_ = lambda;
}

Collection& Collection::root() {
  Collection* c = this;
  while (c->parent_) c = c->parent_.get();
  return *c;
}

void Collection::decay_weights() {
  if (lambda_ <= 0.f) return;
  float& w = decay_->factor;
  w *= 1.f - lambda_;  // rounded as in DyNet
  if (w >= 0.25f) return;
  std::cerr << "RESCALE WEIGHT DECAY FROM " << w << " to 1.0" << std::endl;
  // Frozen parameters keep their raw values, so their effective ones jump: DyNet does the same.
  Collection& top = root();
  for (const auto* list : {&top.parameters_, &top.lookups_})
    for (const auto& p : *list)
      if (p->updated) p->scale_values(w);
  w = 1.f;
}

}  // namespace dyc
