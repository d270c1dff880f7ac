// What follows a product, element by element (cuda::Follower). For kernels only.
#pragma once
#include "cuda/device/product_tiles.h"
#include "ops/followers.h"
#include "ops/long_sum.h"

namespace dyc::cuda {

// Some elements of a product's result that a thread has made; j < 0: none.
template <int N>
struct MadeElements {
  int64_t i[N], j[N];
  float value[N];
};

template <int N>
DYC_INLINE void read_follower(const Matrix<const float>& m, const MadeElements<N>& made, float (&to)[N]) {
  if (!m.base) return;
  for (int u = 0; u < N; ++u)
    if (made.j[u] >= 0) to[u] = column(m, made.j[u])[made.i[u]];
}

template <class Op>
DYC_INLINE float follow_forward(float x, float y, const float* attr) {
  if constexpr (Op::meta.kind == OpKind::unary) return Op::f(x, attr);
  else return Op::f(x, y, attr);
}

// As kernels/elementwise.cu adds to a gradient.
template <class Op, bool Second>
DYC_INLINE float follow_backward(float x, float y, float z, float dz, float gradient, const float* attr) {
  if constexpr (Op::meta.kind == OpKind::unary) {
    return vfma(dz, Op::df(x, z, attr), gradient);
  } else {
    LongSum<float> sum;
    sum.add(dz * (Second ? Op::dy(x, y, z, attr) : Op::dx(x, y, z, attr)));
    return gradient + sum.total();
  }
}

template <Follower::Kind Kind, int N, class... Ops>
DYC_INLINE void run_follower(OpList<Ops...>, const Follower& f, MadeElements<N>& made) {
  float x[N], y[N], z[N], dz[N], to[N];
  for (int u = 0; u < N; ++u) x[u] = y[u] = dz[u] = made.value[u], z[u] = to[u] = 0.f;
  read_follower(f.x, made, x);
  read_follower(f.y, made, y);
  if constexpr (Kind != Follower::forward) {
    read_follower(f.z, made, z);
    read_follower(f.dz, made, dz);
    read_follower({f.to.base, f.to.index, f.to.stride}, made, to);
  }
  const float attr = f.attr;
  const uint32_t op = f.op;
  uint32_t number = 0;
  const auto each = [&](auto result) {
    for (int u = 0; u < N; ++u) made.value[u] = result(u);
  };
  const auto run = [&]<class Op>(OpList<Op>) {
    if constexpr (Kind == Follower::forward)
      each([&](int u) { return follow_forward<Op>(x[u], y[u], &attr); });
    else if constexpr (Kind == Follower::backward)
      each([&](int u) { return follow_backward<Op, false>(x[u], y[u], z[u], dz[u], to[u], &attr); });
    else if constexpr (Op::meta.kind == OpKind::binary)
      each([&](int u) { return follow_backward<Op, true>(x[u], y[u], z[u], dz[u], to[u], &attr); });
  };
  (void)((++number == op && (run(OpList<Ops>{}), true)) || ...);
  for (int u = 0; u < N; ++u)
    if (made.j[u] >= 0) column(f.to, made.j[u])[made.i[u]] = made.value[u];
}

// What follows elements that the thread has written.
template <bool Forward, bool Backward, int N>
DYC_INLINE void follow(const Follower* all, uint32_t count, MadeElements<N>& made) {
  DYC_UNROLL(1)
  for (uint32_t k = 0; k < count; ++k) {
    const Follower& f = all[k];
    if constexpr (Forward)
      if (!Backward || f.kind == Follower::forward) run_follower<Follower::forward>(Followers{}, f, made);
    if constexpr (Backward) {
      if (f.kind == Follower::backward) run_follower<Follower::backward>(Followers{}, f, made);
      else if (f.kind == Follower::backward_second)
        run_follower<Follower::backward_second>(Followers{}, f, made);
    }
  }
}

}  // namespace dyc::cuda
