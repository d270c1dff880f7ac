// The LSTM's gates and cell. Kernels that call them: cpu/isa/kernels.cc; on a GPU cuda/kernels/per_node.cu.
#pragma once
#include "ops/lstm.h"

namespace dyc {

namespace lstm {

enum Gate { input, forget, output, candidate };
template <class T>
struct Gates {
  T i, f, o, u;
};
template <class T, Gate gate>
DYC_INLINE T activated(T z, float forget_bias) {
  if constexpr (gate == candidate) return vtanh(z);
  else if constexpr (gate == forget) return vlogistic(z + forget_bias);
  else return vlogistic(z);
}
// z: of the input gate; the others follow at distances of h.
template <class T>
DYC_INLINE Gates<T> gates_of(const float* z, size_t h, float forget_bias) {
  return {activated<T, input>(get<T>(z), forget_bias), activated<T, forget>(get<T>(z + h), forget_bias),
          activated<T, output>(get<T>(z + 2 * h), forget_bias),
          activated<T, candidate>(get<T>(z + 3 * h), forget_bias)};
}

}  // namespace lstm

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
      put<T>(y + g, activated<T, input>(get<T>(z + g), bias));
      put<T>(y + g + h, activated<T, forget>(get<T>(z + g + h), bias));
      put<T>(y + g + 2 * h, activated<T, output>(get<T>(z + g + 2 * h), bias));
      put<T>(y + g + 3 * h, activated<T, candidate>(get<T>(z + g + 3 * h), bias));
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

// One step of the cell. z {4H}xB before activation, c_prev {H}xB. The result is one block of memory {2HB}:
// c {H}xB, then h {H}xB; the builder returns views of both. Backward activates the gates again: to write them
// and their gradients took longer than that.
struct LstmCell {
  static constexpr Meta meta = Meta::per_node("lstm_cell", "[c; h]", Reads::x_and_y).hide();
  static constexpr Param params[] = {{"z"}, {"c_prev"}, {"forget_bias", Param::real, 1.0}};
  static Dim shape(const ShapeArgs& s) {
    if (s[0].nd != 1 || s[1].nd != 1 || s[0].d[0] != 4 * s[1].d[0])
      shape_error(s, "gates of 4 times the size of the cell");
    if (s[1].bd != s[0].bd) shape_error(s, "equal batch sizes");
    return Dim({2 * s[1].d[0] * s[0].bd});
  }

  struct Forward {
    const float* c_prev;
    float *c, *out;
    template <class T>
    DYC_INLINE void at(size_t s, size_t, const lstm::Gates<T>& y) const {
      using namespace lstm;
      const T cell = y.i * y.u + y.f * get<T>(c_prev + s);
      put<T>(c + s, cell);
      put<T>(out + s, y.o * vtanh(cell));
    }
  };
  template <bool to_z, bool to_c>
  struct Backward {
    const float *c, *c_prev, *dh;
    float *dc, *dz, *dc_prev;  // dc: what arrives at c from outside the cell; then all of it, for gradient()
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g, const lstm::Gates<T>& y) const {
      using namespace lstm;
      const T t = vtanh(get<T>(c + s)), d = get<T>(dh + s);
      const T cell = get<T>(dc + s) + d * y.o * (1.f - t * t);
      put<T>(dc + s, cell);
      if constexpr (to_c) add<T>(dc_prev + s, cell * y.f);
      if constexpr (to_z) {
        add<T>(dz + g, cell * y.u * y.i * (1.f - y.i));
        add<T>(dz + g + h, cell * get<T>(c_prev + s) * y.f * (1.f - y.f));
        add<T>(dz + g + 2 * h, d * t * y.o * (1.f - y.o));
        add<T>(dz + g + 3 * h, cell * y.i * (1.f - y.u * y.u));
      }
    }
  };

  // step.at(state index, gate index, gates) over all elements.
  template <class Step>
  struct AtOnce {
    Step step;
    const float* z;
    size_t h;
    float forget_bias;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      step.template at<T>(s, g, lstm::gates_of<T>(z + g, h, forget_bias));
    }
  };
  // The same in passes, a few elements at a time. A processor computes several elements at once within a
  // short window of instructions; two functions of one element after each other exceed it.
  static constexpr size_t kPassed = 128;
  template <lstm::Gate gate>
  struct GatePass {
    const float* z;
    float *y, forget_bias;
    template <class T>
    DYC_INLINE void at(size_t i, size_t) const {
      using namespace lstm;
      put<T>(y + gate * kPassed + i, activated<T, gate>(get<T>(z + i), forget_bias));
    }
  };
  template <class Step>
  struct StepPass {
    const Step& step;
    const float* y;
    size_t s, g;
    template <class T>
    DYC_INLINE void at(size_t i, size_t) const {
      using namespace lstm;
      step.template at<T>(s + i, g + i,
                          Gates<T>{get<T>(y + i), get<T>(y + kPassed + i), get<T>(y + 2 * kPassed + i),
                                   get<T>(y + 3 * kPassed + i)});
    }
  };
  template <class I, class Step>
  static DYC_INLINE void for_elements(const KernelArgs& m, const Step& step) {
    const size_t h = m.xd[1]->d[0], batch = m.xd[0]->bd;
    const float bias = m.real(0);
    const AtOnce<Step> at_once{step, m.x[0], h, bias};
    if constexpr (is_thread_group<I>) return lstm::for_gates<I>(h, batch, at_once);
    if (h <= I::lanes) return lstm::for_gates<I>(h, batch, at_once);
    alignas(64) float y[4 * kPassed];
    for (size_t b = 0; b < batch; ++b)
      for (size_t first = 0; first < h; first += kPassed) {
        const size_t n = h - first < kPassed ? h - first : kPassed, s = b * h + first, g = 4 * b * h + first;
        const float* const z = m.x[0] + g;
        lstm::for_gates<I>(n, 1, GatePass<lstm::input>{z, y, bias});
        lstm::for_gates<I>(n, 1, GatePass<lstm::forget>{z + h, y, bias});
        lstm::for_gates<I>(n, 1, GatePass<lstm::output>{z + 2 * h, y, bias});
        lstm::for_gates<I>(n, 1, GatePass<lstm::candidate>{z + 3 * h, y, bias});
        lstm::for_gates<I>(n, 1, StepPass<Step>{step, y, s, g});
      }
  }

  static DYC_INLINE size_t elements_of(const KernelArgs& m) { return size_t{m.xd[1]->d[0]} * m.xd[1]->bd; }
  template <class I>
  static void forward(const KernelArgs& m) {
    for_elements<I>(m, Forward{m.x[1], m.out(), m.out() + elements_of(m)});
  }
  template <class I, bool to_z, bool to_c>
  static DYC_INLINE void run_backward(const KernelArgs& m, float* dz, float* dc_prev) {
    float* const dc = const_cast<float*>(m.dy);
    for_elements<I>(m,
                    Backward<to_z, to_c>{m.y, m.x[1], m.dy + elements_of(m), dc, dz, dc_prev, m.xd[1]->d[0]});
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
