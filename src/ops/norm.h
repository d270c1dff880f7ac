// Normalisation ops, fused: statistics are computed again by the gradient of each argument.
#pragma once
#include "ops/op.h"
#include "ops/reduce.h"

namespace dyc {

// g * (x - mean) / (std + 1e-8) + b; mean and population std over each batch item.
// x {r[,c]}xB; g, b: x's size or 1 in each dimension, batch 1 or B.
struct LayerNorm {
  static constexpr Meta meta =
      Meta::per_node("layer_norm", "layer_norm(x, g, b)", Reads::x).shared_by_warps();
  static constexpr Param params[] = {{"x"}, {"g"}, {"b"}};
  static Dim shape(const ShapeArgs& s) {
    const Dim& x = s[0];
    if (x.nd > 2) shape_error(s, "x of at most 2 dimensions");
    for (uint32_t k = 1; k < 3; ++k)
      for (uint32_t i = 0; i < (x.nd > s[k].nd ? x.nd : s[k].nd); ++i)
        if (s[k][i] != x[i] && s[k][i] != 1) shape_error(s, "g and b with dimensions of x or 1");
    Dim r = x;
    r.bd = common_batch(s);
    return r;
  }

  // How an argument repeats over a column of x.
  struct Operand {
    bool one_row;
    size_t column;  // step between columns, 0 for a single one
    DYC_INLINE explicit Operand(const Dim& d)
        : one_row(d.rows() == 1), column(d.cols() == 1 ? 0 : d.rows()) {}
    template <class I, class C>
    DYC_INLINE typename I::V get(const float* p, C c, size_t i, size_t j) const {
      return one_row ? fill<I>(p[j * column]) : c.get(p + j * column + i);
    }
  };
  struct Stats {
    float mean, std;
  };
  template <class I>
  static DYC_INLINE Stats stats(const float* x, size_t n) {
    const float count = static_cast<float>(n);
    const float mean = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(x + i); }) / count;
    const float var = sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA {
      const auto v = c.get(x + i) - mean;
      return v * v;
    });
    return {mean, sqrt_of(var / count)};
  }

  template <class I>
  static void forward(const KernelArgs& m) {
    const Operand g(*m.xd[1]), h(*m.xd[2]);
    const size_t rows = m.xd[0]->rows(), cols = m.xd[0]->cols();
    each_run<I>(m.yd->bd, [&](size_t b, auto group) DYC_LAMBDA {
      using G = decltype(group);
      const auto item = static_cast<uint32_t>(b);
      const float *x = m.xb(0, item), *gp = m.xb(1, item), *hp = m.xb(2, item);
      float* y = m.yb(item);
      const Stats s = stats<G>(x, rows * cols);
      const float scale = 1.f / (s.std + 1e-8f);
      for (size_t j = 0; j < cols; ++j)
        each<G>(rows, [&](size_t i, auto c) DYC_LAMBDA {
          const auto v = (c.get(x + j * rows + i) - s.mean) * scale;
          c.put(y + j * rows + i, g.template get<G>(gp, c, i, j) * v + h.template get<G>(hp, c, i, j));
        });
    });
  }

  // Of an argument that all batch items share, one after the other.
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const uint32_t batch = m.yd->bd, apart = m.xd[arg]->bd;
    if (arg > 0 && m.xd[arg]->rows() > 1) {
      for (uint32_t b = 0; b < batch; ++b) backward_operand<I, false>(m, arg, b);
      return;
    }
    each_run<I>(apart, [&](size_t first, auto group) DYC_LAMBDA {
      using G = decltype(group);
      for (auto b = static_cast<uint32_t>(first); b < batch; b += apart) {
        if (arg == 0) backward_x<G>(m, b);
        else backward_operand<G, true>(m, arg, b);
      }
    });
  }
  template <class I, bool one_row>
  static DYC_INLINE void backward_operand(const KernelArgs& m, uint32_t arg, uint32_t b) {
    using G = typename SummingGroup<I>::G;
    const Operand p(*m.xd[arg]);
    const size_t rows = m.xd[0]->rows(), cols = m.xd[0]->cols();
    if (!one_row && !has_elements<I>(rows)) return;
    const float *x = m.xb(0, b), *dy = m.dyb(b);
    const Stats s = arg == 1 ? stats<G>(x, rows * cols) : Stats{0.f, 0.f};
    const float scale = 1.f / (s.std + 1e-8f);
    for (size_t j = 0; j < cols; ++j) {
      float* to = m.dxb(arg, b) + j * p.column;
      const auto part = [&](size_t i, auto c) DYC_LAMBDA {
        const auto d = c.get(dy + j * rows + i);
        return arg == 1 ? d * ((c.get(x + j * rows + i) - s.mean) * scale) : d;
      };
      if constexpr (one_row) add_as_leader<G>(to, sum_run<G>(rows, part));
      else each<I>(rows, [&](size_t i, auto c) DYC_LAMBDA { c.add(to + i, part(i, c)); });
    }
  }

  // With t = std + eps and e = dy * g: dx = (e - mean(e)) / t - (x - mean) * sum(e * (x - mean)) / (t^2 n
  // std). For constant x the last term is taken as 0.
  template <class I>
  static DYC_INLINE void backward_x(const KernelArgs& m, uint32_t b) {
    const Operand g(*m.xd[1]);
    const size_t rows = m.xd[0]->rows(), cols = m.xd[0]->cols(), n = rows * cols;
    const float *x = m.xb(0, b), *gp = m.xb(1, b), *dy = m.dyb(b);
    float* dx = m.dxb(0, b);
    const Stats s = stats<I>(x, n);
    LongSum<float> total_e, total_ex;
    for (size_t j = 0; j < cols; ++j) {
      const auto e = [&](size_t i, auto c)
                         DYC_LAMBDA { return c.get(dy + j * rows + i) * g.template get<I>(gp, c, i, j); };
      total_e.add(sum_run<I>(rows, e));
      total_ex.add(sum_run<I>(
          rows, [&](size_t i, auto c) DYC_LAMBDA { return e(i, c) * (c.get(x + j * rows + i) - s.mean); }));
    }
    const float sum_e = total_e.total(), sum_ex = total_ex.total();
    const float scale = 1.f / (s.std + 1e-8f), count = static_cast<float>(n), mean_e = sum_e / count;
    const float k = s.std > 0 ? sum_ex * scale * scale / (count * s.std) : 0.f;
    for (size_t j = 0; j < cols; ++j)
      each<I>(rows, [&](size_t i, auto c) DYC_LAMBDA {
        const auto e = c.get(dy + j * rows + i) * g.template get<I>(gp, c, i, j);
        c.add(dx + j * rows + i, (e - mean_e) * scale - (c.get(x + j * rows + i) - s.mean) * k);
      });
  }
};

