// Trainers' updates on a CUDA device.
#include <algorithm>

#include "base/error.h"
#include "cuda/abi/products.h"
#include "cuda/abi/updates.h"
#include "exec/cuda/parameters.h"
#include "exec/device.h"
#include "exec/device_update.h"

namespace dyc {

namespace {

cuda::Backend::Address address_of(const float* p) { return reinterpret_cast<cuda::Backend::Address>(p); }

// Distance from one array of a state to the next, in floats.
size_t stride_of(size_t n) { return (n + 31) / 32 * 32; }

class CudaUpdate final : public DeviceUpdate {
 public:
  CudaUpdate(CudaDevice& device, UpdateRule rule, int arrays);
  ~CudaUpdate() override { batch_.discard(); }

  bool start(const std::vector<StoragePtr>& changing) override;
  double squared_norm(const std::vector<StoragePtr>& storages) override;
  void add(const StoragePtr& storage, UpdateState* state, What what) override;
  void run(const UpdateFactors& factors) override;

 private:
  struct ParameterUpdate {
    CudaParameters::Change change;
    UpdateState* state;
    What what;
    cuda::UpdateWork work;
    int64_t elements;
  };
  static uint32_t kernel_id(uint32_t other) {
    return CudaDevice::kernel_id(static_cast<cuda::KernelId>(other));
  }
  uint32_t rule_kernel(bool active) const {
    return kernel_id(cuda::kUpdate + 2 * static_cast<uint32_t>(rule_) + active);
  }
  cuda::NodeSizes node_sizes(const std::vector<int64_t>& sizes);
  void place_state(ParameterUpdate& job);
  const float* whole_grad(const StoragePtr& storage);
  void launch(const UpdateFactors& factors, bool active);

