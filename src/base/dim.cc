#include "base/dim.h"

namespace dyc {

std::string Dim::str() const {
  std::string s = "{";
  for (uint32_t i = 0; i < nd; ++i) s += (i ? "," : "") + std::to_string(d[i]);
  s += "}";
  if (bd != 1) s += "x" + std::to_string(bd);
  return s;
}

std::ostream& operator<<(std::ostream& out, const Dim& dim) { return out << dim.str(); }

}  // namespace dyc