// g * w / norm(w), norm over each batch item of w. w {..}, g one element; batch 1 or B each.
struct WeightNorm {
  static constexpr Meta meta = Meta::per_node("weight_norm", "g * w / norm(w)", Reads::x);
  static constexpr Param params[] = {{"w"}, {"g"}};
  static Dim shape(const ShapeArgs& s) {
    if (s[1].batch_size() != 1) shape_error(s, "g of one element");
    Dim r = s[0];
    r.bd = common_batch(s);
    return r;
  }
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t n = m.ys();
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float* w = m.xb(0, b);
      float* y = m.yb(b);
      const float k = *m.xb(1, b) / sqrt_of(sum_squares<I>(w, n));
      each<I>(n, [&](size_t i, auto c) DYC_LAMBDA { c.put(y + i, k * c.get(w + i)); });
    }
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    const size_t n = m.ys();
    for (uint32_t b = 0; b < m.yd->bd; ++b) {
      const float *w = m.xb(0, b), *dy = m.dyb(b);
      float* dx = m.dxb(arg, b);
      const float norm = sqrt_of(sum_squares<I>(w, n));
      const float dot =
          sum_run<I>(n, [&](size_t i, auto c) DYC_LAMBDA { return c.get(dy + i) * c.get(w + i); });
      if (arg == 1) {
        add_as_leader<I>(dx, dot / norm);
        continue;
      }
      const float k = *m.xb(1, b) / norm, along = dot / norm / norm;
      each<I>(
          n, [&](size_t i, auto c) DYC_LAMBDA { c.add(dx + i, k * (c.get(dy + i) - along * c.get(w + i))); });
    }
  }
};

// The ops of this file, in the order of their numbers.
using NormOps = OpList<LayerNorm, WeightNorm>;

}  // namespace dyc
