// Convolutions on planes: each channel of x is laid out so that a tap of the filter is the plane shifted by a
// constant, and positions lie one after the other. With steps, a channel becomes one plane per phase. A few
// positions at the ends of lines are no positions of the result: they are computed and dropped (forward), or
// their gradient is zero (backward).
#pragma once
#include <string.h>

#include "cpu/isa/conv_tiles.h"
#include "cpu/isa/items.h"
#include "ops/conv.h"

namespace dyc::DYC_ISA {

// One dimension as the planes see it. Strides are those of x, f and y in memory.
struct PlaneAxis {
  WindowAxis a;
  int64_t x_stride, f_stride, y_stride;
  int64_t phases;  // min(stride, f)
  int64_t len;     // places along a plane

  PlaneAxis(const WindowAxis& w, int64_t xs, int64_t fs, int64_t ys)
      : a(w),
        x_stride(xs),
        f_stride(fs),
        y_stride(ys),
        phases(min_of(w.stride, w.f)),
        len(w.y + (w.f - 1) / w.stride) {}
};

struct Planes {
  PlaneAxis run, line;  // places along `run` are neighbours
  bool across;          // `run` goes from column to column of x
  int64_t channels, filters, taps;

  // Along a column of x, unless that leaves much more to drop, or there is but one row of results.
  explicit Planes(const ConvShape& c) : Planes(c, runs_across(c)) {}
  Planes(const ConvShape& c, bool columns)
      : run(columns ? axis_w(c) : axis_h(c)),
        line(columns ? axis_h(c) : axis_w(c)),
        across(columns),
        channels(c.channels),
        filters(c.filters),
        taps(c.taps()) {}

  int64_t plane() const { return run.len * line.len; }
  int64_t planes() const { return channels * run.phases * line.phases; }
  // From the first to the last position of the result.
  int64_t span() const { return (line.a.y - 1) * run.len + run.a.y; }
  int64_t positions() const { return line.a.y * run.a.y; }
  // The planes are x as it is.
  bool in_place() const {
    return run.x_stride == 1 && run.len == run.a.x && line.len == line.a.x && run.phases == 1 &&
           line.phases == 1 && run.a.pad == 0 && line.a.pad == 0;
  }
  // Positions are the result as it is.
  bool results_in_place() const { return run.y_stride == 1 && (run.len == run.a.y || line.a.y == 1); }
  int64_t margin() const { return (line.len - line.a.y) * run.len + run.len - run.a.y; }

