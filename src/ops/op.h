// What the definition of an op is made of. An op is a struct with
//   meta      name, formula, kind, batch rule, what backward reads
//   shape()   the result's shape from those of the arguments; throws ValueError
//   check()   optional: what can only be checked when the value is computed (indices)
//   column_role optional: ColumnRole
//   scratch() optional: bytes of scratch memory that a node takes (ops/scratch.h)
//   kernels   by kind:
//     unary     template <class T> static T f(T x, const float* a);            y = f(x)
//               template <class T> static T df(T x, T y, const float* a);      dy/dx
//     binary    template <class T> static T f(T x, T y, const float* a);       z = f(x, y), broadcast
//               template <class T> static T dx(T x, T y, T z, const float* a); and dy(...)
//     per_node  template <class I> static void forward(const KernelArgs& m);
//               template <class I> static void backward(const KernelArgs& m, uint32_t arg);
//     custom    uint32_t pieces(const KernelArgs& m[, uint32_t arg]);  parts of the result (or of the
//               argument's gradient, decided by its shape) that can be computed separately
//               uint64_t work(const KernelArgs& m);                    multiply-adds, to share among threads
//               and a kernel file per device: forward and backward of a range of pieces
//     others    (matmul, lookup ...) work on a whole launch and have a kernel file per device; a script's
//               functions (user) have none.
// T is float or a SIMD vector, I names the instruction set; the same text of f, df, dx, dy is
// compiled for CUDA with T = float. Each header lists its structs, ops/table.h joins the lists; everything
// else is generated from them.
#pragma once
#include <cstdint>
#include <cstring>

#include "base/dim.h"
#include "base/error.h"
#include "ops/kernel_args.h"

namespace dyc {

enum class OpKind : uint8_t {
  input,      // value present when recorded: inputs, constants
  parameter,  // a Parameters object in the graph
  draw,       // random values, drawn in record order before the launches run
  view,       // same memory as its argument
  unary,
  binary,
  per_node,
  matmul,  // x*y, affine_transform: one GEMM per weight over all columns of a launch
  lookup,
  user,    // functions of a script, node by node
  custom,  // one node at a time like per_node, in pieces that threads share; kernels per device
};

enum class Batch : uint8_t {
  ragged,  // nodes of any shapes share a launch
  none,    // has no launch (inputs, views)
};

// What an op does to a product whose columns are read in blocks (plan/column_losses.h). `maps` and `loss`
// have kernels for that (cpu/column_losses.h); those of `maps` compute the element that a pick reads.
enum class ColumnRole : uint8_t {
  none,
  adds,   // the same vector to each column
  maps,   // each column to one as long
  picks,  // an element of each column
  loss,   // a number for each column
};

// One parameter of the op's Python function, in order. Expressions come first.
struct Param {
  enum Kind : uint8_t {
    expr,   // an Expression
    exprs,  // a list of Expressions (the only expression parameter)
    real,   // float attribute
    uint,   // unsigned attribute
    flag,   // bool attribute
    // Kept per node: these do not prevent batching.
    index,    // one index
    indices,  // list of indices; its length is an attribute
    number,   // one float
  };
  const char* name;
  Kind kind = expr;
  double standard = NAN_;  // default; NAN_ = required
  static constexpr double NAN_ = -1.25e300;
  constexpr bool required() const { return standard == NAN_; }
};

enum class Reads : uint8_t { none, x, y, x_and_y };  // what backward reads: argument values, the result

struct Meta {
  const char* name;     // of the node and, unless hidden, of the Python function
  const char* formula;  // for print_graphviz and the table: "tanh(x)"
  OpKind kind;
  Batch batch;
  bool nondiff = false;       // gradient is zero by definition
  bool hidden = false;        // recorded by other functions only; no Python function of its name
  bool reads_x = true;        // backward reads argument values
  bool reads_y = true;        // backward reads the result
  bool thread_group = false;  // per_node: a device may have a thread group compute a node
  bool warps_share = false;   // that may be several warps (ops/element_loops.h)

  // Nodes of any shapes share a launch, and the op has a Python function, unless it is hidden.
  static constexpr Meta of(OpKind kind, const char* name, const char* formula, Reads reads) {
    Meta m{name, formula, kind, Batch::ragged};
    m.reads_x = reads == Reads::x || reads == Reads::x_and_y;
    m.reads_y = reads == Reads::y || reads == Reads::x_and_y;
    m.thread_group = kind == OpKind::per_node;
    return m;
  }
  static constexpr Meta unary(const char* name, const char* formula, Reads reads) {
    return of(OpKind::unary, name, formula, reads);
  }
  static constexpr Meta binary(const char* name, const char* formula, Reads reads) {
    return of(OpKind::binary, name, formula, reads);
  }
  static constexpr Meta per_node(const char* name, const char* formula, Reads reads) {
    return of(OpKind::per_node, name, formula, reads);
  }
  // Inputs, draws, parameters and views.
  static constexpr Meta no_launch(OpKind kind, const char* name, const char* formula,
                                  Reads reads = Reads::x_and_y) {
    Meta m = of(kind, name, formula, reads).hide();
    m.batch = Batch::none;
    m.nondiff = kind == OpKind::input || kind == OpKind::draw;
    return m;
  }
  constexpr Meta hide() const {
    Meta m = *this;
    m.hidden = true;
    return m;
  }
  constexpr Meta shared_by_warps() const {
    Meta m = *this;
    m.warps_share = true;
    return m;
  }
  constexpr Meta by_one_thread() const {
    Meta m = *this;
    m.thread_group = false;
    return m;
  }
};

struct ShapeArgs {
  const char* op;
  const Dim* const* x;
  uint32_t n;
  const uint32_t* attrs;
  uint32_t n_attrs;
  const Dim& operator[](uint32_t i) const { return *x[i]; }
  float real(uint32_t i) const {
    float f;
    std::memcpy(&f, attrs + i, 4);
    return f;
  }
};

// "tanh(): expected <wanted>, got {3} {4,5}"
[[noreturn]] void shape_error(const ShapeArgs& s, const std::string& wanted);

// ValueError unless x has at most `most` dimensions, and the axis is one of them.
void check_axis(const ShapeArgs& s, uint32_t axis, uint32_t most);

// ValueError for an index that is no row of x.
void check_ids(const KernelArgs& m, const char* op);

// Batch size of the result: all arguments have batch 1 or one common B; else ValueError.
uint32_t common_batch(const ShapeArgs& s);

// The first argument's shape; throws where `same` finds another one unequal, batch sizes left aside.
const Dim& equal_sizes(const ShapeArgs& s, bool (Dim::*same)(const Dim&) const);

// ---- shape rules shared by many ops
Dim same_as_x(const ShapeArgs& s);         // {..}xB -> {..}xB
Dim broadcast_shape(const ShapeArgs& s);   // + and cmult: leading dimensions equal or 1
Dim identical_shape(const ShapeArgs& s);   // all arguments exactly alike, batch included
Dim scalar_per_batch(const ShapeArgs& s);  // {..}xB -> {1}xB

// Ops in the order of their numbers.
template <class... Ops>
struct OpList {
  static constexpr uint32_t size = sizeof...(Ops);
};

}  // namespace dyc
