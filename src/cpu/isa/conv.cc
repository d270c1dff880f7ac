// Convolutions of one instruction set: on planes (conv_planes.h) where a result has enough positions to fill
// vectors, else as matrix products of patches (conv_patches.h).
#include "cpu/isa/conv.h"

#include "cpu/isa/conv_patches.h"
#include "cpu/isa/conv_planes.h"

#define DYC_JOIN2(a, b) a##b
#define DYC_JOIN(a, b) DYC_JOIN2(a, b)

namespace dyc::DYC_ISA {

namespace {

const GemmKernels& gemm() { return dyc::DYC_JOIN(gemm_kernels_, DYC_ISA)(); }

// Planes pay if they waste little: unused lanes, and places that are no positions of the result.
bool planes_fit(const Planes& g) {
  return g.planes() * g.plane() < INT32_MAX && g.filters * g.plane() < INT32_MAX;
}
bool forward_on_planes(const Planes& g) {
  return g.positions() * kForwardWhole >= ceil_div(g.span(), kLanes) * kLanes * kForwardPart && planes_fit(g);
}
bool backward_on_planes(const Planes& g) {
  return g.positions() * kBackwardWhole >= ceil_div(g.plane(), kLanes) * kLanes && planes_fit(g);
}

ConvShape shape_of(const KernelArgs& m) { return {*m.xd[0], *m.xd[1], m.attrs}; }

// ---------------------------------------------------------------- patches

// Columns of a product with the filters: the patches of items, as many at once as fit the cache. The other
// operand is the results (or their gradient) with the filters running fastest.
struct PatchColumn {
  Item item;
  int64_t position;
};

struct PatchBlock {
  int64_t taps, filters, most, n = 0;
  PatchColumn* columns;
  float *patches, *results;
  PatchBlock(int64_t k, int64_t f) : taps(k), filters(f), most(patch_columns(k, f)) {
    static thread_local Scratch a, b, c;
    columns = room<PatchColumn>(a, most);
    patches = b.get(most * taps);
    results = c.get(most * filters);
  }
  float* patch(int64_t j) const { return patches + j * taps; }
};

// flush(block) whenever it is full, and at the end.
template <class Fill, class Flush>
DYC_INLINE void each_patch_block(PatchBlock& block, const Item* items, int64_t n, Fill fill, Flush flush) {
  for (int64_t i = 0; i < n; i++) {
    const Item& it = items[i];
    const ConvShape c = shape_of(*it.m);
    for (int64_t p = 0; p < c.positions(); p++) {
      if (block.n == block.most) flush(block), block.n = 0;
      block.columns[block.n] = {it, p};
      fill(c, block.columns[block.n], block.n);
      block.n++;
    }
  }
  if (block.n) flush(block);
  block.n = 0;
}

void forward_patches(const Item* items, int64_t n) {
  const ConvShape first = shape_of(*items[0].m);
  PatchBlock block(first.taps(), first.filters);
  const auto fill = [&](const ConvShape& c, const PatchColumn& col, int64_t j) {
    fill_patch(c, col.item.x(), col.position, block.patch(j));
    float* to = block.results + j * c.filters;
    const float* bias = col.item.bias();
    for (int64_t k = 0; k < c.filters; k++) to[k] = bias ? bias[k] : 0.f;
  };
  each_patch_block(block, items, n, fill, [&](const PatchBlock& b) {
    gemm().tn({0, b.filters}, {0, b.n}, b.taps, b.columns[0].item.f(), b.taps, {b.patches, b.taps, nullptr},
              {b.results, b.filters, nullptr});
    for (int64_t j = 0; j < b.n; j++) {
      const PatchColumn& col = b.columns[j];
      const int64_t positions = static_cast<int64_t>(col.item.m->ys()) / b.filters;
      float* y = col.item.y() + col.position;
      for (int64_t k = 0; k < b.filters; k++) y[k * positions] = b.results[j * b.filters + k];
    }
  });
}

// The gradient of the results of filters [begin, end) at one position.
void gather_gradient(const ConvShape& c, const PatchColumn& col, int64_t begin, int64_t end, float* to) {
  const float* dy = col.item.dy() + col.position;
  for (int64_t k = begin; k < end; k++) to[k] = dy[k * c.positions()];
}

void input_patches(const Item* items, int64_t n) {
  const ConvShape first = shape_of(*items[0].m);
  PatchBlock block(first.taps(), first.filters);
  const auto fill = [&](const ConvShape& c, const PatchColumn& col, int64_t j) {
    gather_gradient(c, col, 0, c.filters, block.results + j * c.filters);
  };
  each_patch_block(block, items, n, fill, [&](const PatchBlock& b) {
    gemm().nn({0, b.taps}, {0, b.n}, b.filters, b.columns[0].item.f(), b.taps,
              {b.results, b.filters, nullptr}, {}, {b.patches, b.taps, nullptr});
    for (int64_t j = 0; j < b.n; j++) {
      const PatchColumn& col = b.columns[j];
      add_patch(shape_of(*col.item.m), b.patch(j), col.position, col.item.dx());
    }
  });
}

void filter_patches(const Item* items, int64_t n, Range filters, float* df) {
  const ConvShape first = shape_of(*items[0].m);
  PatchBlock block(first.taps(), first.filters);
  const auto fill = [&](const ConvShape& c, const PatchColumn& col, int64_t j) {
    fill_patch(c, col.item.x(), col.position, block.patch(j));
    gather_gradient(c, col, filters.begin, filters.end, block.results + j * c.filters);
  };
  each_patch_block(block, items, n, fill, [&](const PatchBlock& b) {
    gemm().nt({0, b.taps}, filters, b.n, {b.patches, b.taps, nullptr}, {b.results, b.filters, nullptr}, df,
              b.taps, false);
  });
}

// ---------------------------------------------------------------- planes

void zero(float* p, int64_t n) { memset(p, 0, static_cast<size_t>(n) * sizeof(float)); }

// All items have the same filters, so that nodes differ in the dimensions of x only.
void forward_planes(const Item* items, int64_t n) {
  static thread_local Scratch tap_room, plane_room, result_room;
  for (int64_t i = 0; i < n;) {
    const KernelArgs* const m = items[i].m;
    const Planes g(shape_of(*m));
    const bool in_place = g.in_place();
    Tap* taps = room<Tap>(tap_room, g.taps);
    forward_taps(g, g.plane(), taps);
    float* results = result_room.get(kTileCols * g.span());
    float* planes = in_place ? nullptr : plane_room.get(g.planes() * g.plane());
    if (!in_place) zero(planes, g.planes() * g.plane());
    for (; i < n && items[i].m == m; i++) {
      const Item& it = items[i];
      if (!in_place) fill_planes(g, it.x(), planes, g.plane());
      planes_forward(g, taps, in_place ? it.x() : planes, it.f(), it.bias(), results, it.y());
    }
  }
}

void input_planes(const Item* items, int64_t n) {
  static thread_local Scratch tap_room, plane_room, gradient_room;
  for (int64_t i = 0; i < n;) {
    const KernelArgs* const m = items[i].m;
    const Planes g(shape_of(*m));
    const int64_t plane = g.plane(), margin = g.margin(), phases = g.run.phases * g.line.phases;
    const int64_t window = g.run.a.f * g.line.a.f;
    float* planes = plane_room.get(g.planes() * plane);
    float* gradient = gradient_room.get(margin + g.filters * plane);
    zero(gradient, margin + g.filters * plane);
    Tap* taps = room<Tap>(tap_room, g.filters * window);
    int64_t n_taps = phases == 1 ? backward_taps(g, 0, 0, margin, taps) : 0;
    for (; i < n && items[i].m == m; i++) {
      const Item& it = items[i];
      for (int64_t k = 0; k < g.filters; k++)
        fill_gradient(g, it.dy() + k * g.positions(), gradient + margin + k * plane);
      for (int64_t phase = 0; phase < phases; phase++) {
        if (phases > 1) n_taps = backward_taps(g, phase / g.run.phases, phase % g.run.phases, margin, taps);
        tap_sums({taps, n_taps, gradient, it.f(), window, nullptr, planes + phase * plane, phases * plane},
                 g.channels, plane);
      }
      add_planes(g, planes, plane, it.dx());
    }
  }
}

// The end of the items whose planes are laid out as one long map, so that sums run over all of them.
int64_t map_end(const Item* items, int64_t i, int64_t n, int64_t* places) {
  const Planes head(shape_of(*items[i].m));
  Planes g = head;
  *places = head.plane();
  for (i++; i < n; i++) {
    if (items[i].m != items[i - 1].m) g = Planes(shape_of(*items[i].m));
    if (g.run.len != head.run.len || g.across != head.across || *places + g.plane() > kMapPlaces ||
        (*places + g.plane()) * g.planes() > kMapFloats)
      break;
    *places += g.plane();
  }
  return i;
}

void filter_planes(const Item* items, int64_t n, Range filters, float* df) {
  static thread_local Scratch tap_room, plane_room, gradient_room, shape_room;
  for (int64_t i = 0, end; i < n; i = end) {
    int64_t places;
    end = map_end(items, i, n, &places);
    Planes* shapes = room<Planes>(shape_room, end - i);
    for (int64_t j = i; j < end; j++)
      shapes[j - i] =
          j > i && items[j].m == items[j - 1].m ? shapes[j - i - 1] : Planes(shape_of(*items[j].m));
    const Planes& head = shapes[0];
    float* planes = plane_room.get(head.planes() * places);
    float* gradient = gradient_room.get(kDotCols * places);
    Tap* taps = room<Tap>(tap_room, head.taps);
    forward_taps(head, places, taps);
    zero(planes, head.planes() * places);
    zero(gradient, kDotCols * places);
    int64_t at = 0, used = 0;
    for (int64_t j = i; j < end; j++) {
      const Planes& g = shapes[j - i];
      fill_planes(g, items[j].x(), planes + at, places);
      used = at + g.span();
      at += g.plane();
    }
    for (int64_t k = filters.begin; k < filters.end; k += kDotCols) {
      const int64_t width = min_of(kDotCols, filters.end - k);
      for (int64_t c = 0; c < width; c++) {
        float* to = gradient + c * places;
        for (int64_t j = i; j < end; to += shapes[j - i].plane(), j++)
          fill_gradient(shapes[j - i], items[j].dy() + (k + c) * shapes[j - i].positions(), to);
      }
      tap_dots({taps, head.taps, planes, gradient, places, df + k * head.taps, head.taps}, width, used);
    }
  }
}

// ---------------------------------------------------------------- choice

bool same_filters(const Item& a, const Item& b) {  // memory alone is not enough: views of other dimensions
  return a.f() == b.f() && a.m->xd[1] == b.m->xd[1];
}

// planes(items, n) or patches(items, n) for runs of items of one kind with the same filters.
template <class Choose, class Planar, class Patched>
DYC_INLINE void split(const Item* items, int64_t n, Choose on_planes, Planar planes, Patched patches) {
  for (int64_t i = 0, end; i < n; i = end) {
    const bool kind = on_planes(Planes(shape_of(*items[i].m)));
    for (end = i + 1; end < n; end++) {
      if (!same_filters(items[end], items[i])) break;
      if (items[end].m != items[end - 1].m && on_planes(Planes(shape_of(*items[end].m))) != kind) break;
    }
    if (kind) planes(items + i, end - i);
    else patches(items + i, end - i);
  }
}

void bias_gradient(const Item* items, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const Item& it = items[i];
    const ConvShape c = shape_of(*it.m);
    const float* dy = it.dy();
    float* db = it.dbias();
    for (int64_t k = 0; k < c.filters; k++, dy += c.positions()) {
      LongSum<V> sum;
      int64_t p = 0;
      for (; p + kLanes <= c.positions(); p += kLanes) sum.add(load<V>(dy + p));
      if (p < c.positions()) sum.add(load_n(dy + p, static_cast<int>(c.positions() - p)));
      db[k] += hsum(sum.total());
    }
  }
}

}  // namespace

