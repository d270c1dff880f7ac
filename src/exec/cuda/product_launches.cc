#include "exec/cuda/product_launches.h"

#include <algorithm>
#include <iterator>

#include "exec/cuda/command_list.h"

namespace dyc {

Command ProductLaunches::command_of(const ProductLaunch& launch, bool needs_grid_sync) {
  const cuda::Products all{list_.put(launch.products), list_.put(launch.terms),
                           static_cast<uint32_t>(launch.products.size()), launch.tiles};
  cuda::LaunchArgs args;
  args.count = all.count;
  args.extra = list_.put(&all, 1);
  return {launch.kernel_id, std::min(launch.tiles, list_.most_blocks()),
          needs_grid_sync,  list_.put(&args, 1),
          nullptr,          0};
}

namespace {

void append(ProductLaunch& to, const ProductLaunch& from) {
  for (cuda::Product p : from.products) {
    p.first += static_cast<uint32_t>(to.terms.size());
    p.tile += to.tiles;
    to.products.push_back(p);
  }
  to.terms.insert(to.terms.end(), from.terms.begin(), from.terms.end());
  to.tiles += from.tiles;
}

}  // namespace

std::vector<Command> ProductLaunches::joined(const std::vector<Command>& commands) {
  std::vector<Command> joined;
  std::vector<Numbered> open;  // since the last wait; numbers are places in `joined`
  const auto close = [&] {
    for (const Numbered& o : open)
      if (o.joined) joined[o.command] = command_of(o.launch, joined[o.command].needs_grid_sync);
    open.clear();
  };
  std::fill(std::begin(spared_), std::end(spared_), 0);
  auto next = all_.begin();
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].needs_grid_sync) close();
    const bool is_next = next != all_.end() && next->command == i;
    const auto to = std::find_if(open.begin(), open.end(), [&](const Numbered& o) {
      return is_next && o.launch.kernel_id == next->launch.kernel_id;
    });
    if (to != open.end()) {
      append(to->launch, next->launch);
      to->joined = true;
      ++spared_[static_cast<size_t>(next->launch.variant)];
    } else {
      if (is_next) open.push_back({joined.size(), next->launch});
      joined.push_back(commands[i]);
    }
    next += is_next;
  }
  close();
  return joined;
}

void ProductLaunches::count(cuda::Backend::Counters& counters, bool joined) const {
  for (const Numbered& one : all_) ++counters.products[static_cast<size_t>(one.launch.variant)];
  for (size_t v = 0; joined && v < cuda::kMatmulVariants; ++v) counters.products[v] -= spared_[v];
}

void ProductLaunches::clear() { all_.clear(); }

}  // namespace dyc
