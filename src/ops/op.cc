#include "ops/op.h"

namespace dyc {

void shape_error(const ShapeArgs& s, const std::string& wanted) {
  std::string got;
  for (uint32_t i = 0; i < s.n && i < 8; ++i) got += (i ? " " : "") + s[i].str();
  if (s.n > 8) got += " ...";
  throw ValueError(text(s.op, "(): expected ", wanted, ", got ", got));
}

void check_axis(const ShapeArgs& s, uint32_t axis, uint32_t most) {
  if (s[0].nd > most) shape_error(s, text("at most ", most, " dimensions"));
  if (axis >= s[0].nd) shape_error(s, text("d < ", s[0].nd, ", not ", axis));
}

void check_ids(const KernelArgs& m, const char* op) {
  for (uint32_t i = 0; i < m.n_ids; ++i)
    if (m.ids[i] >= m.xs(0)) throw ValueError(text(op, "(): expected id < ", m.xs(0), ", got ", m.ids[i]));
}

uint32_t common_batch(const ShapeArgs& s) {
  uint32_t b = 1;
  for (uint32_t i = 0; i < s.n; ++i) {
    if (s[i].bd == 1 || s[i].bd == b) continue;
    if (b != 1) shape_error(s, "batch sizes that are 1 or one common size");
    b = s[i].bd;
  }
  return b;
}

const Dim& equal_sizes(const ShapeArgs& s, bool (Dim::*same)(const Dim&) const) {
  for (uint32_t i = 1; i < s.n; ++i)
    if (!(s[i].*same)(s[0]))
      throw ValueError(
          text(s.op, "(): expected equal shapes, got ", s[0], " and, at position ", i, ", ", s[i]));
  return s[0];
}

Dim same_as_x(const ShapeArgs& s) { return s[0]; }

Dim broadcast_shape(const ShapeArgs& s) {
  Dim r;
  r.nd = s[0].nd > s[1].nd ? s[0].nd : s[1].nd;
  for (uint32_t i = 0; i < r.nd; ++i) {
    const uint32_t a = s[0][i], b = s[1][i];
    if (a != b && a != 1 && b != 1) shape_error(s, "dimensions that are equal or 1");
    r.d[i] = a > b ? a : b;
  }
  r.bd = common_batch(s);
  return r;
}

Dim identical_shape(const ShapeArgs& s) {
  for (uint32_t i = 1; i < s.n; ++i)
    if (!(s[i] == s[0])) shape_error(s, "arguments of equal shape and batch size");
  return s[0];
}

Dim scalar_per_batch(const ShapeArgs& s) { return Dim({1}, s[0].bd); }

}  // namespace dyc
