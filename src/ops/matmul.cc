#include "ops/matmul.h"

namespace dyc {

Dim MatMul::shape(const ShapeArgs& s) {
  const Dim &l = s[0], &r = s[1];
  if (l.nd > 2 || r.nd > 2) shape_error(s, "at most 2 dimensions");
  if (l.cols() != r.rows()) shape_error(s, "cols(x) == rows(y)");
  Dim d;
  d.bd = common_batch(s);
  d.nd = r.nd == 1 ? 1 : 2;
  d.d[0] = l.rows();
  d.d[1] = r.cols();
  return d;
}

Dim Affine::shape(const ShapeArgs& s) {
  if (s.n % 2 == 0) shape_error(s, "an odd number of arguments b, W1, x1, W2, x2, ...");
  if (s.n == 1) return s[0];
  const Dim& b = s[0];
  for (uint32_t i = 0; i < s.n; ++i)
    if (s[i].nd > 2) shape_error(s, "at most 2 dimensions");
  Dim d;
  d.bd = common_batch(s);
  for (uint32_t i = 1; i < s.n; i += 2) {
    const Dim &w = s[i], &x = s[i + 1];
    const std::string k = std::to_string((i + 1) / 2);
    if (w.rows() != b.rows())
      throw ValueError(text(s.op, "(): expected rows(b) == rows(W", k, "), got b ", b, ", W", k, " ", w));
    if (w.cols() != x.rows())
      throw ValueError(
          text(s.op, "(): expected cols(W", k, ") == rows(x", k, "), got W", k, " ", w, ", x", k, " ", x));
    if (x.cols() != s[2].cols())
      throw ValueError(
          text(s.op, "(): expected cols(x", k, ") == cols(x1), got x", k, " ", x, ", x1 ", s[2]));
  }
  if (b.cols() != 1 && b.cols() != s[2].cols())
    throw ValueError(text(s.op, "(): expected cols(b) == 1 or cols(x1), got b ", b, ", x1 ", s[2]));
  d.d[0] = b.rows();
  d.d[1] = s[2].cols();
  d.nd = d.d[1] == 1 ? 1 : 2;
  return d;
}

}  // namespace dyc