void conv2d_forward(const KernelArgs* m, int64_t n, Range pieces) {
  int64_t count;
  const Item* items = result_items(m, n, pieces, &count);
  split(items, count, forward_on_planes, forward_planes, forward_patches);
}

void conv2d_backward(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces) {
  if (arg != 1) {
    int64_t count;
    const Item* items = gradient_items(m, n, arg, shared, pieces, &count);
    if (arg == 2) bias_gradient(items, count);
    else split(items, count, backward_on_planes, input_planes, input_patches);
    return;
  }
  const int64_t filters = (*m->xd[1])[3];
  each_filter_range(m, n, filters, shared, pieces, [&](const Item* items, int64_t count, Range range) {
    float* df = items[0].df();
    split(
        items, count, backward_on_planes,
        [&](const Item* its, int64_t k) { filter_planes(its, k, range, df); },
        [&](const Item* its, int64_t k) { filter_patches(its, k, range, df); });
  });
}

// ---------------------------------------------------------------- filter1d_narrow

// x {r,c}, f {r,w,F}, y {F,P}: patch j starts at column j.
struct NarrowShape {
  int64_t rows, taps, filters, positions;
  explicit NarrowShape(const KernelArgs& m)
      : rows(m.xd[0]->rows()), taps(rows * m.xd[1]->cols()), filters(m.yd->rows()), positions(m.yd->cols()) {}
};

