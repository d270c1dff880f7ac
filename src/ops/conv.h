// Convolution over two dimensions, and over the columns of a matrix. Kernels: cpu/isa/conv.h.
#pragma once
#include "ops/op.h"
#include "ops/tuning.h"

namespace dyc {

// One dimension of the map: y positions, each the start (in x, from -pad on) of a window of f elements.
struct WindowAxis {
  int64_t x, f, stride, y, pad;

  static WindowAxis valid(int64_t x, int64_t f, int64_t stride) {
    return {x, f, stride, x < f ? 0 : (x - f) / stride + 1, 0};
  }
  // Zeros around x, so that y = x / stride, rounded up; the odd one comes after.
  static WindowAxis same(int64_t x, int64_t f, int64_t stride) {
    const int64_t y = (x + stride - 1) / stride, lacking = (y - 1) * stride + f - x;
    return {x, f, stride, y, lacking > 0 ? lacking / 2 : 0};
  }
  // attrs {..., rows' stride, columns' stride, is_valid}
  static WindowAxis of(const uint32_t* attrs, uint32_t i, int64_t x, int64_t f) {
    return attrs[2] ? valid(x, f, attrs[i]) : same(x, f, attrs[i]);
  }
};

// What a convolution is, but for the batch. x {H,W,C}, f {FH,FW,C,FC}.
struct ConvShape {
  WindowAxis h, w;
  int64_t channels, filters;
  ConvShape(const Dim& x, const Dim& f, const uint32_t* attrs)
      : h(WindowAxis::of(attrs, 0, x.rows(), f.rows())),
        w(WindowAxis::of(attrs, 1, x.cols(), f.cols())),
        channels(x[2]),
        filters(f[3]) {}
  int64_t positions() const { return h.y * w.y; }
  int64_t taps() const { return h.f * w.f * channels; }
};

inline void check_window(const ShapeArgs& s, const uint32_t* attrs, uint32_t rows, uint32_t cols) {
  if (attrs[0] == 0 || attrs[1] == 0)
    shape_error(s, text("strides >= 1, not [", attrs[0], ", ", attrs[1], "]"));
  if (attrs[2] && (rows > s[0].rows() || cols > s[0].cols()))
    shape_error(s, text("a window {", rows, ",", cols, "} within x, or is_valid=False"));
}

// Gradients of shared filters are sums over the whole launch, computed for a few filters at once.
using tuning::kFilterPiece;
inline uint32_t filter_pieces(uint32_t filters) { return (filters + kFilterPiece - 1) / kFilterPiece; }

// attrs {rows' stride, columns' stride, is_valid}. x {H,W[,C]}xB, f {FH,FW,C,FC}[xB] -> {YH,YW,FC}xB
struct Conv2d {
  static constexpr Meta meta = Meta::of(OpKind::custom, "conv2d", "conv2d(x, f)", Reads::x).hide();
  static constexpr Param params[] = {{"x"}, {"f"}};
  static Dim shape(const ShapeArgs& s) {
    const Dim &x = s[0], &f = s[1];
    if (x.nd != 2 && x.nd != 3) shape_error(s, "x with 2 or 3 dimensions {rows, columns, channels}");
    if (f.nd != 4) shape_error(s, "f with 4 dimensions {rows, columns, channels, filters}");
    if (f[2] != x[2]) shape_error(s, text("as many channels in f as in x, ", x[2]));
    check_window(s, s.attrs, f.rows(), f.cols());
    const ConvShape c(x, f, s.attrs);
    return Dim({static_cast<uint32_t>(c.h.y), static_cast<uint32_t>(c.w.y), f[3]}, common_batch(s));
  }
  // Pieces that can be computed apart: of the result batch items; of the gradient of x its batch items, of
  // that of f blocks of filters, of that of the bias batch items.
  static uint32_t pieces(const KernelArgs& m) { return m.yd->bd; }
  static uint32_t pieces(const KernelArgs& m, uint32_t arg) {
    return arg == 1 ? m.xd[1]->bd * filter_pieces((*m.xd[1])[3]) : m.xd[arg]->bd;
  }
  static uint64_t work(const KernelArgs& m) {  // multiply-adds
    return m.yd->size() * (m.xd[1]->batch_size() / (*m.xd[1])[3]);
  }
};

// The same plus b {FC}[xB].
struct Conv2dBias : Conv2d {
  static constexpr Meta meta = Meta::of(OpKind::custom, "conv2d_bias", "conv2d(x, f) + b", Reads::x).hide();
  static constexpr Param params[] = {{"x"}, {"f"}, {"b"}};
  static Dim shape(const ShapeArgs& s) {
    const Dim y = Conv2d::shape(s);
    if (s[2].nd != 1 || s[2].rows() != y[2]) shape_error(s, text("b {", y[2], "}, one for each filter"));
    return y;
  }
};

// y_j = f' x_j..j+w-1: x {r,c}xB, f {r,w[,F]}[xB] -> {F,c-w+1}xB. A patch of x and a filter are both
// contiguous.
struct Filter1dNarrow {
  static constexpr Meta meta = Meta::of(OpKind::custom, "filter1d_narrow", "filter1d_narrow(x, y)", Reads::x);
  static constexpr Param params[] = {{"x"}, {"y"}};
  static Dim shape(const ShapeArgs& s) {
    const Dim &x = s[0], &f = s[1];
    if (x.nd != 2) shape_error(s, "a matrix x");
    if (f.nd != 2 && f.nd != 3) shape_error(s, "y with 2 or 3 dimensions {rows, columns, filters}");
    if (f.rows() != x.rows()) shape_error(s, text("as many rows in y as in x, ", x.rows()));
    if (f.cols() > x.cols()) shape_error(s, text("at most as many columns in y as in x, ", x.cols()));
    return Dim({f[2], x.cols() - f.cols() + 1}, common_batch(s));
  }
  static uint32_t pieces(const KernelArgs& m) { return m.yd->bd; }
  static uint32_t pieces(const KernelArgs& m, uint32_t arg) {
    return arg == 1 ? m.xd[1]->bd * filter_pieces((*m.xd[1])[2]) : m.xd[0]->bd;
  }
  static uint64_t work(const KernelArgs& m) {
    return m.yd->size() * (size_t{m.xd[1]->rows()} * m.xd[1]->cols());
  }
};

// The ops of this file, in the order of their numbers.
using ConvOps = OpList<Conv2d, Conv2dBias, Filter1dNarrow>;

}  // namespace dyc
