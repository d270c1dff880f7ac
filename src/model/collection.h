// Parameter collections: names, the tree of sub-collections, weight decay.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dim.h"
#include "base/storage.h"
#include "model/initialisers.h"

namespace dyc {

using StoragePtr = std::shared_ptr<Storage>;

// A node of the tree. A child keeps its ancestors alive; parameters are held by the collection and by
// all other users, so they outlive it. A parameter is listed in its collection and in every
// ancestor, in order of creation. Its many methods are DyNet's ParameterCollection, one for one.
class Collection : public std::enable_shared_from_this<Collection> {
  struct Private {};  // construction goes through make_root() and add_subcollection()

 public:
  Collection(Private, std::string name, std::shared_ptr<Collection> parent);
  ~Collection();
  Collection(const Collection&) = delete;
  Collection& operator=(const Collection&) = delete;

  // A root, "/", with the process-wide default lambda.
  static std::shared_ptr<Collection> make_root();
  static void set_default_weight_decay(float lambda);  // 0 <= lambda < 1, else ValueError

  // Names: DyNet's suffix rule ("W", then "W_1"); '/' or '_' in a given name is a RuntimeError.
  StoragePtr add_parameters(const Dim& dim, const Initialiser& init, const std::string& name = "");
  StoragePtr add_lookup_parameters(uint32_t rows, const Dim& row_dim, const Initialiser& init,
                                   const std::string& name = "");
  std::shared_ptr<Collection> add_subcollection(const std::string& name = "");

  const std::string& name() const { return name_; }  // full, ends in '/'
  const std::vector<StoragePtr>& parameters() const { return parameters_; }
  const std::vector<StoragePtr>& lookups() const { return lookups_; }
  std::vector<StoragePtr> storages() const;  // of both: parameters, then tables
  size_t parameter_count() const;            // scalars

  // For a loader that fails half way: roll_back() forgets what was added since, here and in the ancestors.
  struct ListSizes {
    std::shared_ptr<Collection> collection;
    size_t parameters, lookups;
    std::unordered_map<std::string, uint32_t> parameter_counts, child_counts;
  };
  std::vector<ListSizes> mark();  // of this collection and its ancestors
  static void roll_back(const std::vector<ListSizes>& marks);

  // ---- for copies of a whole tree (bindings/copies.cc)
  struct Saved {
    std::string name;
    float lambda;
    std::unordered_map<std::string, uint32_t> parameter_counts, child_counts;
  };
  Saved state() const { return {name_, lambda_, parameter_counts_, child_counts_}; }
  const std::shared_ptr<Collection>& parent() const { return parent_; }
  Collection& root();
  // The root whose tree made the parameter; null if it is gone.
  static std::shared_ptr<Collection> root_of(const Storage& storage);
  // A root (parent null) or a child in a certain state; `parameters` and `lookups` are those of the root that
  // are listed in it.
  static std::shared_ptr<Collection> restored(Saved state, std::shared_ptr<Collection> parent,
                                              std::vector<StoragePtr> parameters,
                                              std::vector<StoragePtr> lookups);
  // Of a root: a parameter with the name it had.
  StoragePtr restore_parameter(std::string full_name, const Dim& dim, std::optional<uint32_t> rows,
                               const Initialiser& init) {
    return add(std::move(full_name), dim, rows, init);
  }
  void set_decay_factor(float factor) { decay_->factor = factor; }

  // lambda belongs to the collection (a child starts with its parent's); the running factor is one
  // per root. In DyNet a child has a factor of its own which no graph looks at, so that a trainer on
  // a sub-collection never decays anything and its steps grow.
  float weight_decay() const { return lambda_; }
  void set_weight_decay(float lambda);  // negative or not finite: ValueError
  float decay_factor() const { return decay_->factor; }
  // After an update: factor *= 1 - lambda. Below 1/4 it is multiplied into all values that trainers
  // may change and reset to 1, with DyNet's line on stderr.
  void decay_weights();

 private:
  StoragePtr add(std::string full_name, const Dim& dim, std::optional<uint32_t> rows,
                 const Initialiser& init);

  std::string name_;
  std::shared_ptr<Collection> parent_;
  std::shared_ptr<WeightDecay> decay_;
  float lambda_;
  std::vector<StoragePtr> parameters_, lookups_;
  std::unordered_map<std::string, uint32_t> parameter_counts_, child_counts_;
};

}  // namespace dyc
