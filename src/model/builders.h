// Recurrent network builders: parameters of the cells, and recording of their steps into a graph.
#pragma once
#include <array>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exec/engine.h"
#include "graph/trace.h"
#include "model/collection.h"

namespace dyc {

struct BuilderSize {
  uint32_t layers, input, hidden;
};

// A builder has a tree of steps in each graph, starting at kStart where there is no state yet. What
// belongs to a graph (steps, dropout masks) is forgotten when the graph is renewed. Threads may share a
// builder: it keeps that for the graph of each, and calls without an engine mean that of the last call with
// one. Instances of batch_map share the steps, but have masks and a latest step of their own.
//
// 63 methods and 19 fields: 30 methods are the interface, 15 what cells record with, and the rest find the
// steps of a graph and instance and record a step as a trace. A step takes some 200 ns: these parts read each
// other's state in it.
class RnnBuilder {
  struct PerGraph;
  struct PerInstance;

 public:
  using Step = int32_t;
  static constexpr Step kStart = -1;

  virtual ~RnnBuilder() = default;
  RnnBuilder(const RnnBuilder&) = delete;
  RnnBuilder& operator=(const RnnBuilder&) = delete;

  // Of this object, never reused in the process.
  const uint32_t number;

  const std::shared_ptr<Collection>& collection() const { return collection_; }
  uint32_t layers() const { return size_.layers; }
  // Parameters of a layer that scripts see, in DyNet's order.
  std::vector<StoragePtr> layer_parameters(uint32_t layer) const;
  // Their nodes; ValueError unless start() was called in this graph.
  std::vector<NodeId> layer_expressions(Engine& engine, uint32_t layer);

  // The first call in a graph decides whether parameters take gradients there.
  void start(Engine& engine, bool update);
  bool started(Engine& engine) {
    select(engine);
    return per_instance_->started && per_instance_->version == engine.version();
  }

  // Are all nodes of a step of that generation of the graph still there?
  bool keeps(Engine& engine, Step step, uint32_t generation) {
    select(engine);
    return keeps(engine.graph, step, generation);
  }

  // x {I}xB -> next step. The caller has checked that `from` is a step of this graph. Columns of a matrix
  // x {I,k}xB are independent, as in affine_transform.
  Step add_input(Engine& engine, Step from, NodeId x);
  // The same with each of the inputs in turn; the first of the steps, which follow one another.
  Step add_inputs(Engine& engine, Step from, const std::vector<NodeId>& xs);
  // `es`: one node per layer. Where a layer has a cell, it is that of the latest step.
  Step set_h(Engine& engine, const std::vector<NodeId>& es);
  // `es`: one node per layer (LSTMs: the cells, with h of the latest step), or cells then h.
  Step set_s(Engine& engine, const std::vector<NodeId>& es);
  Step steps(Engine& engine) {
    select(engine);
    return steps();
  }

  // Nodes of a step: cells of all layers (LSTMs only), then h of all layers, then the output.
  const NodeId* nodes(Engine& engine, Step step) {
    select(engine);
    return nodes(step);
  }
  uint32_t state_size() const { return (cells_ ? 2 : 1) * size_.layers; }
  const NodeId* h(Engine& engine, Step step) { return nodes(engine, step) + (cells_ ? size_.layers : 0); }
  NodeId output(Engine& engine, Step step) { return nodes(engine, step)[state_size()]; }

  // ---- for steps that are recorded without add_input(), as it would record them
  // What a step from `from` would read but for parameters: the nodes of `from` and dropout masks, appended to
  // `nodes`. False where the step would do more than that.
  bool reads(Engine& engine, Step from, std::vector<NodeId>* nodes);
  // The same number: the next step records what the last one did. Rates that are as they once were give the
  // number that they gave then.
  uint32_t settings(Engine& engine) {
    select(engine);
    return settings_ * 2 + update();
  }
  // Would initial_state() make parameters take gradients?
  bool would_update(Engine& engine) { return !started(engine) || update(); }
  // The steps that builders make in a graph while it exists. The one that was made last counts them.
  class StepLog {
   public:
    explicit StepLog(const Graph& g) : graph_(g), outer_(std::exchange(current_, this)) {}
    ~StepLog() { current_ = outer_; }
    StepLog(const StepLog&) = delete;
    StepLog& operator=(const StepLog&) = delete;
    // Their nodes were taken back.
    void take_back();

