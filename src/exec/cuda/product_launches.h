// Launches of matrix products in a command list. Those that read nothing of each other can be one launch, of
// the list of all their products: a level of a tree has several. Persistent kernels do without, as their
// steps are cheap and keep the weights of single products. Element-wise ops of their results are computed in
// the same launch (exec/cuda/product_followers.h).
#pragma once
#include <vector>

#include "cuda/abi/products.h"
#include "cuda/driver/matmul_variants.h"
#include "exec/cuda/product_followers.h"

namespace dyc {

// What a product adds to, and what gradients it reads, as offsets into one arena.
struct AddedColumns {
  std::vector<int64_t> columns;  // ascending, disjoint; empty: the product is not described
  int64_t rows = 0;
  ArenaRange reads = {};
  int64_t end() const { return columns.back() + rows; }
  ArenaRange range() const { return {columns.front(), end()}; }
  bool operator==(const AddedColumns& other) const { return columns == other.columns && rows == other.rows; }
};

struct ProductLaunch {
  uint32_t kernel_id;
  cuda::MatmulVariant variant;
  std::vector<cuda::Product> products;  // each with the number of tiles before it
  std::vector<cuda::Term> terms;
  uint32_t tiles;
  AddedColumns added = {};  // by the one product that it is
  // Of each product: something is added to its result, which nothing may follow yet. Empty: to none.
  std::vector<bool> partial = {};
  // Of each product, or empty. What they touch, backward.
  std::vector<std::vector<ProductFollower>> followers = {};
  std::vector<ArenaRange> touched = {};
};

class ProductLaunches {
 public:
  explicit ProductLaunches(CommandList& list) : list_(list) {}

  // Command number `command` is this launch; its text.
  Command add(size_t command, ProductLaunch launch, bool needs_grid_sync);
  // Those that were added, by their order, and what follows their products.
  struct Numbered {
    size_t command;
    ProductLaunch launch;
    cuda::Product* products;  // in host memory, to be uploaded
  };
  size_t size() const { return all_.size(); }
  const Numbered& at(size_t number) const { return all_[number]; }
  const std::vector<ProductFollower>& followers(size_t number, size_t product) const;
  void follow(size_t number, size_t product, ProductFollower follower);
  void touch(size_t number, ArenaRange gradients) { all_[number].launch.touched.push_back(gradients); }
  // Describes what follows to the kernels. Then nothing is added any more. `noted`: notes on the products.
  void finish(std::vector<WeightProduct>& noted);
  CommandList& list() { return list_; }

  // The commands, where launches of one kernel between which nobody waits for others are one: none of them
  // reads what another makes. So are those next to each other that add to gradients; products that add to the
  // same columns become one, which adds term by term.
  std::vector<Command> joined(const std::vector<Command>& commands);
  // The list runs so: counts what is made, not what was planned.
  void count(cuda::Backend::Counters& counters, bool joined) const;
  void clear();

 private:
  struct Open {  // launches that may become one: its place among the commands
    size_t place;
    const ProductLaunch* first;
    std::optional<ProductLaunch> all;  // of several
    void append(const ProductLaunch& from);
  };
  // Its products are set where the record is, in host memory, to be uploaded.
  Command command_of(const ProductLaunch& launch, bool needs_grid_sync, cuda::Product** products = nullptr);
  size_t end_of_adding(size_t first, const std::vector<Command>& commands) const;
  Command add_at_once(size_t first, size_t end, bool needs_grid_sync);
  CommandList& list_;
  std::vector<Numbered> all_;
  uint64_t spared_[cuda::kMatmulVariants] = {};  // launches, by joined()
};

}  // namespace dyc
