// The random streams of DyNet on the CPU: same seed, same numbers, bit for bit (normal: see below).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace dyc {

// MT19937 and the sampling recipes of libstdc++ (the library DyNet's wheels were built with), in
// float32. Written out here because another C++ library samples differently. One call is atomic: threads
// that draw at the same time get parts of the stream in any order. Copyable: a copy continues the same
// stream.
class Random {
 public:
  explicit Random(uint32_t seed_value = 5489u) { seed(seed_value); }

  void seed(uint32_t value);
  uint32_t draw();    // next 32 bits
  uint32_t peek();    // the same, which the next draw() gives again
  float canonical();  // [0,1), one draw

  // Each fills n elements in memory order, in DyNet's order of draws.
  void uniform(float* out, size_t n, float low, float high);
  // Polar method. A pair is drawn for two elements; the second of the last pair is dropped, so one
  // call fills one whole tensor. Equal to DyNet's up to the C library's rounding of logf.
  void normal(float* out, size_t n, float mean, float deviation);
  void bernoulli(float* out, size_t n, float p, float scale);  // scale with probability p, else 0
  void gumbel(float* out, size_t n);                           // location 0, scale 1
  // An index with these n > 0 probabilities: one draw, from which they are subtracted in order.
  size_t choose(const float* probabilities, size_t n);

 private:
  static constexpr int kWords = 624;
  void refill();
  uint32_t next_word();
  float next_canonical();
  void draw_block(uint32_t* out, size_t n);  // n draws

  uint32_t state_[kWords];
  int next_ = kWords;
};

// A stream that is made when it is first drawn from.
class Stream {
 public:
  explicit Stream(uint32_t seed = 0) : seed_(seed) {}
  Random& random() {
    if (!random_) {
      random_ = std::make_unique<Random>(seed_);
      begun_.fetch_add(1, std::memory_order_relaxed);
    }
    return *random_;
  }
  bool used() const { return random_ != nullptr; }
  uint32_t seed() const { return seed_; }
  // How many streams of the process were drawn from.
  static uint64_t begun() { return begun_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint64_t> begun_{0};
  uint32_t seed_;
  std::unique_ptr<Random> random_;
};

// The one engine of the process. Seeded by initialisation and by reset_random_seed.
Random& process_random();
// What this thread draws from: that engine, or a stream in its place (nullptr: none).
Random& random_engine();
void draw_from(Stream* stream);

}  // namespace dyc
