#include "exec/cuda/device_argmax.h"

#include <algorithm>

#include "cuda/abi/argmax.h"
#include "exec/cuda/tuning.h"

namespace dyc {

DeviceArgmax::DeviceArgmax(CudaContext& context, LaunchEncoder& encoder)
    : c_(context), encoder_(encoder), memory_(context.device.backend(), "indices of largest values") {}

uint32_t DeviceArgmax::node_at(uint32_t launch, int64_t offset) const {
  const Launch& l = c_.plan().launches[launch];
  if (!works_ || l.total <= kArgmaxLeast || c_.arenas.is_fetched(launch)) return kNone;
  if (l.uniform) return static_cast<uint32_t>((offset - l.out) / c_.graph().sig_number(l.sig).size);
  const int64_t* const outs = c_.plan().index.data() + l.out_index;
  const int64_t* const found = std::lower_bound(outs, outs + l.count, offset);
  return found < outs + l.count && *found == offset ? static_cast<uint32_t>(found - outs) : kNone;
}

void DeviceArgmax::find(uint32_t launch) {
  const Launch& l = c_.plan().launches[launch];
  memory_.reserve(l.count * sizeof(uint32_t), 0);
  cuda::LaunchArgs args;
  args.count = l.count;
  encoder_.encode_results(l, args);
  const cuda::Argmax extra{memory_.at<uint32_t>()};
  args.extra = c_.commands.put(&extra, 1);
  c_.commands.launch_blocks(CudaDevice::kernel_id(cuda::kArgmax), args,
                            std::min(l.count, c_.device.most_blocks()));
}

void DeviceArgmax::download(uint32_t launch) {
  std::vector<uint32_t> found(c_.plan().launches[launch].count);
  c_.device.backend().download(found.data(), memory_.address(), found.size() * sizeof(uint32_t));
  largest_[launch] = std::move(found);
}

void DeviceArgmax::ran(uint32_t begin, uint32_t end) {
  largest_.resize(end);
  for (uint32_t i = begin; i < end; ++i) largest_[i].clear();
}

}  // namespace dyc