void filter1d_forward(const KernelArgs* m, int64_t n, Range pieces) {
  int64_t count;
  const Item* items = result_items(m, n, pieces, &count);
  for (int64_t i = 0; i < count; i++) {
    const Item& it = items[i];
    const NarrowShape s(*it.m);
    zero(it.y(), s.filters * s.positions);
    gemm().tn({0, s.filters}, {0, s.positions}, s.taps, it.f(), s.taps, {it.x(), s.rows, nullptr},
              {it.y(), s.filters, nullptr});
  }
}

void filter1d_backward(const KernelArgs* m, int64_t n, uint32_t arg, bool shared, Range pieces) {
  if (arg == 1) {
    const int64_t filters = m->yd->rows();
    each_filter_range(m, n, filters, shared, pieces, [&](const Item* items, int64_t count, Range range) {
      for (int64_t i = 0; i < count; i++) {
        const NarrowShape s(*items[i].m);
        gemm().nt({0, s.taps}, range, s.positions, {items[i].x(), s.rows, nullptr},
                  {items[i].dy(), s.filters, nullptr}, items[i].df(), s.taps, false);
      }
    });
    return;
  }
  static thread_local Scratch patches;
  int64_t count;
  const Item* items = gradient_items(m, n, arg, shared, pieces, &count);
  for (int64_t i = 0; i < count; i++) {
    const Item& it = items[i];
    const NarrowShape s(*it.m);
    float* to = patches.get(s.taps * s.positions);
    gemm().nn({0, s.taps}, {0, s.positions}, s.filters, it.f(), s.taps, {it.dy(), s.filters, nullptr}, {},
              {to, s.taps, nullptr});
    for (int64_t j = 0; j < s.positions; j++)  // patches overlap
      add_run(it.dx() + j * s.rows, to + j * s.taps, s.taps);
  }
}

}  // namespace dyc::DYC_ISA