   private:
    friend class RnnBuilder;
    // Null: steps in this graph are not counted.
    static StepLog* of(const Graph& g) { return current_ && &current_->graph_ == &g ? current_ : nullptr; }
    struct Made {
      RnnBuilder* builder;
      PerGraph* graph;
      PerInstance* instance;
    };
    const Graph& graph_;
    std::vector<Made> made_;
    StepLog* outer_;
    static inline StepLog* current_ = nullptr;  // recording is under the interpreter's lock
  };
  // A step of nodes recorded already: width().
  Step add_step(Engine& engine, const NodeId* nodes);
  // Nodes of a step.
  uint32_t width() const { return state_size() + 1; }

  bool drops() const { return rates_[0] > 0.f || rates_[1] > 0.f || rates_[2] > 0.f; }
  uint32_t n_masks() const { return drops() ? size_.layers * shape_.masks : 0; }
  // Those that the last step has used.
  const std::vector<NodeId>& masks(Engine& engine) {
    select(engine);
    return per_instance_->masks;
  }
  virtual void set_dropout(float rate);
  virtual void set_dropouts(float rate, float rate_h);
  // Would f(), which sets rates, change one?
  template <class F>
  bool would_change(F f) {
    trying_ = true;
    differs_ = false;
    try {
      f();
    } catch (...) {
      trying_ = false;
      throw;
    }
    trying_ = false;
    return differs_;
  }
  // Of the rates: see settings().
  uint32_t number_of_rates() const { return settings_; }
  // New masks now; ValueError unless start() was called in this graph.
  void set_dropout_masks(Engine& engine, uint32_t batch);

 protected:
  // `per_layer`: parameters of a layer, `visible` of them listed by layer_parameters(); `masks`: dropout
  // masks of a layer (input, hidden, cell); `cells`: the state has cells.
  struct CellShape {
    const char* name;        // of the class
    const char* collection;  // of the sub-collection
    uint32_t per_layer, visible, masks;
    bool cells;
  };
  RnnBuilder(const CellShape& shape, const BuilderSize& size, const std::shared_ptr<Collection>& outer);

  // The nodes that layer_expressions() lists.
  virtual std::vector<NodeId> listed(Graph& g, uint32_t layer);
  // Records one step. prev: nodes of the previous step, null at the start; next: to be filled.
  virtual void record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) = 0;

  uint32_t input_size(uint32_t layer) const { return layer ? size_.hidden : size_.input; }
  void add_matrix(uint32_t rows, uint32_t cols) { add(Dim({rows, cols}), GlorotInitialiser()); }
  void add_bias(uint32_t rows) { add(Dim({rows}), ConstInitialiser(0.f)); }
  void add(const Dim& dim, const Initialiser& init) {
    storages_.push_back(collection_->add_parameters(dim, init));
  }
  // Node of a parameter of a layer.
  NodeId p(Graph& g, uint32_t layer, uint32_t i) const {
    return g.parameter(storages_[layer * shape_.per_layer + i], update());
  }
  // x .* mask `kind` of the layer, where dropout is on.
  NodeId dropped(Graph& g, NodeId x, uint32_t layer, uint32_t kind) const {
    return rates_[kind] > 0.f ? g.binary(op_id<CMult>, x, per_instance_->masks[layer * shape_.masks + kind])
                              : x;
  }

  static NodeId affine(Graph& g, NodeId b, NodeId w, NodeId x) {
    const NodeId args[3] = {b, w, x};
    return g.record(op_id<Affine>, args, 3);
  }
  static NodeId with_number(Graph& g, OpId op, NodeId x, float number);
  // x where its shape is {rows,cols}xB, else the sum with zeros of that shape.
  static NodeId expanded(Graph& g, NodeId x, const Dim& dim);
  void check_rate(const char* call, float rate) const;
  bool update() const { return per_instance_->update; }
  // A rate is for all instances of batch_map: it cannot change inside one.
  void change(const char* call, uint32_t rate, float to);

  const CellShape shape_;
  const BuilderSize size_;
  std::shared_ptr<Collection> collection_;
  std::vector<StoragePtr> storages_;
  // Of the kinds of masks, and one that only this class has.
  static constexpr uint32_t kOwnRate = 3;
  std::array<float, kOwnRate + 1> rates_ = {};

