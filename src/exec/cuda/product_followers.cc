#include "exec/cuda/product_followers.h"

#include <algorithm>

#include "exec/cuda/command_list.h"
#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

// Floats from `a` to `b`: addresses of the device.
int64_t distance(const float* a, const float* b) {
  return (reinterpret_cast<int64_t>(b) - reinterpret_cast<int64_t>(a)) / static_cast<int64_t>(sizeof(float));
}

ArenaRange range_of(const std::vector<FollowingNode>& columns, int64_t FollowingNode::* offset,
                    int64_t rows) {
  ArenaRange range;
  for (const FollowingNode& c : columns) range.include({c.*offset, c.*offset + rows});
  return range;
}

// Column c of a node's columns of so many floats.
FollowingNode column_of(const FollowingNode& node, int64_t c, int64_t rows) {
  const auto moved = [&](int64_t offset) { return offset < 0 ? offset : offset + c * rows; };
  return {rows, moved(node.x), moved(node.y), moved(node.z), moved(node.dz), moved(node.to)};
}

}  // namespace

void ProductFollowers::clear() {
  written_.clear();
  added_.clear();
  last_ = {};
}

bool ProductFollowers::add(const FollowingOp& op, const std::vector<Command>& commands,
                           std::vector<WeightProduct>& noted) {
  if (!find_targets(op)) return false;
  for (const FollowedColumns& t : targets_)
    if (op.forward() ? !may_read(t, op, commands) : !may_add(t, commands)) return false;
  for (const FollowedColumns& t : targets_) follow(t, op, noted);
  return true;
}

// ---------------------------------------------------------------- products

// Finds the products that made an operand of the op: of each, all columns.
bool ProductFollowers::find_targets(const FollowingOp& op) {
  targets_.clear();
  int64_t rows = 0;
  for (const FollowingNode& node : op.nodes) {
    std::optional<ColumnPlace> place = place_of_node(op, node);
    if (!place) return false;
    const int64_t m = launches_.at(place->launch).launch.products[place->product].m;
    if ((rows && m != rows) || node.floats % m != 0) return false;
    rows = m;
    const int64_t made = op.forward() ? (second_ ? node.y : node.x) : node.dz;
    for (int64_t c = 0; c < node.floats / m; ++c) {
      if (c > 0 && !(place = find(op, made + c * m))) return false;
      if (!add_column(*place, column_of(node, c, m))) return false;
    }
  }
  return std::all_of(targets_.begin(), targets_.end(), [&](const FollowedColumns& t) {
    const ProductLaunch& launch = launches_.at(t.launch).launch;
    const bool whole = t.known == launch.products[t.product].n;
    return whole && (launch.partial.empty() || !launch.partial[t.product]) &&
           launches_.followers(t.launch, t.product).size() < kMostFollowers;
  });
}

// Of two operands the one that was made later, as it mostly is in all nodes.
std::optional<ProductFollowers::ColumnPlace> ProductFollowers::place_of_node(const FollowingOp& op,
                                                                             const FollowingNode& node) {
  if (!op.forward()) return find(op, node.dz);
  if (node.y < 0) {
    second_ = false;
    return find(op, node.x);
  }
  if (!targets_.empty())
    if (const auto again = find(op, second_ ? node.y : node.x)) return again;
  const auto x = find(op, node.x), y = find(op, node.y);
  second_ = y && (!x || y->launch > x->launch);
  return second_ ? y : x;
}

bool ProductFollowers::add_column(const ColumnPlace& place, const FollowingNode& column) {
  auto target = std::find_if(targets_.rbegin(), targets_.rend(), [&](const FollowedColumns& t) {
    return t.launch == place.launch && t.product == place.product;
  });
  if (target == targets_.rend()) {
    const int64_t n = launches_.at(place.launch).launch.products[place.product].n;
    targets_.push_back({place.launch, place.product, std::vector<FollowingNode>(static_cast<size_t>(n)), 0});
    target = targets_.rbegin();
  }
  FollowingNode& to = target->columns[static_cast<size_t>(place.column)];
  if (to.floats) return false;
  to = column;
  ++target->known;
  return true;
}

