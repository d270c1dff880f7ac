// The trainers' kernels for a device, run by its emulation, beside those of the CPU. test_updates.py builds a
// program of this; it prints one line for each comparison: its name and the largest relative difference.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/update_kernels.h"
#include "cuda/driver/backend.h"
#include "cuda/abi/launch_args.h"
#include "cuda/abi/updates.h"

using namespace dyc;
using namespace dyc::cuda;

namespace {

const char* const kRules[] = {"sgd", "momentum", "adagrad", "adadelta", "rmsprop", "adam", "amsgrad", "eg"};

// A parameter: rows of a width, of which some are passed over, or all.
struct Parameter {
  size_t rows, width;
  std::vector<uint32_t> listed;  // empty: all
  size_t size() const { return rows * width; }
  size_t elements() const { return listed.empty() ? size() : listed.size() * width; }
};
const std::vector<Parameter> kParameters = {
    {1, 1, {}}, {1, 70, {}}, {9, 5, {7, 0, 3}}, {1, 5000, {}}, {3, 40, {2}}};

using Floats = std::vector<float>;

// Memory of the device with a copy on the host.
struct Memory {
  Memory(Backend& d, const void* from, size_t n) : device(d), bytes(n), at(d.allocate(n)) {
    if (n) d.upload(at, from, n);
  }
  Backend& device;
  size_t bytes;
  Backend::Address at;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(at);
  }
  Floats floats() const {
    Floats f(bytes / 4);
    device.download(f.data(), at, bytes);
    return f;
  }
};

struct Device {
  std::unique_ptr<Backend> backend = make_emulation();
  std::vector<std::unique_ptr<Memory>> kept;

  template <class T>
  Memory& put(const std::vector<T>& from) {
    kept.push_back(std::make_unique<Memory>(*backend, from.data(), from.size() * sizeof(T)));
    return *kept.back();
  }
  NodeSizes extents(const std::vector<int64_t>& sizes) {
    std::vector<int64_t> starts(1, 0);
    for (int64_t n : sizes) starts.push_back(starts.back() + n);
    return {static_cast<uint32_t>(sizes.size()), 0, put(starts).as<const int64_t>(), starts.back(),
            *std::max_element(sizes.begin(), sizes.end())};
  }
  template <class More>
  void launch(const std::string& kernel, const More& more, uint32_t blocks = 2) {
    LaunchArgs r;
    r.extra = put(std::vector<More>{more}).template as<void>();
    Backend::Address record = put(std::vector<LaunchArgs>{r}).at;
    void* args[] = {&record};
    backend->launch(backend->kernel({"updates", kernel}), {blocks, 64}, args);
    backend->wait();
  }
};

// Values, gradient and state of every parameter, on the host and on a device.
struct Model {
  struct One {
    Floats old, out, grad, state[3];
    Memory *old_at, *out_at, *grad_at, *state_at[3];
  };
  Device device;
  std::vector<One> all;
  std::vector<UpdateWork> work;
  std::vector<int64_t> elements;

  explicit Model(uint32_t seed, float scale = 1.f) {
    std::mt19937 random(seed);
    const auto some = [&](size_t n, float low, float high) {
      std::uniform_real_distribution<float> draw(low, high);
      Floats f(n);
      for (float& v : f) v = draw(random);
      return f;
    };
    for (const Parameter& p : kParameters) {
      One o{some(p.size(), 0.1f, 2.f),
            Floats(p.size(), 7.f),
            some(p.size(), -scale, scale),
            {},
            {},
            {},
            {},
            {}};
      o.old_at = &device.put(o.old), o.out_at = &device.put(o.out), o.grad_at = &device.put(o.grad);
      UpdateWork w{};
      for (int k = 0; k < 3; ++k) {
        o.state[k] = some(p.size(), 0.01f, 1.f);
        o.state_at[k] = &device.put(o.state[k]);
        w.slice.state[k] = o.state_at[k]->as<float>();
      }
      w.slice.old = o.old_at->as<float>(), w.slice.out = o.out_at->as<float>();
      w.slice.grad = o.grad_at->as<float>(), w.slice.n = p.size();
      w.rows = p.listed.empty() ? nullptr : device.put(p.listed).as<const uint32_t>();
      w.width = static_cast<int64_t>(p.width);
      w.decay = 0.9f;
      work.push_back(w);
      elements.push_back(static_cast<int64_t>(p.elements()));
      all.push_back(std::move(o));
    }
  }
  const UpdateWork* list() { return device.put(work).as<const UpdateWork>(); }
};