 private:
  // What belongs to one instance of batch_map, or to no instance, in one graph.
  struct PerInstance {
    uint32_t version = 0;
    bool started = false, update = true;
    std::vector<NodeId> masks = {};
    uint32_t masks_generation = 0;  // of the graph when they were drawn
    struct Made {
      Step step;
      uint32_t generation;  // of the graph when it was made
    };
    std::vector<Made> steps = {};  // if they have cells
  };
  // What belongs to one graph.
  struct PerGraph {
    uint32_t graph = 0;  // its number
    std::weak_ptr<const void> life;
    uint32_t version = 0, instance = Instances::kOutside;
    std::vector<NodeId> steps;
    PerInstance outside;
    std::unordered_map<uint32_t, PerInstance> parts;
  };

  void select(Engine& engine) {
    const Graph& g = engine.graph;
    if (per_graph_->graph != g.number || per_graph_->instance != g.instances.current()) [[unlikely]]
      find_graph(engine);
  }
  void find_graph(Engine& engine);
  void find_instance(const Engine& engine);
  PerInstance* known_instance(uint32_t instance);
  Step steps() const { return width() ? static_cast<Step>(per_graph_->steps.size() / width()) : 0; }
  const NodeId* nodes(Step step) const {
    return per_graph_->steps.data() + static_cast<size_t>(step) * width();
  }
  NodeId* append(const Graph& g, Step* step);
  void remove_last(PerGraph* graph, PerInstance* instance) const;
  void record_set(Engine& engine, const NodeId* cells, const NodeId* h);
  void draw_masks(Graph& g, uint32_t batch);
  bool masks_exist(const Graph& g) const;
  const NodeId* latest(const Graph& g);
  bool keeps(const Graph& g, Step step, uint32_t generation) const;

  // A step as a trace: the next one of its kind is recorded without its ops being asked for one by one.
  struct CellTrace {
    bool start;
    uint32_t settings;
    std::vector<uint32_t> equals;  // of the nodes that the step reads: for each the first that is equal to it
    std::unique_ptr<Trace> trace;
    std::vector<uint32_t> places;  // in the trace, of the step's nodes
    // The trace of the step right after this one, and what that reads but for x: places in this trace.
    uint64_t next = 0;  // its number; 0: not known
    std::vector<uint32_t> chain = {};
    void copy_nodes(NodeId* to) const {
      for (const uint32_t place : places) *to++ = trace->nodes()[place];
    }
  };
  void read_step(Engine& engine, Step from, NodeId x);
  bool record_again(Engine& engine, Step from, NodeId* next);
  void learn_step(Engine& engine, Step from, NodeId begin, const NodeId* next);
  CellTrace* find_trace(uint64_t number);
  void link(CellTrace* p, const CellTrace& next) const;
  uint64_t record_next(Engine& engine, uint64_t last, NodeId x, NodeId* next);
  uint64_t record_step(Engine& engine, Step from, NodeId x, NodeId* next);
  template <class F>
  Step make_step(Engine& engine, F fill);
  void check_input(const Graph& g, NodeId x) const;

  const bool cells_;
  std::vector<CellTrace> traces_;      // the one used last is first
  std::vector<NodeId> read_, inputs_;  // what the current step reads; the same without duplicates
  std::vector<uint32_t> equals_;
  // The rates that there were lately, with their numbers.
  struct NumberedRates {
    std::array<float, kOwnRate + 1> rates;
    uint32_t number;
  };
  std::vector<NumberedRates> known_settings_;
  uint32_t settings_ = 0, last_settings_ = 0;
  bool trying_ = false, differs_ = false;          // see would_change()
  std::vector<std::unique_ptr<PerGraph>> graphs_;  // of the graphs there are, at least one
  PerGraph* per_graph_;                            // the one selected
  PerInstance* per_instance_;                      // and in it
};

// h = tanh(b + Wx x + Wh h'). Elman, Finding structure in time, 1990.
class SimpleRnn : public RnnBuilder {
 public:
  SimpleRnn(const BuilderSize& size, const std::shared_ptr<Collection>& outer);

 protected:
  void record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) override;
};