// Backward the last product that adds to it. A value is mostly of the product that was found last, or of the
// next one.
std::optional<ProductFollowers::ColumnPlace> ProductFollowers::find(const FollowingOp& op, int64_t offset) {
  size_t looked = 0;
  const auto look = [&](size_t launch, size_t product) {
    ++looked;
    const std::optional<ColumnPlace> found = find_in(op, launch, product, offset);
    if (found) last_ = *found;
    return found;
  };
  if (op.forward() && last_.launch < launches_.size()) {
    const size_t count = launches_.at(last_.launch).launch.products.size();
    for (size_t p = last_.product; p < std::min(count, last_.product + 2); ++p)
      if (const auto found = look(last_.launch, p)) return found;
  }
  for (size_t launch = launches_.size(); launch > 0 && looked < kRecentProducts; --launch)
    for (size_t p = 0; p < launches_.at(launch - 1).launch.products.size(); ++p)
      if (const auto found = look(launch - 1, p)) return found;
  return {};
}

// Where several followers add to the same gradient, the last of them.
std::optional<ProductFollowers::ColumnPlace> ProductFollowers::find_in(const FollowingOp& op, size_t launch,
                                                                       size_t product, int64_t offset) const {
  const std::vector<ProductFollower>& followers = launches_.followers(launch, product);
  for (size_t slot = followers.size(); slot > 0; --slot)
    if (const auto column = followers[slot - 1].made.find(offset))
      return ColumnPlace{launch, product, *column, slot};
  const ProductLaunch& of = launches_.at(launch).launch;
  const cuda::Product& p = of.products[product];
  if (!p.c.index) {
    const auto column =
        column_number(offset, distance(op.arena(), p.c.base), p.n > 1 ? p.c.stride : p.m, p.n);
    if (column) return ColumnPlace{launch, product, *column, 0};
    return {};
  }
  const auto found = std::lower_bound(of.added.columns.begin(), of.added.columns.end(), offset);
  if (found == of.added.columns.end() || *found != offset) return {};
  return ColumnPlace{launch, product, found - of.added.columns.begin(), 0};
}

// ---------------------------------------------------------------- forward

// Is all that the op reads there when the launch begins, or made by the thread that reads it?
bool ProductFollowers::may_read(const FollowedColumns& t, const FollowingOp& op,
                                const std::vector<Command>& commands) const {
  size_t since = launches_.at(t.launch).command;  // commands since the last wait run at the same time
  while (since > 0 && !commands[since].needs_grid_sync) --since;
  for (size_t j = 0; j < t.columns.size(); ++j)
    for (const int64_t offset : {t.columns[j].x, t.columns[j].y})
      if (offset >= 0 && !is_there(t, op, static_cast<int64_t>(j), offset, since)) return false;
  return true;
}

bool ProductFollowers::is_there(const FollowedColumns& t, const FollowingOp& op, int64_t column,
                                int64_t offset, size_t since) const {
  if (const auto place = find_in(op, t.launch, t.product, offset)) return place->column == column;
  const ArenaRange read{offset, offset + t.columns[0].floats};
  for (auto w = written_.rbegin(); w != written_.rend(); ++w) {
    if (w->command >= since && w->range.meets(read)) return false;
    if (w->command < since && !w->follows) break;
  }
  return true;
}

// ---------------------------------------------------------------- backward

// May the op add to gradients where the product does, and not after the commands that follow it?
bool ProductFollowers::may_add(const FollowedColumns& t, const std::vector<Command>& commands) const {
  const AddedColumns& own = launches_.at(t.launch).launch.added;
  if (own.columns.empty()) return false;
  const ArenaRange to = range_of(t.columns, &FollowingNode::to, own.rows),
                   dz = range_of(t.columns, &FollowingNode::dz, own.rows);
  if (to.meets(own.range()) || to.meets(own.reads)) return false;
  const auto same = [&](const ColumnOffsets& made, int64_t FollowingNode::* offset) {
    for (size_t j = 0; j < t.columns.size(); ++j)
      if (made[j] != t.columns[j].*offset) return false;
    return true;
  };
  for (const ProductFollower& f : launches_.followers(t.launch, t.product)) {
    if (f.made.range().meets(to) && !same(f.made, &FollowingNode::to)) return false;
    if (f.made.range().meets(dz) && !same(f.made, &FollowingNode::dz)) return false;
  }
  return adds_apart(t, to, dz, commands.size());
}

