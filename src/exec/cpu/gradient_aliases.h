// Gradients that are read where another result has them. A recurrent network computes W x of all steps at
// once, and step t adds W x_t to U h, as the bias of an affine_transform: the gradient of W x_t is that of
// step t's result, element by element. It is neither copied nor stored twice: the columns of the product
// "W x" then have an index of where their gradients are.
#pragma once
#include <optional>
#include <vector>

#include "exec/cpu/launches_by_offset.h"

namespace dyc {

class GradientAliases {
 public:
  using Columns = LaunchReader::Columns;

  explicit GradientAliases(const LaunchReader& launches) : launches_(launches) {}

  void clear() { n_ = 0; }
  // Each column of a product that is read as a bias once, in a launch whose nodes are all live, is taken for
  // an alias. The gradient of `root`, where
  // backward begins, stays where it is.
  void find(const LaunchesByOffset& made_by, const std::vector<uint32_t>& live_nodes, uint32_t root);
  // Argument k of `reader`, which takes part, reads results of `launch`: their gradients are no aliases,
  // unless this is the bias that find() knows.
  void note_reader(uint32_t reader, uint32_t k, uint32_t launch);
  // After all readers: drops the products of which no column is an alias.
  void finish();

  // Where the gradients of the results of a product (or stage of one) are, if any of them is an alias.
  std::optional<Columns> columns(const Launch& l) const;
  // Is the gradient of the column at this offset that of the column `of`?
  bool is_alias(int64_t column, int64_t of) const;
  // Zeroes the gradients of a product's columns that are no aliases; false if it has no aliases.
  bool clear_others(const Launch& l) const;
  // The gradient at this offset is asked for: copies those of its product that are aliases.
  void store(int64_t offset);
  void exchange(GradientAliases& other) {
    entries_.swap(other.entries_);
    std::swap(n_, other.n_);
  }

 private:
  struct AliasedProduct {
    int64_t out = 0, total = 0, m = 0;  // of a product: its results, in columns of m floats
    std::vector<int64_t> at;            // per column: offset of the gradient; -1: of nobody that reads it
    int64_t place(size_t column) const { return out + static_cast<int64_t>(column) * m; }
    bool has(int64_t offset) const { return offset >= out && offset < out + total; }
    void keep(int64_t first, int64_t last);
  };
  bool reads_bias(const Launch& l) const;
  void take(const Launch& reader, bool may_be, AliasedProduct& p);
  int64_t rows_of(const Launch& l) const;
  AliasedProduct* entry_of(uint32_t launch, int64_t m);
  const AliasedProduct* find_entry(int64_t offset) const;

  const LaunchReader& launches_;
  std::vector<AliasedProduct> entries_;  // the first n_, by offset; others are kept for their memory
  size_t n_ = 0;
  std::vector<uint32_t> entry_of_;  // per launch: number of its entry, kNone, or kNever
  std::vector<int64_t> bias_memory_, dy_memory_;
};

}  // namespace dyc
