// The LSTM's gates and cell. Kernels that call them: cpu/isa/kernels.cc; on a GPU cuda/kernels/per_node.cu.
#pragma once
#include "ops/lstm.h"

namespace dyc {

// z {4H}xB, rows i, f, o, g -> activated gates {4H}xB: logistic(i), logistic(f + forget_bias),
// logistic(o), tanh(g).
struct LstmActivate {
  static constexpr Meta meta = Meta::per_node("lstm_activate", "gates(z)", Reads::y).hide();
  static constexpr Param params[] = {{"z"}, {"forget_bias", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 1 || s[0].d[0] % 4) shape_error(s, "a vector of 4 equal blocks");
    return s[0];
  }
  struct Forward {
    const float* z;
    float* y;
    size_t h;
    float bias;
    template <class T>
    DYC_INLINE void at(size_t, size_t g) const {
      using namespace lstm;
      put<T>(y + g, vlogistic(get<T>(z + g)));
      put<T>(y + g + h, vlogistic(get<T>(z + g + h) + bias));
      put<T>(y + g + 2 * h, vlogistic(get<T>(z + g + 2 * h)));
      put<T>(y + g + 3 * h, vtanh(get<T>(z + g + 3 * h)));
    }
  };
  struct Backward {
    const float *y, *dy;
    float* dz;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t, size_t g) const {
      using namespace lstm;
      for (size_t k = 0; k < 3; ++k) {
        const T s = get<T>(y + g + k * h);
        add<T>(dz + g + k * h, get<T>(dy + g + k * h) * s * (1.f - s));
      }
      const T t = get<T>(y + g + 3 * h);
      add<T>(dz + g + 3 * h, get<T>(dy + g + 3 * h) * (1.f - t * t));
    }
  };
  template <class I>
  static void forward(const KernelArgs& m) {
    lstm::for_gates<I>(m.yd->d[0] / 4, m.yd->bd, Forward{m.x[0], m.out(), m.yd->d[0] / 4, m.real(0)});
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t) {
    lstm::for_gates<I>(m.yd->d[0] / 4, m.yd->bd, Backward{m.y, m.dy, m.dx, m.yd->d[0] / 4});
  }
};

// One step of the cell. z {4H}xB before activation, c_prev {H}xB. The result is one block of memory
// {6HB}: gates {4H}xB, then c {H}xB, then h {H}xB; the builder returns views of c and h.
struct LstmCell {
  static constexpr Meta meta = Meta::per_node("lstm_cell", "[gates; c; h]", Reads::x_and_y).hide();
  static constexpr Param params[] = {{"z"}, {"c_prev"}, {"forget_bias", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 1 || s[1].nd != 1 || s[0].d[0] != 4 * s[1].d[0])
      shape_error(s, "gates of 4 times the size of the cell");
    if (s[1].bd != s[0].bd) shape_error(s, "equal batch sizes");
    return Dim({6 * s[1].d[0] * s[0].bd});
  }
  struct Forward {
    const float *z, *c_prev;
    float *gates, *c, *out;
    size_t h;
    float bias;
    // Activates gate k: input, forget, output, candidate.
    template <class T, size_t k>
    DYC_INLINE T gate(size_t g) const {
      using namespace lstm;
      T x = get<T>(z + g + k * h);
      if constexpr (k == 1) x += bias;
      const T y = k < 3 ? vlogistic(x) : vtanh(x);
      put<T>(gates + g + k * h, y);
      return y;
    }
    template <class T>
    DYC_INLINE void finish(size_t s, T i, T f, T o, T u) const {
      using namespace lstm;
      const T cell = i * u + f * get<T>(c_prev + s);
      put<T>(c + s, cell);
      put<T>(out + s, o * vtanh(cell));
    }
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      const T i = gate<T, 0>(g), f = gate<T, 1>(g), o = gate<T, 2>(g), u = gate<T, 3>(g);
      finish<T>(s, i, f, o, u);
    }
  };
  // The same in passes. A processor computes several elements at a time within a short window of
  // instructions; two functions of one element after each other exceed it.
  template <size_t k>
  struct GatePass {
    const Forward& cell;
    template <class T>
    DYC_INLINE void at(size_t, size_t g) const {
      cell.template gate<T, k>(g);
    }
  };
  struct StatePass {
    const Forward& cell;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      const float* const y = cell.gates + g;
      const size_t h = cell.h;
      cell.finish<T>(s, get<T>(y), get<T>(y + h), get<T>(y + 2 * h), get<T>(y + 3 * h));
    }
  };
  template <bool to_z, bool to_c>
  struct Backward {
    const float *gates, *c, *c_prev, *dh;
    float *dc, *dz, *dc_prev;  // dc: what arrives at c from outside the cell; then all of it, for gradient()
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      const T i = get<T>(gates + g), f = get<T>(gates + g + h), o = get<T>(gates + g + 2 * h);
      const T t = vtanh(get<T>(c + s)), d = get<T>(dh + s);
      const T cell = get<T>(dc + s) + d * o * (1.f - t * t);
      put<T>(dc + s, cell);
      if constexpr (to_c) add<T>(dc_prev + s, cell * f);
      if constexpr (to_z) {
        const T u = get<T>(gates + g + 3 * h);
        add<T>(dz + g, cell * u * i * (1.f - i));
        add<T>(dz + g + h, cell * get<T>(c_prev + s) * f * (1.f - f));
        add<T>(dz + g + 2 * h, d * t * o * (1.f - o));
        add<T>(dz + g + 3 * h, cell * i * (1.f - u * u));
      }
    }
  };
  template <class I>
  static void forward(const KernelArgs& m) {
    const size_t h = m.xd[1]->d[0], n = h * m.xd[0]->bd;
    float* y = m.out();
    const Forward cell{m.x[0], m.x[1], y, y + 4 * n, y + 5 * n, h, m.real(0)};
    const uint32_t batch = m.xd[0]->bd;
    if constexpr (is_thread_group<I>) return lstm::for_gates<I>(h, batch, cell);
    if (h <= I::lanes) return lstm::for_gates<I>(h, batch, cell);
    lstm::for_gates<I>(h, batch, GatePass<0>{cell});
    lstm::for_gates<I>(h, batch, GatePass<1>{cell});
    lstm::for_gates<I>(h, batch, GatePass<2>{cell});
    lstm::for_gates<I>(h, batch, GatePass<3>{cell});
    lstm::for_gates<I>(h, batch, StatePass{cell});
  }
  template <class I, bool to_z, bool to_c>
  static DYC_INLINE void run_backward(const KernelArgs& m, float* dz, float* dc_prev) {
    const size_t h = m.xd[1]->d[0], n = h * m.xd[0]->bd;
    float* dc = const_cast<float*>(m.dy) + 4 * n;
    lstm::for_gates<I>(h, m.xd[0]->bd,
                       Backward<to_z, to_c>{m.y, m.y + 4 * n, m.x[1], m.dy + 5 * n, dc, dz, dc_prev, h});
  }
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    if (dx[0] && dx[1]) run_backward<I, true, true>(m, dx[0], dx[1]);
    else if (dx[0]) run_backward<I, true, false>(m, dx[0], nullptr);
    else if (dx[1]) run_backward<I, false, true>(m, nullptr, dx[1]);
  }
};

// The ops of this file, in the order of their numbers.
using LstmCellOps = OpList<LstmActivate, LstmCell>;

}  // namespace dyc
