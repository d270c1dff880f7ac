// Runs launch records on a CUDA device, forward and backward. Device memory has the values and gradients at
// the same offsets as the host's arenas; what the host wrote there (inputs, constants, random values) goes up
// before launches run, what somebody asks for comes down.
#pragma once
#include <span>
#include <utility>
#include <vector>

#include "cuda/abi/lookup.h"
#include "cuda/abi/products.h"
#include "cuda/abi/scratch.h"
#include "exec/cuda/command_list.h"
#include "exec/executor.h"

namespace dyc {

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(Graph& graph, Plan& plan, CudaDevice& device);

  void forward(uint32_t& next, uint32_t end) override;
  void backward(NodeId root, const std::vector<uint8_t>& live,
                const std::vector<uint32_t>& live_nodes) override;
  void accumulate() override;
  const float* parameter_gradient(NodeId id) override;
  const float* parameter_values(ParameterUse& use) override;
  void fetch_values(uint32_t launch, int64_t place, size_t floats) override;
  uint32_t argmax(uint32_t launch, int64_t place) override;
  void fetch_gradients(int64_t place, size_t floats) override;
  void cut_back(uint32_t launches) override;
  void refuse_reentry() override { device_.lock(); }  // and gives it back

  // For benchmarks: as DyNet does it. A launch for each operand that is not contiguous copies it, and what is
  // added to its gradient is added up in another; gradients of weights do not wait; no launch does more than
  // one thing.
  static inline bool like_dynet = false;
  // Whether NVIDIA's library may make large products.
  static inline bool library = true;

 private:
  using ValueOperand = cuda::DeviceOperand<const float>;
  using GradientOperand = cuda::DeviceOperand<float>;
  struct ArenaRange {  // part of an arena
    int64_t begin, end;
  };

  // Memory that something adds to, as offsets (floats) in the gradient arena.
  struct GradientRange {
    int64_t at, size;
  };
  struct Addition {  // to += from
    int64_t to, from, size;
  };

  bool always_separate() const override { return true; }
  void zero_gradients(int64_t, size_t) override {}  // backward() clears all

  float* values() const { return values_memory_.at<float>(); }
  float* gradients() const { return gradients_memory_.at<float>(); }

  // ---- cuda_executor.cc
  void upload_leaves(uint32_t begin, uint32_t end);
  void upload_until(int64_t place);
  void skip_slots();
  void upload(ArenaRange part);
  void find_largest(uint32_t launch);
  uint32_t node_at(const Launch& l, int64_t place) const;
  void seed(NodeId root);
  void run_backward(NodeId root, const std::vector<uint8_t>& live, const std::vector<uint32_t>& live_nodes);
  void forget_unreached();
  void download_gradients(std::vector<ArenaRange> parts);
  void submit();
  void forget();
  void submit_watched();

  // ---- cuda_forward.cc: records
  cuda::LaunchArgs record(const Launch& l, bool backward);
  void encode_results(const Launch& l, cuda::LaunchArgs& r);
  void encode_arguments(const Launch& l, cuda::LaunchArgs& r, bool backward);
  void encode_lists(const Launch& l, cuda::LaunchArgs& r, bool backward);
  void encode_shapes(const Launch& l, cuda::LaunchArgs& r);
  void encode_ids(const Launch& l, cuda::LaunchArgs& r);
  void encode_scratch(const Launch& l, cuda::LaunchArgs& r);
  void encode_axes(const Launch& l, cuda::LaunchArgs& r);
  const cuda::Shape* shape(const Sig& sig);
  const cuda::Shape* shape_number(uint32_t sig);
  static constexpr uint32_t kResult = kNone;  // in place of an argument's number
  cuda::NodeSizes extents(const Launch& l, uint32_t arg);
  ValueOperand place(const Launch& l, const Operand& o, const float* arena);
  ValueOperand gathered(const Launch& l, uint32_t k);
  void gather_to(float* to, const ValueOperand& from, const cuda::NodeSizes& results,
                 const cuda::NodeSizes& own);
  ValueOperand gather(const ValueOperand& from, const cuda::NodeSizes& results, const cuda::NodeSizes& own);
  bool reads(const Launch& l, ArenaRange part) const;
  const float* weight(const Operand& o);
  const float* parameter(ParameterUse& use);
  const float* scaled(const std::shared_ptr<Storage>& storage, const ParameterUse& use, const float* raw);
  void run(const Launch& l, bool chained);
  void decide_sync(const Launch& l, bool chained);
  void gather_lists(const Launch& l, const float** lists, uint32_t n);
  void run_op(const Launch& l);
  void note_sliced(const Launch& l, bool backward, uint32_t first, uint32_t end);
  void run_lookup(const Launch& l);
  void run_parameter(const Launch& l);

