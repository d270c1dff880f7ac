#include "model/numbers.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace dyc {

namespace {

__extension__ typedef unsigned __int128 Uint128;

constexpr std::array<uint64_t, 28> powers_of_5() {  // all that fit into 64 bits
  std::array<uint64_t, 28> powers{1};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 5;
  return powers;
}
constexpr auto kPow5 = powers_of_5();

// Exact in a double.
constexpr double kPow10[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                             1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// "+d.dddddddde+dd " from nine digits.
char* put(bool negative, uint32_t digits, int exponent, char* out) {
  out[0] = negative ? '-' : '+';
  out[2] = '.';
  for (int i = 10; i > 2; --i, digits /= 10) out[i] = static_cast<char>('0' + digits % 10);
  out[1] = static_cast<char>('0' + digits);
  out[11] = 'e';
  out[12] = exponent < 0 ? '-' : '+';
  if (exponent < 0) exponent = -exponent;
  out[13] = static_cast<char>('0' + exponent / 10);
  out[14] = static_cast<char>('0' + exponent % 10);
  out[15] = ' ';
  return out + kNumberWidth;
}

// mantissa * 2^shift * 5^k rounded to an integer, halves to even; all exact in 128 bits.
uint64_t scaled(uint64_t mantissa, int k, int shift) {
  const Uint128 n = static_cast<Uint128>(mantissa) * kPow5[static_cast<size_t>(k)];
  if (shift >= 0) return static_cast<uint64_t>(n << shift);
  const Uint128 whole = n >> -shift, rest = n - (whole << -shift), half = Uint128{1} << (-shift - 1);
  const bool up = rest > half || (rest == half && (whole & 1));
  return static_cast<uint64_t>(whole) + up;
}

// Most numbers of a model: nine digits by one multiplication. False outside [2e-19, 1e9).
bool write_usual(float magnitude, bool negative, char* out) {
  if (!(magnitude >= 2e-19f && magnitude < 1e9f)) return false;
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
  const int exponent2 = static_cast<int>(bits >> 23) - 150;
  // log10 of 2^n, rounded down, or one less than that of the number
  int exponent = ((exponent2 + 23) * 1233) >> 12;
  uint64_t digits = 0;
  for (;; ++exponent) {
    const int k = 8 - exponent;
    digits = scaled(mantissa, k, exponent2 + k);
    if (digits < 1000000000) break;
  }
  put(negative, static_cast<uint32_t>(digits), exponent, out);
  return true;
}

// Eight digits at once; false unless all are digits.
bool eight_digits(const char* p, uint32_t* value) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  if (((v & 0xf0f0f0f0f0f0f0f0) | (((v + 0x0606060606060606) & 0xf0f0f0f0f0f0f0f0) >> 4)) !=
      0x3333333333333333)
    return false;
  v = (v & 0x0f0f0f0f0f0f0f0f) * 2561 >> 8;
  v = (v & 0x00ff00ff00ff00ff) * 6553601 >> 16;
  *value = static_cast<uint32_t>((v & 0x0000ffff0000ffff) * 42949672960001 >> 32);
  return true;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

char* write_number(float value, char* out) {
  const bool negative = std::signbit(value);
  if (!std::isfinite(value)) {
    std::memcpy(out, std::isnan(value) ? "+nan " : "+inf ", 5);
    if (negative) out[0] = '-';
    return out + 5;
  }
  if (value == 0.f) return put(negative, 0, 0, out);
  if (write_usual(std::fabs(value), negative, out)) return out + kNumberWidth;
  out[0] = negative ? '-' : '+';
  const auto done =
      std::to_chars(out + 1, out + kNumberWidth, std::fabs(value), std::chars_format::scientific, 8);
  *done.ptr = ' ';
  return done.ptr + 1;
}

bool read_fixed_number(const char* p, float* value) {
  const bool form = (p[0] == '+' || p[0] == '-') && p[2] == '.' && p[11] == 'e' &&
                    (p[12] == '+' || p[12] == '-') && p[15] == ' ';
  uint32_t low;
  if (!form || !is_digit(p[1]) || !is_digit(p[13]) || !is_digit(p[14]) || !eight_digits(p + 3, &low))
    return false;
  const int magnitude = (p[13] - '0') * 10 + (p[14] - '0');
  const int power = (p[12] == '-' ? -magnitude : magnitude) - 8;
  if (power < -22 || power > 22) return false;
  const double digits = (p[1] - '0') * 1e8 + low;
  const double exact = power < 0 ? digits / kPow10[-power] : digits * kPow10[power];
  // The double is the decimal number rounded once. Rounding it again gives the right float unless it is
  // halfway between two floats: the first rounding may have moved it there from either side.
  if ((std::bit_cast<uint64_t>(exact) & 0x1fffffff) == 0x10000000) return false;
  const float magnitude32 = static_cast<float>(exact);
  *value = p[0] == '-' ? -magnitude32 : magnitude32;
  return true;
}

bool read_number(const char* begin, const char* end, float* value) {
  if (begin != end && *begin == '+' && ++begin != end && *begin == '-') return false;
  const auto done = std::from_chars(begin, end, *value);
  if (done.ec == std::errc() && done.ptr == end) return true;
  if (done.ec != std::errc::result_out_of_range || done.ptr != end) return false;
  double wide;  // too small a number is a zero, too large a one is an error
  const auto again = std::from_chars(begin, end, wide);
  if (again.ec == std::errc() && std::fabs(wide) < 1.0) return *value = static_cast<float>(wide), true;
  return false;
}

}  // namespace dyc