// z = s(bz + Wxz x + Whz h'), r = s(br + Wxr x + Whr h'), c = tanh(bh + Wxh x + Whh (r .* h')),
// h = (1 - z) .* h' + z .* c. Cho et al., Learning phrase representations using RNN encoder-decoder, 2014.
// Dropout is not variational: new masks for the inputs of every layer and for the output at every step.
class Gru : public RnnBuilder {
 public:
  Gru(const BuilderSize& size, const std::shared_ptr<Collection>& outer);
  void set_dropout(float rate) override;

 protected:
  void record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) override;

 private:
  NodeId drop_out(Graph& g, NodeId x) const;
};

// a = b + Wx x + Wh h' {4H}: i = s(a1), f = s(a2 + forget_bias), o = s(a3), g = tanh(a4);
// c = f .* c' + i .* g, h = o .* tanh(c). Hochreiter and Schmidhuber, Long short-term memory, 1997; dropout
// after Gal and Ghahramani, A theoretically grounded application of dropout in RNNs, 2016.
class VanillaLstm : public RnnBuilder {
 public:
  VanillaLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool layer_norm,
              float forget_bias);

 protected:
  enum : uint32_t { kWx, kWh, kB };
  VanillaLstm(const CellShape& shape, const BuilderSize& size, const std::shared_ptr<Collection>& outer,
              bool layer_norm, float forget_bias);
  // Scales and shifts of layer normalisation live in the outer collection, as in DyNet.
  void add_norms(const std::shared_ptr<Collection>& outer);
  void record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) override;
  // The matrices and the bias as they enter the step.
  virtual NodeId weight(Graph& g, uint32_t layer, uint32_t which) { return p(g, layer, which); }

 private:
  enum : uint32_t { kGh, kBh, kGx, kBx, kGc, kBc, kNorms };
  struct Gates {  // z {4H}xB and c' {H}xB, ready for the cell
    NodeId z, c;
    uint32_t cols, batch;  // of the input; B = cols * batch
    bool matrix;           // is a single column of the results {H,1}, as in DyNet?
  };
  NodeId norm(Graph& g, NodeId x, uint32_t layer, uint32_t scale) const;
  NodeId gates(Graph& g, uint32_t layer, NodeId x, NodeId h);
  Gates prepare(Graph& g, NodeId z, NodeId c) const;
  void cell(Graph& g, uint32_t layer, NodeId z, NodeId c, NodeId* next_c, NodeId* next_h) const;

  const bool layer_norm_;
  const float forget_bias_;
  std::vector<StoragePtr> norms_;
};

// The same with a forget bias of 1 and, if wanted, Gaussian noise on the parameters, new at every step.
class CompactLstm : public VanillaLstm {
 public:
  CompactLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer);
  void set_weight_noise(float deviation);  // < 0: ValueError

 protected:
  NodeId weight(Graph& g, uint32_t layer, uint32_t which) override;
};

// The same with constant masks on Wx and Wh.
// Narang et al., Exploring sparsity in recurrent neural networks, 2017.
class SparseLstm : public VanillaLstm {
 public:
  SparseLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool layer_norm,
             float forget_bias);
  struct Counts {
    size_t all, kept;
  };
  // Masks the smallest weights: rate * all of them over all layers. rate outside [0,1]: ValueError.
  Counts set_sparsity(float rate);

 protected:
  std::vector<NodeId> listed(Graph& g, uint32_t layer) override;  // Wx and Wh as masked, and b
  NodeId weight(Graph& g, uint32_t layer, uint32_t which) override;

 private:
  enum : uint32_t { kMaskX = 3, kMaskH = 4 };
};

// The forget gate is 1 - i. With peepholes:
// i = s(bi + Wxi x + Whi h' + Wci c'), g = tanh(bc + Wxc x + Whc h'), c = (1 - i) .* c' + i .* g,
// o = s(bo + Wxo x + Who h' + Wco c), h = o .* tanh(c). Greff et al., LSTM: a search space odyssey, 2015.
// Without: no terms of c in i and o, and no dropout (FastLSTMBuilder).
class CoupledLstm : public RnnBuilder {
 public:
  CoupledLstm(const BuilderSize& size, const std::shared_ptr<Collection>& outer, bool peepholes);
  void set_dropout(float rate) override;

 protected:
  void record(Graph& g, const NodeId* prev, NodeId x, NodeId* next) override;

 private:
  enum : uint32_t { kWxi, kWhi, kWci, kBi, kWxo, kWho, kWco, kBo, kWxc, kWhc, kBc, kCount };
  const bool peepholes_;
};

}  // namespace dyc