  // ---- cuda_products.cc
  struct ProductList {
    std::vector<cuda::Product> products;
    std::vector<cuda::Term> terms;
    std::vector<Access> accesses;  // for launch_product(): its result first, then what it reads
    void begin(int64_t m, int64_t n, const cuda::Matrix<float>& c, cuda::Product::Begin begin);
    void add(const cuda::Matrix<const float>& a, const cuda::Matrix<const float>& b, int64_t inner);
  };
  void launch_products(const ProductList& list, cuda::ProductKind kind);
  void launch_tiles(std::vector<cuda::Product>& products, const cuda::Term* terms,
                    cuda::MatmulVariant variant, cuda::ProductKind kind, uint32_t rows, bool needs_grid_sync);
  void launch_in_order(const ProductList& list, cuda::ProductKind kind);
  void gather_columns(float* to, const cuda::Matrix<const float>& m, int64_t rows, int64_t columns);
  cuda::Matrix<const float> gathered_columns(const cuda::Matrix<const float>& m, int64_t rows,
                                             int64_t columns);
  bool library_product(const cuda::Product& p, const cuda::Term* terms, cuda::ProductKind kind);

  // ---- cuda_matmul.cc
  template <class F>
  cuda::Matrix<F> matrix(const Columns& c, F* base);
  cuda::Matrix<const float> matrix_of(const std::vector<int64_t>& places, const float* base);
  cuda::Matrix<const float> operand_matrix(const Columns& c, int64_t rows);
  void run_matmul(const Launch& l);
  void run_matmul_columns(const Launch& l);
  void add_node_products(const Launch& l, uint32_t i, ProductList& list);
  void back_matmul(const Launch& l);
  void back_matmul_columns(const Launch& l);
  void launch_product(const ProductList& list, cuda::ProductKind kind, bool of_parameters);
  // Weights of a product with so many columns.
  bool may_be_kept(int64_t columns) const {
    return batch_.keeps_weights() && columns <= PersistentWeights::kMostColumns;
  }
  static Access access(const Columns& c, const float* arena, int64_t rows, int64_t period, bool writes);
  void back_columns(const Operand& w, int64_t m, int64_t inner, const Columns& dy,
                    const cuda::Matrix<const float>& dym, const Columns& x);
  struct Sum {  // adds a term to an m x n gradient
    GradientRange target;
    int64_t m, n;
    cuda::Term term;
  };
  void back_matmul_nodes(const Launch& l);
  void collect_node(const Launch& l, uint32_t i, std::vector<Sum>& of_w, std::vector<Sum>& of_x,
                    std::vector<Addition>& of_b);
  void launch_sums(std::vector<Sum>& sums, cuda::ProductKind kind);
  int64_t weight_target(const Operand& o);

  void run_deferred(Deferred& d) override { run_together({&d}); }
  void run_together(const std::vector<Deferred*>& deferred);
  void run_all_deferred();