  CudaDevice& device_;
  const DeviceLock lock_;
  CudaParameters& parameters_;
  CommandList& batch_;
  const UpdateRule rule_;
  const int arrays_;
  std::vector<ParameterUpdate> jobs_;
};

CudaUpdate::CudaUpdate(CudaDevice& device, UpdateRule rule, int arrays)
    : device_(device),
      lock_(device.lock()),
      parameters_(device.parameters()),
      batch_(parameters_.batch()),
      rule_(rule),
      arrays_(arrays) {
  try {
    // First, as a compiler may let go of the interpreter lock.
    device_.prepare({kernel_id(cuda::kSumSquares), kernel_id(cuda::kTotalSquares), kernel_id(cuda::kAddFew),
                     rule_kernel(true), rule_kernel(false)});
  } catch (...) {
    device_.rethrow();
  }
}

bool CudaUpdate::start(const std::vector<StoragePtr>& changing) {
  for (const StoragePtr& s : changing)
    if (!s->device_may_write()) return false;
  try {
    parameters_.take_snapshot(changing);
  } catch (...) {
    device_.rethrow();
  }
  return true;
}

cuda::NodeSizes CudaUpdate::node_sizes(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> starts(1, 0);
  for (const int64_t n : sizes) starts.push_back(starts.back() + n);
  return {static_cast<uint32_t>(sizes.size()),           0, batch_.put(starts), starts.back(),
          *std::max_element(sizes.begin(), sizes.end()), {}};
}

double CudaUpdate::squared_norm(const std::vector<StoragePtr>& storages) {
  std::vector<cuda::UpdateWork> list;
  std::vector<int64_t> elements, pieces;
  int64_t sums = 1;
  double sum = 0.;
  try {
    for (const StoragePtr& s : storages) {
      if (!s->has_grad()) continue;
      cuda::UpdateWork work{};  // those of rows are stored one after the other
      work.slice.grad = parameters_.grad(s);
      const size_t n = s->grad_size();
      if (n == 0) continue;
      work.dense_rows = true;
      list.push_back(work);
      elements.push_back(static_cast<int64_t>(n));
      pieces.push_back((elements.back() + cuda::kSquares - 1) / cuda::kSquares);
      sums += pieces.back();
    }
    if (list.empty()) return 0.;
    DeviceMemory& memory = parameters_.sums();
    memory.reserve(static_cast<size_t>(sums) * sizeof(double), 0);
    const cuda::Squares squares{batch_.put(list), node_sizes(elements), node_sizes(pieces),
                                memory.at<double>()};
    cuda::LaunchArgs r;
    r.extra = batch_.put(&squares, 1);
    batch_.launch(kernel_id(cuda::kSumSquares), r, squares.pieces.total * 32);
    batch_.launch_blocks(kernel_id(cuda::kTotalSquares), r, 1);
    batch_.submit();
    device_.backend().download(&sum, memory.address() + static_cast<uint64_t>(sums - 1) * sizeof(double),
                               sizeof sum);
  } catch (...) {
    device_.rethrow();
  }
  return sum;
}

// Zeros in the rows that were not touched.
const float* CudaUpdate::whole_grad(const StoragePtr& storage) {
  const float* const rows = parameters_.grad(storage);
  if (storage->dense_grad()) return rows;
  float* const whole = batch_.zeros(storage->size());
  const std::vector<uint32_t>& touched = storage->touched_rows();
  const int64_t width = static_cast<int64_t>(storage->row_size());
  std::vector<int64_t> targets, sources, ends;
  std::vector<uint32_t> starts(1, 0);
  for (size_t i = 0; i < touched.size(); ++i) {
    targets.push_back(touched[i] * width);
    sources.push_back(static_cast<int64_t>(i) * width);
    ends.push_back(static_cast<int64_t>(i + 1) * width);
    starts.push_back(static_cast<uint32_t>(i + 1));
  }
  if (touched.empty()) return whole;
  const cuda::Segments s{whole,
                         rows,
                         batch_.put(targets),
                         batch_.put(sources),
                         batch_.put(starts),
                         batch_.put(ends),
                         nullptr,
                         static_cast<uint32_t>(touched.size())};
  cuda::LaunchArgs r;
  r.count = s.count;
  r.extra = batch_.put(&s, 1);
  batch_.launch(kernel_id(cuda::kAddFew), r, ends.back());
  return whole;
}

void CudaUpdate::place_state(ParameterUpdate& job) {
  if (!job.state) return;
  const size_t n = job.change.storage->size(), stride = stride_of(n);
  if (!job.state->there)
    job.state->there = parameters_.allocate_state(static_cast<size_t>(arrays_) * stride * sizeof(float));
  DeviceMemory& memory = *job.state->there;
  if (!job.state->on_device && !job.state->touched)
    device_.backend().clear(memory.address(), static_cast<size_t>(arrays_) * stride * sizeof(float));
  for (int i = 0; i < arrays_; ++i) {
    float* const at = memory.at<float>() + static_cast<size_t>(i) * stride;
    if (!job.state->on_device && job.state->touched)
      device_.backend().upload(address_of(at), job.state->array[i], n * sizeof(float));
    job.work.slice.state[i] = at;
  }
}

void CudaUpdate::add(const StoragePtr& storage, UpdateState* state, What what) {
  try {
    ParameterUpdate job{parameters_.prepare(storage), state, what, {}, static_cast<int64_t>(storage->size())};
    cuda::UpdateWork& work = job.work;
    work.slice.old = job.change.from->at();
    work.slice.out = job.change.to->at();
    work.slice.n = storage->size();
    work.width = static_cast<int64_t>(storage->row_size());
    work.decay = storage->decay ? storage->decay->factor : 1.f;
    if (what == What::rows) {
      work.slice.grad = parameters_.grad(storage);
      work.rows = batch_.put(storage->touched_rows());
      work.dense_rows = true;
      job.elements = static_cast<int64_t>(storage->touched_rows().size()) * work.width;
      if (work.slice.old != work.slice.out) batch_.copy(work.slice.out, work.slice.old, storage->size());
    } else if (what == What::all) {
      work.slice.grad = whole_grad(storage);
    }
    place_state(job);
    jobs_.push_back(std::move(job));
  } catch (...) {
    device_.rethrow();
  }
}

void CudaUpdate::launch(const UpdateFactors& factors, bool active) {
  std::vector<cuda::UpdateWork> list;
  std::vector<int64_t> elements;
  for (const ParameterUpdate& job : jobs_) {
    if ((job.what != What::idle) != active || job.elements == 0) continue;
    list.push_back(job.work);
    elements.push_back(job.elements);
  }
  if (list.empty()) return;
  const cuda::Updates all{batch_.put(list), node_sizes(elements), factors};
  cuda::LaunchArgs r;
  r.extra = batch_.put(&all, 1);
  batch_.launch(rule_kernel(active), r, all.elements.total);
}

void CudaUpdate::run(const UpdateFactors& factors) {
  try {
    launch(factors, true);
    launch(factors, false);
    batch_.submit();
  } catch (...) {
    device_.rethrow();
  }
  for (const ParameterUpdate& job : jobs_) {
    parameters_.commit(job.change);
    if (job.state) job.state->touched = job.state->on_device = true;
    job.change.storage->clear_grad();
  }
  jobs_.clear();
  parameters_.updated();
}

}  // namespace

bool DeviceUpdate::possible() { return cuda_device(); }

// Exponentiated gradients are for the host, which looks at all values before each update.
std::unique_ptr<DeviceUpdate> DeviceUpdate::begin(UpdateRule rule, int arrays) {
  CudaDevice* const device = cuda_device();
  if (!device || !device->options.update || device->parameters().on_host() ||
      rule == UpdateRule::kExponentiated)
    return nullptr;
  return std::make_unique<CudaUpdate>(*device, rule, arrays);
}

void leave_updates_to_host() {
  CudaDevice& device = *cuda_device();
  const auto lock = device.lock();
  device.parameters().stay_on_host();
}

void state_to_host(UpdateState& state, int arrays, size_t n) {
  if (!state.there) return;
  CudaDevice& device = *cuda_device();
  const auto lock = device.lock();
  if (state.on_device) {
    try {
      for (int i = 0; i < arrays; ++i)
        device.parameters().download_state(state.there, static_cast<size_t>(i) * stride_of(n), n,
                                           state.array[i]);
    } catch (...) {
      device.rethrow();
    }
    state.on_device = false;
  }
  if (device.parameters().on_host()) state.there.reset();
}

}  // namespace dyc
