// The op table. An op's number is its place in AllOps; every table of the project (kernels per ISA,
// Python entry points, documentation, test ids) is generated from this list.
#pragma once
#include <type_traits>

#include "ops/arithmetic.h"
#include "ops/contract.h"
#include "ops/conv.h"
#include "ops/elementwise.h"
#include "ops/input.h"
#include "ops/linalg.h"
#include "ops/list.h"
#include "ops/loss.h"
#include "ops/lstm.h"
#include "ops/lstm_cell.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/pooling.h"
#include "ops/reduce.h"
#include "ops/select.h"
#include "ops/shape.h"
#include "ops/simplex.h"
#include "ops/softmax.h"

namespace dyc {

template <class... Ops>
struct OpList {
  static constexpr uint32_t size = sizeof...(Ops);
};

using AllOps = OpList<
    // input.h, matmul.h
    Input, Constant, ParameterNode, Draw, Lookup, SubView, MatMul, Affine,
    // elementwise.h
    Exp, Log, Sqrt, Square, Cube, PowConst, Abs, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh, Tanh, Asinh,
    Acosh, Atanh, Logistic, LogSigmoid, Rectify, Elu, Selu, Silu, Softsign, Erf, Lgamma, Round, Ceil, Floor,
    Negate, Scale, AddConst, ConstMinus, ConstDiv, NoBackprop, FlipGradient, ScaleGradient,
    // arithmetic.h
    Add, Sub, CMult, CDiv, Pow, ColwiseAdd, BMax, BMin, PairwiseRankLoss, DotProduct, TraceOfProduct,
    SquaredDistance, L1Distance, HuberDistance, BinaryLogLoss,
    // list.h
    Esum, Average, Emax, Concatenate, ConcatenateToBatch,
    // shape.h, select.h
    Reshape, Transpose, ToDevice, Pick, PickRange, StridedSelect, SelectRows, SelectCols, PickBatchElems,
    FoldRows,
    // reduce.h, norm.h
    SumElems, SquaredNorm, L2Norm, SumDim, MomentDim, StdDim, CumSum, LogSumExpDim, MaxDim, MinDim, LogSumExp,
    LayerNorm, WeightNorm,
    // softmax.h, loss.h
    Softmax, LogSoftmax, RestrictedLogSoftmax, ArgMax, PickNegLogSoftmax, Hinge, HingeDim, PoissonLoss,
    // simplex.h, linalg.h, contract.h
    Sparsemax, SparsemaxLoss, ConstrainedSoftmax, Inverse, LogDet, CircConv, CircCorr, Contract3D1D,
    Contract3D1DBias, Contract3D1D1D, Contract3D1D1DBias,
    // conv.h, pooling.h
    Conv2d, Conv2dBias, Filter1dNarrow, MaxPooling2d, KMaxPooling, KmhNgram,
    // lstm.h, lstm_cell.h
    VanillaLstmC, VanillaLstmH, LstmActivate, LstmCell>;

using OpId = uint16_t;
constexpr uint32_t kOps = AllOps::size;

namespace detail {
template <class Op, class... Ops>
constexpr OpId index_of(OpList<Ops...>) {
  OpId i = 0;
  const bool found = ((std::is_same_v<Op, Ops> ? true : (++i, false)) || ...);
  return found ? i : 0xffff;
}
}  // namespace detail

template <class Op>
constexpr OpId op_id = detail::index_of<Op>(AllOps{});

using ShapeRule = Dim (*)(const ShapeArgs&);
using CheckRule = void (*)(const Member&, const char* op);

using ResultPieces = uint32_t (*)(const Member&);
using GradientPieces = uint32_t (*)(const Member&, uint32_t arg);
using WorkRule = uint64_t (*)(const Member&);

// A row at run time.
struct OpRow {
  const Meta* meta;
  const Param* params;
  uint32_t n_params;
  ShapeRule shape;  // null for leaves: the recorder is given the extents
  CheckRule check;  // null: nothing left to check when computed
  bool list;        // first parameter is a list of expressions
  // structured rows
  ResultPieces pieces = nullptr;
  GradientPieces gradient_pieces = nullptr;
  WorkRule work = nullptr;

  // Does a node have indices of its own?
  bool ids() const {
    for (uint32_t i = 0; i < n_params; ++i)
      if (params[i].kind == Param::index || params[i].kind == Param::indices) return true;
    return false;
  }
};

const OpRow& op_row(OpId id);

}  // namespace dyc
