#include "exec/cuda/product_launches.h"

#include <algorithm>
#include <iterator>

#include "exec/cuda/command_list.h"
#include "exec/cuda/tuning.h"

namespace dyc {

Command ProductLaunches::add(size_t command, ProductLaunch launch, bool needs_grid_sync) {
  cuda::Product* products;
  const Command made = command_of(launch, needs_grid_sync, &products);
  all_.push_back({command, std::move(launch), products});
  return made;
}

namespace {

// Where tiles of kTile leave half of the multiprocessors idle, four times as many small ones do more at once.
bool takes_small_tiles(const ProductLaunch& launch, uint32_t processors) {
  return launch.variant == cuda::MatmulVariant::middle && 2 * launch.tiles <= processors;
}

uint32_t number_tiles(cuda::Product* products, uint32_t count, int64_t side) {
  uint32_t tiles = 0;
  for (uint32_t i = 0; i < count; ++i) {
    products[i].tile = tiles;
    tiles += static_cast<uint32_t>((products[i].m + side - 1) / side * ((products[i].n + side - 1) / side));
  }
  return tiles;
}

constexpr uint32_t kSmallFromMiddle = cuda::kSmallProductWx - cuda::kProductWx;

}  // namespace

Command ProductLaunches::command_of(const ProductLaunch& launch, bool needs_grid_sync,
                                    cuda::Product** products) {
  const auto count = static_cast<uint32_t>(launch.products.size());
  const auto record = list_.array<char>(cuda::record_bytes(count, launch.terms.size()));
  const size_t first = cuda::kProductsAt + sizeof(cuda::Products),
               end = first + count * sizeof(cuda::Product);
  const auto to = new (record.host + first) cuda::Product[count];
  std::copy(launch.products.begin(), launch.products.end(), to);
  std::uninitialized_copy(launch.terms.begin(), launch.terms.end(),
                          reinterpret_cast<cuda::Term*>(record.host + end));
  const bool small = takes_small_tiles(launch, list_.processors());
  const uint32_t tiles = small ? number_tiles(to, count, cuda::kSmallTile) : launch.tiles;
  const auto* const all = new (record.host + cuda::kProductsAt)
      cuda::Products{reinterpret_cast<const cuda::Product*>(record.device + first),
                     reinterpret_cast<const cuda::Term*>(record.device + end), count, tiles,
                     cuda::tiles_of_each(to, count, tiles)};
  auto* const args = new (record.host) cuda::LaunchArgs;
  args->count = all->count;
  args->extra = record.device + cuda::kProductsAt;
  if (products) *products = to;
  return {launch.kernel_id + (small ? kSmallFromMiddle : 0),
          std::min(tiles, list_.most_blocks()),
          needs_grid_sync,
          record.device,
          nullptr,
          0};
}

void ProductLaunches::Open::append(const ProductLaunch& from) {
  if (!all) all = {first->kernel_id, first->variant, first->products, first->terms, first->tiles};
  for (cuda::Product p : from.products) {
    p.first += static_cast<uint32_t>(all->terms.size());
    p.tile += all->tiles;
    all->products.push_back(p);
  }
  all->terms.insert(all->terms.end(), from.terms.begin(), from.terms.end());
  all->tiles += from.tiles;
}

const std::vector<ProductFollower>& ProductLaunches::followers(size_t number, size_t product) const {
  static const std::vector<ProductFollower> none;
  const auto& all = all_[number].launch.followers;
  return all.empty() ? none : all[product];
}

void ProductLaunches::follow(size_t number, size_t product, ProductFollower follower) {
  ProductLaunch& launch = all_[number].launch;
  launch.followers.resize(launch.products.size());
  launch.followers[product].push_back(std::move(follower));
}

void ProductLaunches::finish(std::vector<WeightProduct>& noted) {
  for (Numbered& one : all_) {
    for (size_t p = 0; p < one.launch.followers.size(); ++p) {
      std::vector<cuda::Follower> followers;
      for (const ProductFollower& f : one.launch.followers[p]) followers.push_back(f.follower);
      const cuda::Follower* const put = list_.put(followers);
      const auto set = [&](cuda::Product& to) {
        to.followers = put;
        to.follower_count = static_cast<uint32_t>(followers.size());
      };
      set(one.launch.products[p]);
      set(one.products[p]);
      const auto note = std::lower_bound(noted.begin(), noted.end(), one.command,
                                         [](const WeightProduct& w, size_t step) { return w.step < step; });
      if (note != noted.end() && note->step == one.command) set(note->product);
    }
  }
}

namespace {

// Both ascend.
bool apart(const AddedColumns& a, const AddedColumns& b) {
  auto one = a.columns.begin();
  for (const int64_t other : b.columns) {
    while (one != a.columns.end() && *one + a.rows <= other) ++one;
    if (one != a.columns.end() && *one < other + b.rows) return false;
  }
  return true;
}

// Can they be made in any order, but where both add to the same columns, b after a?
bool independent(const ProductLaunch& a, const ProductLaunch& b) {
  const auto meets = [](const ProductLaunch& one, const ProductLaunch& other) {
    return std::any_of(one.touched.begin(), one.touched.end(), [&](const ArenaRange& t) {
      const auto touches = [&](const ArenaRange& o) { return t.meets(o); };
      return t.meets(other.added.reads) || std::any_of(other.touched.begin(), other.touched.end(), touches);
    });
  };
  const auto adds = [](const ProductLaunch& one, const ProductLaunch& other) {
    return std::any_of(one.touched.begin(), one.touched.end(),
                       [&](const ArenaRange& t) { return t.meets(other.added.range()); });
  };
  const bool same = a.added == b.added;
  return !a.added.reads.meets(b.added.range()) && !b.added.reads.meets(a.added.range()) &&
         (same || apart(a.added, b.added)) && !meets(a, b) && !meets(b, a) && !adds(a, b) &&
         (same || !adds(b, a));
}

}  // namespace

// The end of launches, by their place in all_, that can be one: they are next to each other, and add to
// gradients.
size_t ProductLaunches::end_of_adding(size_t first, const std::vector<Command>& commands) const {
  const size_t begin = all_[first].command;
  const ProductLaunch& head = all_[first].launch;
  size_t end = first + 1;
  if (head.added.columns.empty()) return end;
  for (; end < all_.size() && end - first < kAddedAtOnce; ++end) {
    const ProductLaunch& next = all_[end].launch;
    const size_t at = begin + (end - first);
    if (all_[end].command != at || at >= commands.size() || next.kernel_id != head.kernel_id ||
        next.added.columns.empty())
      break;
    const auto fits = [&](const Numbered& o) { return independent(o.launch, next); };
    if (!std::all_of(all_.begin() + static_cast<int64_t>(first), all_.begin() + static_cast<int64_t>(end),
                     fits))
      break;
  }
  return end;
}

Command ProductLaunches::add_at_once(size_t first, size_t end, bool needs_grid_sync) {
  ProductLaunch all{all_[first].launch.kernel_id, all_[first].launch.variant, {}, {}, 0};
  std::vector<bool> taken(end - first);
  for (size_t i = first; i < end; ++i) {
    if (taken[i - first]) continue;
    cuda::Product p = all_[i].launch.products[0];
    p.first = static_cast<uint32_t>(all.terms.size());
    p.tile = all.tiles;
    for (size_t k = i; k < end; ++k) {
      const ProductLaunch& one = all_[k].launch;
      if (!(one.added == all_[i].launch.added)) continue;
      if (k > i) p.begin = cuda::Product::add_each;
      all.terms.insert(all.terms.end(), one.terms.begin(), one.terms.end());
      p.followers = one.products[0].followers;  // only of the last
      p.follower_count = one.products[0].follower_count;
      taken[k - first] = true;
    }
    p.terms = static_cast<uint32_t>(all.terms.size()) - p.first;
    all.products.push_back(p);
    all.tiles += all_[i].launch.tiles;
  }
  spared_[static_cast<size_t>(all.variant)] += end - first - 1;
  return command_of(all, needs_grid_sync);
}

std::vector<Command> ProductLaunches::joined(const std::vector<Command>& commands) {
  std::vector<Command> joined;
  std::vector<Open> open;  // since the last wait
  const auto close = [&] {
    for (const Open& o : open)
      if (o.all) joined[o.place] = command_of(*o.all, joined[o.place].needs_grid_sync);
    open.clear();
  };
  std::fill(std::begin(spared_), std::end(spared_), 0);
  auto next = all_.begin();
  for (size_t i = 0; i < commands.size(); ++i) {
    if (commands[i].needs_grid_sync) close();
    const bool is_next = next != all_.end() && next->command == i;
    const auto number = static_cast<size_t>(next - all_.begin());
    if (const size_t end = is_next ? end_of_adding(number, commands) : 0; end > number + 1) {
      close();
      joined.push_back(add_at_once(number, end, commands[i].needs_grid_sync));
      i += end - number - 1;
      next += static_cast<int64_t>(end - number);
      continue;
    }
    const auto to = std::find_if(open.begin(), open.end(), [&](const Open& o) {
      return is_next && o.first->kernel_id == next->launch.kernel_id;
    });
    if (to != open.end()) {
      to->append(next->launch);
      ++spared_[static_cast<size_t>(next->launch.variant)];
    } else {
      if (is_next) open.push_back({joined.size(), &next->launch, {}});
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
