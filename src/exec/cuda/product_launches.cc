#include "exec/cuda/product_launches.h"

#include <algorithm>
#include <iterator>

#include "exec/cuda/command_list.h"
#include "exec/cuda/tuning.h"

namespace dyc {

Command ProductLaunches::add(size_t command, ProductLaunch launch, bool needs_grid_sync) {
  const auto products = list_.array<cuda::Product>(launch.products.size());
  std::copy(launch.products.begin(), launch.products.end(), products.host);
  all_.push_back({command, std::move(launch), products.host});
  return command_of(all_.back().launch, products.device, needs_grid_sync);
}

Command ProductLaunches::command_of(const ProductLaunch& launch, const cuda::Product* products,
                                    bool needs_grid_sync) {
  const auto count = static_cast<uint32_t>(launch.products.size());
  const cuda::Products all{products, list_.put(launch.terms), count, launch.tiles,
                           cuda::tiles_of_each(launch.products.data(), count, launch.tiles)};
  cuda::LaunchArgs args;
  args.count = all.count;
  args.extra = list_.put(&all, 1);
  return {launch.kernel_id, std::min(launch.tiles, list_.most_blocks()),
          needs_grid_sync,  list_.put(&args, 1),
          nullptr,          0};
}

namespace {

// Floats from `a` to `b`: addresses of the device.
int64_t distance(const float* a, const float* b) {
  return (reinterpret_cast<int64_t>(b) - reinterpret_cast<int64_t>(a)) / static_cast<int64_t>(sizeof(float));
}

bool holds(const cuda::Product& p, const ElementwiseNode& node) {
  if (p.begin == cuda::Product::add || p.c.index || (p.c.stride != p.m && p.n > 1)) return false;
  const int64_t at = distance(p.c.base, node.from);
  return at >= 0 && at + node.floats <= p.m * p.n;
}

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

bool ProductLaunches::activate(uint32_t activation, const std::vector<ElementwiseNode>& nodes,
                               std::vector<WeightProduct>& noted) {
  std::vector<Activated> found;
  for (const ElementwiseNode& node : nodes)
    if (!find(node, found)) return false;
  for (const Activated& a : found)
    if (a.floats != a.get().m * a.get().n || a.get().activation) return false;
  for (const Activated& a : found) {
    const auto set = [&](cuda::Product& p) {
      p.activation = activation;
      p.activated = a.distance;
    };
    set(a.get());
    set(a.launch->products[a.product]);
    for (WeightProduct& w : noted) {
      if (w.step != a.launch->command) continue;
      set(w.product);
      MemoryRange written = w.accesses.front();
      written.begin += a.distance;
      written.end += a.distance;
      w.accesses.push_back(written);
    }
  }
  return true;
}

// Adds the node to those of the product whose result it reads; false: there is none, or it is not as the
// others of that product.
// Nodes mostly come in the order of their products: is it of the product after those that were found?
bool ProductLaunches::find_next(const ElementwiseNode& node, int64_t apart, std::vector<Activated>& found) {
  if (found.empty()) return false;
  const Activated& last = found.back();
  const std::vector<cuda::Product>& products = last.launch->launch.products;
  const size_t next = last.product + 1;
  const bool in_order = last.launch == found.front().launch && next == found.front().product + found.size();
  const std::vector<bool>& partial = last.launch->launch.partial;
  if (!in_order || next == products.size() || !holds(products[next], node)) return false;
  if (!partial.empty() && partial[next]) return false;
  found.push_back({last.launch, next, apart, node.floats});
  return true;
}

bool ProductLaunches::find(const ElementwiseNode& node, std::vector<Activated>& found) {
  const int64_t apart = distance(node.from, node.to);
  if (find_next(node, apart, found)) return true;
  for (auto a = found.rbegin(); a != found.rend(); ++a) {
    if (!holds(a->get(), node)) continue;
    a->floats += node.floats;
    return a->distance == apart;
  }
  size_t looked = 0;
  for (auto launch = all_.rbegin(); launch != all_.rend() && looked < kRecentProducts; ++launch) {
    const std::vector<bool>& partial = launch->launch.partial;
    for (size_t p = 0; p < launch->launch.products.size(); ++p, ++looked) {
      if (!holds(launch->launch.products[p], node)) continue;
      if (!partial.empty() && partial[p]) return false;
      found.push_back({&*launch, p, apart, node.floats});
      return true;
    }
  }
  return false;
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

bool reads(const AddedColumns& a, const AddedColumns& made) {
  return a.read_begin < made.end() && made.columns.front() < a.read_end;
}

// Can they be made in any order, but where both add to the same columns?
bool independent(const AddedColumns& a, const AddedColumns& b) {
  return !reads(a, b) && !reads(b, a) && (a == b || apart(a, b));
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
    const auto fits = [&](const Numbered& o) { return independent(o.launch.added, next.added); };
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
      taken[k - first] = true;
    }
    p.terms = static_cast<uint32_t>(all.terms.size()) - p.first;
    all.products.push_back(p);
    all.tiles += all_[i].launch.tiles;
  }
  spared_[static_cast<size_t>(all.variant)] += end - first - 1;
  return command_of(all, list_.put(all.products), needs_grid_sync);
}

std::vector<Command> ProductLaunches::joined(const std::vector<Command>& commands) {
  std::vector<Command> joined;
  std::vector<Numbered> open;  // since the last wait; numbers are places in `joined`
  const auto close = [&] {
    for (const Numbered& o : open)
      if (o.joined)
        joined[o.command] =
            command_of(o.launch, list_.put(o.launch.products), joined[o.command].needs_grid_sync);
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
    const auto to = std::find_if(open.begin(), open.end(), [&](const Numbered& o) {
      return is_next && o.launch.kernel_id == next->launch.kernel_id;
    });
    if (to != open.end()) {
      append(to->launch, next->launch);
      to->joined = true;
      ++spared_[static_cast<size_t>(next->launch.variant)];
    } else {
      if (is_next) open.push_back({joined.size(), next->launch, nullptr});
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