 private:
  static PlaneAxis axis_h(const ConvShape& c) { return {c.h, 1, 1, 1}; }
  static PlaneAxis axis_w(const ConvShape& c) { return {c.w, c.h.x, c.h.f, c.h.y}; }
  static bool runs_across(const ConvShape& c) {
    return c.h.y == 1 || Planes(c, true).span() * kAcrossWhole < Planes(c, false).span() * kAcrossPart;
  }
};

// The taps in the order of a filter's memory, for planes `plane_stride` apart.
DYC_INLINE void forward_taps(const Planes& g, int64_t plane_stride, Tap* taps) {
  const int64_t window = g.run.a.f * g.line.a.f, sr = g.run.a.stride, sl = g.line.a.stride;
  for (int64_t ch = 0; ch < g.channels; ch++) {
    for (int64_t fl = 0; fl < g.line.a.f; fl++) {
      for (int64_t fr = 0; fr < g.run.a.f; fr++) {
        const int64_t plane = (ch * g.line.phases + fl % sl) * g.run.phases + fr % sr;
        const int64_t at = plane * plane_stride + fl / sl * g.run.len + fr / sr;
        const int64_t k = ch * window + fl * g.line.f_stride + fr * g.run.f_stride;
        taps[k] = {static_cast<int32_t>(at), static_cast<int32_t>(k)};
      }
    }
  }
}

// The places of one dimension that lie in x, for one phase: [first, end), the first at x[at].
struct PlacesInX {
  int64_t first, end, at;
  PlacesInX(const PlaneAxis& d, int64_t phase) {
    const int64_t lead = d.a.pad - phase, beyond = d.a.x + lead;
    first = lead <= 0 ? 0 : min_of(d.len, ceil_div(lead, d.a.stride));
    end = beyond <= 0 ? first : min_of(d.len, ceil_div(beyond, d.a.stride));
    if (end < first) end = first;
    at = (first * d.a.stride - lead) * d.x_stride;
  }
};

// f(places, x, n) for the n neighbouring places of each line that lie in x; they are `step` apart in x.
template <class F> DYC_INLINE void each_line(const Planes& g, int64_t plane_stride, F f) {
  const int64_t channel = g.run.a.x * g.line.a.x, next = g.line.a.stride * g.line.x_stride;
  for (int64_t pl = 0; pl < g.line.phases; pl++) {
    const PlacesInX lines(g.line, pl);
    for (int64_t pr = 0; pr < g.run.phases; pr++) {
      const PlacesInX run(g.run, pr);
      if (run.end == run.first) continue;
      for (int64_t ch = 0; ch < g.channels; ch++) {
        const int64_t plane = (ch * g.line.phases + pl) * g.run.phases + pr;
        int64_t place = plane * plane_stride + lines.first * g.run.len + run.first;
        int64_t x = ch * channel + lines.at + run.at;
        for (int64_t l = lines.first; l < lines.end; l++, place += g.run.len, x += next)
          f(place, x, run.end - run.first);
      }
    }
  }
}

// Places outside of x are left as they are: zeros.
DYC_INLINE void fill_planes(const Planes& g, const float* x, float* to, int64_t plane_stride) {
  const int64_t step = g.run.a.stride * g.run.x_stride;
  each_line(g, plane_stride, [&](int64_t place, int64_t at, int64_t n) __attribute__((always_inline)) {
    if (step == 1) {
      copy_run(to + place, x + at, n);
    } else {
      for (int64_t i = 0; i < n; i++) to[place + i] = x[at + i * step];
    }
  });
}

DYC_INLINE void add_planes(const Planes& g, const float* planes, int64_t plane_stride, float* dx) {
  const int64_t step = g.run.a.stride * g.run.x_stride;
  each_line(g, plane_stride, [&](int64_t place, int64_t at, int64_t n) __attribute__((always_inline)) {
    if (step == 1) {
      add_run(dx + at, planes + place, n);
    } else {
      for (int64_t i = 0; i < n; i++) dx[at + i * step] += planes[place + i];
    }
  });
}

// The gradient of one filter's results on a plane. Places that are no positions are left as they are: zeros.
DYC_INLINE void fill_gradient(const Planes& g, const float* dy, float* to) {
  for (int64_t l = 0; l < g.line.a.y; l++, to += g.run.len, dy += g.line.y_stride) {
    if (g.run.y_stride == 1) {
      copy_run(to, dy, g.run.a.y);
    } else {
      for (int64_t i = 0; i < g.run.a.y; i++) to[i] = dy[i * g.run.y_stride];
    }
  }
}

// x {H,W,C}, f {FH,FW,C,FC} -> y {YH,YW,FC} for one batch item; taps: forward_taps of the planes used.
DYC_INLINE void planes_forward(const Planes& g, const Tap* taps, const float* planes, const float* f,
                               const float* bias, float* results, float* y) {
  const int64_t span = g.span(), positions = g.positions();
  if (g.results_in_place()) {
    tap_sums({taps, g.taps, planes, f, g.taps, bias, y, positions}, g.filters, span);
    return;
  }
  each_column_tile(0, g.filters, [&](int64_t k, auto width) {
    constexpr int C = decltype(width)::value;
    taps_columns<C>({taps, g.taps, planes, f + k * g.taps, g.taps, bias ? bias + k : nullptr, results, span},
                    0, span);
    for (int c = 0; c < C; c++) {
      for (int64_t l = 0; l < g.line.a.y; l++) {
        const float* from = results + c * span + l * g.run.len;
        float* to = y + (k + c) * positions + l * g.line.y_stride;
        if (g.run.y_stride == 1) {
          copy_run(to, from, g.run.a.y);
        } else {
          for (int64_t i = 0; i < g.run.a.y; i++) to[i * g.run.y_stride] = from[i];
        }
      }
    }
  });
}

// The taps of one phase as seen from x: the gradients of all filters, shifted back. Returns their number.
DYC_INLINE int64_t backward_taps(const Planes& g, int64_t line_phase, int64_t run_phase, int64_t margin,
                                 Tap* taps) {
  const int64_t plane = g.plane();
  int64_t n = 0;
  for (int64_t k = 0; k < g.filters; k++) {
    for (int64_t fl = line_phase; fl < g.line.a.f; fl += g.line.a.stride) {
      for (int64_t fr = run_phase; fr < g.run.a.f; fr += g.run.a.stride) {
        const int64_t back = fl / g.line.a.stride * g.run.len + fr / g.run.a.stride;
        taps[n++] = {static_cast<int32_t>(margin + k * plane - back),
                     static_cast<int32_t>(k * g.taps + fl * g.line.f_stride + fr * g.run.f_stride)};
      }
    }
  }
  return n;
}

}  // namespace dyc::DYC_ISA