  // ---- cuda_backward.cc
  void back(const Launch& l);
  void back_elementwise(const Launch& l);
  void back_per_node(const Launch& l);
  void back_lists(const Launch& l);
  void back_custom(const Launch& l);
  void back_lookup(const Launch& l);
  GradientOperand gradient_place(const Launch& l, uint32_t k, const std::vector<GradientRange>* targets);
  std::vector<GradientRange> targets_of(const Launch& l, uint32_t k) const;
  bool regular(const Launch& l, uint32_t k) const;
  void back_live(const Launch& l, const std::vector<uint8_t>& live, uint32_t live_nodes);

  // ---- cuda_gradients.cc: several that add to the same memory
  enum class Overlap { none, same, partial };  // same: those that overlap are equal
  Overlap overlap(const std::vector<GradientRange>& targets);
  // Gives those that overlap zeroed scratch memory instead; add_from_scratch() adds what was added there.
  bool reduce_through_scratch(std::vector<GradientRange>& targets, bool all = false);
  void add_from_scratch();
  // In the given order.
  void add_all(const std::vector<Addition>& pieces);
  void sort_targets(const std::vector<GradientRange>& targets);
  struct SegmentList {
    std::vector<int64_t> targets, sources, ends;
    std::vector<uint32_t> starts;
    std::vector<uint8_t> fresh;  // empty: none is
    void begin(int64_t to, int64_t size);
  };
  void add_cluster(const std::vector<Addition>& pieces, std::vector<uint32_t>& cluster, SegmentList& list);
  void launch_segments(SegmentList& list);
  void note_segments(const SegmentList& list);

  // ---- cuda_deliver.cc: gradients of parameters
  struct PendingGradients {  // of parameters, and of rows
    std::vector<const ParameterUse*> uses;
    std::vector<RowGradient> rows;
    bool empty() const { return uses.empty() && rows.empty(); }
  };
  void split_by_side(PendingGradients& there, PendingGradients& here);
  void accumulate_on_device(PendingGradients& delivery);
  void launch_whole(const PendingGradients& delivery);
  struct TableRows {
    Storage* table;
    std::vector<uint32_t> rows;
    std::vector<int64_t> from;
  };
  std::vector<TableRows> rows_by_table(const PendingGradients& delivery) const;
  void launch_rows(const std::vector<TableRows>& tables);
  void accumulate_on_host(const PendingGradients& delivery);
  int64_t offset_of(const float* gradient) const;  // from gradients(): an address of another allocation

  CudaDevice& device_;
  DeviceMemory values_memory_, gradients_memory_, largest_memory_;
  CommandList batch_;

  // ---- what the device has
  int64_t uploaded_until_ = 0;                  // of the value arena: below, the device has it or computed it
  std::vector<ArenaRange> host_ranges_;         // below uploaded_until_: what the host wrote
  uint32_t mapped_launches_ = 0;                // launches whose results lie below uploaded_until_
  uint32_t run_ = 0;                            // launches that have run
  std::vector<uint8_t> fetched_;                // per launch: the host has all results
  std::vector<std::vector<uint32_t>> largest_;  // per launch: argmax() of all results, if asked for
  bool finds_largest_ = true;                   // not where that has failed

  // ---- of the launches in hand
  std::vector<const cuda::Shape*> shapes_;  // by signature: already in the upload
  std::vector<uint32_t> shapes_known_;      // signatures in shapes_
  const int64_t* index_from_ = nullptr;     // the last index array that went up, and where it is
  const int64_t* index_at_ = nullptr;
  ArenaRange unsynced_{0, 0};               // results since the last launch that waits for those before it
  ArenaRange unsynced_before_group_{0, 0};  // those of them that were there when the chain began
  bool needs_grid_sync_ = true;             // the launch in hand
  std::vector<int64_t> room_x_, room_y_;
  std::vector<uint32_t> order_;
  std::vector<Addition> through_scratch_;

  // ---- of the backward pass in hand
  std::vector<uint8_t> reached_;  // per parameter of the graph: something is added to its gradient
  std::vector<uint32_t> scaled_;  // parameters whose scaled copies are yet to be computed, by uid
};

}  // namespace dyc
