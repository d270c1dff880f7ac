#include "base/random.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "base/instance.h"
#include "base/tuning.h"

// The recipes round after the multiplication and after the addition, as DyNet's wheel does. Where a fused
// multiply-add is baseline (aarch64) the compiler would contract the two into one rounding, which changes
// about half of the values in the last place: CMakeLists.txt compiles this file with -ffp-contract=off.

namespace dyc {

namespace {

constexpr int kShift = 397;
using tuning::kDraws;

inline uint32_t twist(uint32_t high, uint32_t low, uint32_t far) {
  const uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
  return far ^ (y >> 1) ^ ((0u - (y & 1u)) & 0x9908b0dfu);
}

inline uint32_t temper(uint32_t y) {
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680u;
  y ^= (y << 15) & 0xefc60000u;
  return y ^ (y >> 18);
}

// float32 of 32 random bits over 2^32; the conversion may round up to 1, which is outside the range.
inline float to_canonical(uint32_t bits) {
  return std::min(static_cast<float>(bits) * 0x1p-32f, 0x1.fffffep-1f);
}

// Of all engines, there is one in use. Free at every fork, or the child could never draw.
std::mutex& mutex() {
  static std::mutex the_mutex;
  static const int registered =
      pthread_atfork([] { the_mutex.lock(); }, [] { the_mutex.unlock(); }, [] { the_mutex.unlock(); });
  static_cast<void>(registered);
  return the_mutex;
}
using Lock = std::lock_guard<std::mutex>;

}  // namespace

void Random::seed(uint32_t value) {
  const Lock lock(mutex());
  state_[0] = value;
  for (int i = 1; i < kWords; ++i)
    state_[i] = 1812433253u * (state_[i - 1] ^ (state_[i - 1] >> 30)) + static_cast<uint32_t>(i);
  next_ = kWords;
}

void Random::refill() {
  uint32_t* s = state_;
  for (int i = 0; i < kWords - kShift; ++i) s[i] = twist(s[i], s[i + 1], s[i + kShift]);
  for (int i = kWords - kShift; i < kWords - 1; ++i) s[i] = twist(s[i], s[i + 1], s[i + kShift - kWords]);
  s[kWords - 1] = twist(s[kWords - 1], s[0], s[kShift - 1]);
  next_ = 0;
}

uint32_t Random::draw() {
  const Lock lock(mutex());
  return next_word();
}

uint32_t Random::peek() {
  const Lock lock(mutex());
  if (next_ == kWords) refill();
  return temper(state_[next_]);
}

uint32_t Random::next_word() {
  if (next_ == kWords) refill();
  return temper(state_[next_++]);
}

void Random::draw_block(uint32_t* out, size_t n) {
  while (n > 0) {
    if (next_ == kWords) refill();
    const size_t count = std::min(n, static_cast<size_t>(kWords - next_));
    for (size_t i = 0; i < count; ++i) out[i] = temper(state_[static_cast<size_t>(next_) + i]);
    next_ += static_cast<int>(count);
    out += count;
    n -= count;
  }
}

float Random::next_canonical() { return to_canonical(next_word()); }

float Random::canonical() {
  const Lock lock(mutex());
  return next_canonical();
}

void Random::uniform(float* out, size_t n, float low, float high) {
  const Lock lock(mutex());
  const float width = high - low;
  uint32_t bits[kDraws];
  for (size_t done = 0; done < n; done += kDraws) {
    const size_t count = std::min(n - done, kDraws);
    draw_block(bits, count);
    for (size_t i = 0; i < count; ++i) out[done + i] = to_canonical(bits[i]) * width + low;
  }
}

void Random::normal(float* out, size_t n, float mean, float deviation) {
  const Lock lock(mutex());
  for (size_t i = 0; i < n; i += 2) {
    float x, y, q;
    do {
      x = 2.0f * next_canonical() - 1.0f;
      y = 2.0f * next_canonical() - 1.0f;
      q = x * x + y * y;
    } while (q > 1.0f || q == 0.0f);
    const float k = std::sqrt(-2.0f * std::log(q) / q);
    out[i] = (y * k) * deviation + mean;
    if (i + 1 < n) out[i + 1] = (x * k) * deviation + mean;
  }
}

void Random::bernoulli(float* out, size_t n, float p, float scale) {
  const Lock lock(mutex());
  // 64 bits (low word first) rounded to a double below 2^64, compared with p * 2^64 (exact).
  const double limit = static_cast<double>(p) * 0x1p64;
  constexpr double kBelowOne = 0x1.fffffffffffffp63;
  const bool finite = std::isfinite(scale);  // else p = 0 and scale = 1 / p: not zeros but 0 * scale
  const uint32_t hit_bits = std::bit_cast<uint32_t>(finite ? scale : 1.f);
  uint32_t bits[kDraws];
  for (size_t done = 0; done < n; done += kDraws / 2) {
    const size_t count = std::min(n - done, kDraws / 2);
    draw_block(bits, 2 * count);
    for (size_t i = 0; i < count; ++i) {
      const double low = bits[2 * i], high = bits[2 * i + 1];
      const bool hit = std::min(low + high * 0x1p32, kBelowOne) < limit;
      // A mask rather than a branch: the outcome cannot be predicted.
      out[done + i] = std::bit_cast<float>(hit_bits & (0u - static_cast<uint32_t>(hit)));
    }
  }
  for (size_t i = 0; !finite && i < n; ++i) out[i] *= scale;
}

void Random::gumbel(float* out, size_t n) {
  const Lock lock(mutex());
  for (size_t i = 0; i < n; ++i) {
    const float inner = -std::log(std::max(next_canonical(), 1e-20f));
    out[i] = -std::log(std::max(inner, 1e-20f));
  }
}

size_t Random::choose(const float* probabilities, size_t n) {
  float rest = canonical();
  for (size_t i = 0; i < n; ++i)
    if ((rest -= probabilities[i]) < 0.f) return i;
  return n - 1;  // they add up to less than 1, by rounding
}

constinit thread_local bool inside_instance DYC_STATIC_TLS = false;

namespace {

constinit thread_local Stream* own_stream = nullptr;

}  // namespace

Random& process_random() {
  static Random engine;
  return engine;
}

Random& random_engine() { return own_stream ? own_stream->random() : process_random(); }

void draw_from(Stream* stream) { own_stream = stream; }

}  // namespace dyc