// f(begin, n) for the elements that are passed over.
void each_run(const Parameter& p, const std::function<void(size_t, size_t)>& f) {
  if (p.listed.empty()) return f(0, p.size());
  for (uint32_t row : p.listed) f(row * p.width, p.width);
}

double difference(const Floats& a, const Floats& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double scale = std::max(0.1, std::abs(static_cast<double>(b[i])));
    const double d = std::abs(static_cast<double>(a[i]) - b[i]) / scale;
    most = d <= most ? most : d;  // NaN shows
  }
  return most;
}

void compare_rule(uint32_t number, bool active) {
  const UpdateKernels& host = update_table_baseline().rules[number];
  const UpdateKernel kernel = active ? host.active : host.idle;
  if (!kernel) return;
  Model m(number + 10);
  UpdateFactors f;
  f.clip = 0.5f, f.step = 0.01f, f.rate = 0.02f, f.decay1 = 0.9f, f.decay2 = 0.99f, f.epsilon = 1e-8f;
  const Updates u{m.list(), m.device.extents(m.elements), f};
  m.device.launch(text("update<", number, active ? ", true>" : ", false>"), u);
  double most = 0;
  for (size_t i = 0; i < m.all.size(); ++i) {
    Model::One& o = m.all[i];
    each_run(kParameters[i], [&](size_t begin, size_t n) {
      UpdateSlice s{o.old.data() + begin, o.out.data() + begin, o.grad.data() + begin, {}, n};
      for (int k = 0; k < 3; ++k) s.state[k] = o.state[k].data() + begin;
      kernel(s, f);
    });
    most = std::max(most, difference(o.out_at->floats(), o.out));
    for (int k = 0; k < 3; ++k) most = std::max(most, difference(o.state_at[k]->floats(), o.state[k]));
  }
  std::printf("%s-%s %g\n", kRules[number], active ? "active" : "idle", most);
}

void compare_normalise() {
  Model m(1);
  for (size_t i = 0; i < m.all.size(); ++i)
    m.device.backend->copy(m.all[i].out_at->at, m.all[i].old_at->at, m.all[i].out_at->bytes);
  const Updates u{m.list(), m.device.extents(m.elements), {}};
  m.device.launch("normalise", u);
  double most = 0;
  for (size_t i = 0; i < m.all.size(); ++i) {
    const Parameter& p = kParameters[i];
    Floats expected = m.all[i].old;
    each_run(p, [&](size_t begin, size_t n) {
      for (size_t row = begin; row < begin + n; row += p.width) {
        double sum = 0;
        for (size_t k = 0; k < p.width; ++k) sum += expected[row + k];
        for (size_t k = 0; k < p.width; ++k)
          expected[row + k] = static_cast<float>(expected[row + k] / (sum * 0.9f));
      }
    });
    most = std::max(most, difference(m.all[i].out_at->floats(), expected));
  }
  std::printf("normalise %g\n", most);
}

void compare_squares(const char* name, float scale) {
  Model m(2, scale);
  std::vector<int64_t> pieces;
  int64_t n = 0;
  double expected = 0;
  for (size_t i = 0; i < m.all.size(); ++i) {
    pieces.push_back((m.elements[i] + kSquares - 1) / kSquares);
    n += pieces.back();
    each_run(kParameters[i], [&](size_t begin, size_t count) {
      for (size_t k = begin; k < begin + count; ++k) {
        const double g = m.all[i].grad[k];
        expected += g * g;
      }
    });
  }
  Memory& sums = m.device.put(std::vector<double>(static_cast<size_t>(n) + 1));
  const Squares s{m.list(), m.device.extents(m.elements), m.device.extents(pieces), sums.as<double>()};
  m.device.launch("squares", s);
  m.device.launch("total", s, 1);
  std::vector<double> found(static_cast<size_t>(n) + 1);
  m.device.backend->download(found.data(), sums.at, sums.bytes);
  std::printf("%s %g\n", name, std::abs(found.back() / expected - 1.));
}

}  // namespace

int main() {
  for (uint32_t number = 0; number < 8; ++number)
    for (bool active : {true, false}) compare_rule(number, active);
  compare_normalise();
  compare_squares("squares", 1.f);
  compare_squares("squares-large", 1e30f);
  compare_squares("squares-small", 1e-30f);
}