// Do all commands after the product neither read nor add to what the op adds to, nor add to what it reads?
bool ProductFollowers::adds_apart(const FollowedColumns& t, ArenaRange to, ArenaRange dz,
                                  size_t commands) const {
  const auto apart = [&](ArenaRange reads, ArenaRange adds) {
    return !to.meets(reads) && !to.meets(adds) && !dz.meets(adds);
  };
  size_t next = launches_.at(t.launch).command + 1, launch = t.launch + 1;
  auto added = std::lower_bound(added_.begin(), added_.end(), next,
                                [](const Added& a, size_t command) { return a.first < command; });
  while (next < commands) {
    if (launch < launches_.size() && launches_.at(launch).command == next) {
      const ProductLaunch& other = launches_.at(launch++).launch;
      if (other.added.columns.empty() || !apart(other.added.reads, other.added.range())) return false;
      for (const ArenaRange& touched : other.touched)
        if (!apart(touched, touched)) return false;
      ++next;
    } else if (added != added_.end() && added->first == next) {
      if (!apart(added->reads, added->adds)) return false;
      next = added++->command + 1;
      while (launch < launches_.size() && launches_.at(launch).command < next) ++launch;
    } else {
      return false;
    }
  }
  return true;
}

// ---------------------------------------------------------------- descriptions

template <class At>
cuda::Matrix<const float> ProductFollowers::matrix(const FollowedColumns& t, const float* arena, At at) {
  const size_t n = t.columns.size();
  const int64_t first = at(0), step = n > 1 ? at(1) - first : 0;
  bool even = true;
  for (size_t j = 2; j < n; ++j) even = even && at(j) - at(j - 1) == step;
  if (even) return {arena + first, nullptr, step};
  std::vector<int64_t> index(n);
  for (size_t j = 0; j < n; ++j) index[j] = at(j);
  return {arena, launches_.list().put(index), 0};
}

// Is the operand what the product, or its last follower, has just made?
bool ProductFollowers::is_carried(const FollowedColumns& t, const FollowingOp& op,
                                  int64_t FollowingNode::* operand) const {
  const std::vector<ProductFollower>& followers = launches_.followers(t.launch, t.product);
  for (size_t j = 0; j < t.columns.size(); ++j) {
    const int64_t offset = t.columns[j].*operand;
    if (followers.empty() ? !find_in(op, t.launch, t.product, offset) : followers.back().made[j] != offset)
      return false;
  }
  return true;
}

void ProductFollowers::follow(const FollowedColumns& t, const FollowingOp& op,
                              std::vector<WeightProduct>& noted) {
  ProductFollower all{{op.kind, op.op, op.attr, {}, {}, {}, {}, {}}, {}};
  cuda::Follower& f = all.follower;
  const size_t command = launches_.at(t.launch).command;
  const auto note =
      std::find_if(noted.rbegin(), noted.rend(), [&](const WeightProduct& w) { return w.step <= command; });
  const int64_t rows = t.columns[0].floats;
  const auto describe = [&](int64_t FollowingNode::* operand, const float* arena, bool writes) {
    const auto at = [&](size_t j) { return t.columns[j].*operand; };
    if (note != noted.rend() && note->step == command && arena == op.arena())
      note->accesses.push_back(access_to(arena, static_cast<int64_t>(t.columns.size()), rows, rows, writes,
                                         [&](int64_t j) { return at(static_cast<size_t>(j)); }));
    return matrix(t, arena, at);
  };
  const auto read = [&](int64_t FollowingNode::* operand, const float* arena, bool may_be_carried) {
    if (t.columns[0].*operand < 0) return cuda::Matrix<const float>{};
    cuda::Matrix<const float> m = describe(operand, arena, false);
    if (may_be_carried && is_carried(t, op, operand)) m = {};
    return m;
  };
  f.x = read(&FollowingNode::x, op.values, op.forward());
  f.y = read(&FollowingNode::y, op.values, op.forward());
  f.z = read(&FollowingNode::z, op.values, false);
  f.dz = read(&FollowingNode::dz, op.gradients, true);
  const cuda::Matrix<const float> to = describe(&FollowingNode::to, op.arena(), true);
  f.to = {const_cast<float*>(to.base), to.index, to.stride};
  std::vector<int64_t> made;
  for (const FollowingNode& c : t.columns) made.push_back(c.to);
  all.made = ColumnOffsets(std::move(made), rows);
  const ArenaRange results = all.made.range();
  launches_.follow(t.launch, t.product, std::move(all));
  if (op.forward()) return written_.push_back({results, command, true});
  launches_.touch(t.launch, results);
  launches_.touch(t.launch, range_of(t.columns, &FollowingNode::dz, rows));
}

}  // namespace dyc
