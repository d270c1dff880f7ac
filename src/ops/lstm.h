// The cell and output of the LSTM whose gates are computed in one product. Gates are {4H}: input, forget,
// output and candidate, already activated.
#pragma once
#include "ops/element_loops.h"
#include "ops/op.h"

namespace dyc {

namespace lstm {

// c or c_prev {H}xB, gates {4H}xB -> {H}xB
inline Dim state_shape(const ShapeArgs& s) {
  if (s[0].nd != 1 || s[1].nd != 1) shape_error(s, "vectors");
  if (s[1].d[0] != 4 * static_cast<uint64_t>(s[0].d[0]))
    shape_error(s, "gates_t with 4 times the size of the cell");
  if (s[0].bd != s[1].bd) shape_error(s, "equal batch sizes");
  return s[0];
}

template <class T>
DYC_INLINE T get(const float* p) {
  T v;
  __builtin_memcpy(&v, p, sizeof(T));
  return v;
}
template <class T>
DYC_INLINE void put(float* p, T v) {
  __builtin_memcpy(p, &v, sizeof(T));
}
template <class T>
DYC_INLINE void add(float* p, T v) {
  put<T>(p, get<T>(p) + v);
}

// step.template at<T>(state index, gate index) over all elements: vectors, then single ones. The gate index
// is that of the input gate; the others follow at distances of H.
template <class I, class Step>
DYC_INLINE void for_gates(size_t h, size_t batch, const Step& step) {
  for (size_t b = 0; b < batch; ++b) {
    const size_t s = b * h, g = 4 * s;
    if constexpr (is_thread_group<I>) {
      each_one<I>(h, [&](size_t i) DYC_LAMBDA { step.template at<float>(s + i, g + i); });
      continue;
    }
    size_t i = 0;
    for (; i + I::lanes <= h; i += I::lanes) step.template at<typename I::V>(s + i, g + i);
    for (; i < h; ++i) step.template at<float>(s + i, g + i);
  }
}
template <class I, class Step>
DYC_INLINE void for_state(const KernelArgs& m, const Step& step) {
  for_gates<I>(m.yd->d[0], m.yd->bd, step);
}

}  // namespace lstm

// c = i * g + f * c_prev
struct VanillaLstmC {
  static constexpr Meta meta = Meta::per_node("vanilla_lstm_c", "i * g + f * c_tm1", Reads::x);
  static constexpr Param params[] = {{"c_tm1"}, {"gates_t"}};
  static Dim shape(const ShapeArgs& s) { return lstm::state_shape(s); }

  struct Forward {
    const float *c, *gates;
    float* y;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      put<T>(y + s, get<T>(gates + g) * get<T>(gates + g + 3 * h) + get<T>(gates + g + h) * get<T>(c + s));
    }
  };
  struct BackwardC {
    const float *gates, *dy;
    float* dc;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      add<T>(dc + s, get<T>(dy + s) * get<T>(gates + g + h));
    }
  };
  struct BackwardGates {
    const float *c, *gates, *dy;
    float* dg;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      const T d = get<T>(dy + s);
      add<T>(dg + g, d * get<T>(gates + g + 3 * h));
      add<T>(dg + g + h, d * get<T>(c + s));
      add<T>(dg + g + 3 * h, d * get<T>(gates + g));
    }
  };

  template <class I>
  static void forward(const KernelArgs& m) {
    lstm::for_state<I>(m, Forward{m.x[0], m.x[1], m.out(), m.yd->d[0]});
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    if (arg == 0) lstm::for_state<I>(m, BackwardC{m.x[1], m.dy, m.dx, m.yd->d[0]});
    else lstm::for_state<I>(m, BackwardGates{m.x[0], m.x[1], m.dy, m.dx, m.yd->d[0]});
  }
};

// h = o * tanh(c)
struct VanillaLstmH {
  static constexpr Meta meta = Meta::per_node("vanilla_lstm_h", "o * tanh(c_t)", Reads::x);
  static constexpr Param params[] = {{"c_t"}, {"gates_t"}};
  static Dim shape(const ShapeArgs& s) { return lstm::state_shape(s); }

  struct Forward {
    const float *c, *gates;
    float* y;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      put<T>(y + s, get<T>(gates + g + 2 * h) * vtanh(get<T>(c + s)));
    }
  };
  // Both gradients from one tanh.
  template <bool to_c, bool to_gates>
  struct Backward {
    const float *c, *gates, *dy;
    float *dc, *dg;
    size_t h;
    template <class T>
    DYC_INLINE void at(size_t s, size_t g) const {
      using namespace lstm;
      const T d = get<T>(dy + s), t = vtanh(get<T>(c + s));
      if constexpr (to_c) add<T>(dc + s, d * get<T>(gates + g + 2 * h) * (1.f - t * t));
      if constexpr (to_gates) add<T>(dg + g + 2 * h, d * t);
    }
  };

  template <class I>
  static void forward(const KernelArgs& m) {
    lstm::for_state<I>(m, Forward{m.x[0], m.x[1], m.out(), m.yd->d[0]});
  }
  template <class I, bool to_c, bool to_gates>
  static DYC_INLINE void run_backward(const KernelArgs& m, float* dc, float* dg) {
    lstm::for_state<I>(m, Backward<to_c, to_gates>{m.x[0], m.x[1], m.dy, dc, dg, m.yd->d[0]});
  }
  template <class I>
  static void backward(const KernelArgs& m, uint32_t arg) {
    if (arg == 0) run_backward<I, true, false>(m, m.dx, nullptr);
    else run_backward<I, false, true>(m, nullptr, m.dx);
  }
  // Worth calling instead of backward() where both gradients are wanted: the tanh is half of the cost.
  template <class I>
  static void backward_all(const KernelArgs& m, float* const* dx) {
    if (dx[0] && dx[1]) run_backward<I, true, true>(m, dx[0], dx[1]);
    else if (dx[0]) run_backward<I, true, false>(m, dx[0], nullptr);
    else if (dx[1]) run_backward<I, false, true>(m, nullptr, dx[1]);
  }
};

// The ops of this file, in the order of their numbers.
using LstmOps = OpList<VanillaLstmC, VanillaLstmH>;

}  // namespace dyc
