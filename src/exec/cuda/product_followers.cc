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

bool goes_on(const FollowingNode& a, const FollowingNode& b) {
  for (size_t k = 0; k < kFollowerOperands; ++k)
    if (a.at[k] < 0 ? b.at[k] >= 0 : b.at[k] != a.at[k] + a.floats) return false;
  return true;
}

// All that is known of columns is known of the first two and the last one of each run.
MemoryRange access_of(const ColumnRuns& columns, const float* arena, int64_t rows, bool writes) {
  std::vector<int64_t> some;
  for (const ColumnRuns::Run& run : columns.runs())
    for (const int64_t c : {int64_t{0}, std::min<int64_t>(1, run.count - 1), run.count - 1})
      some.push_back(run.offset(0, c));
  return access_to(arena, static_cast<int64_t>(some.size()), rows, rows, writes,
                   [&](int64_t i) { return some[static_cast<size_t>(i)]; });
}

}  // namespace

void FollowingOp::add(const FollowingNode& node) {
  if (!nodes.empty() && goes_on(nodes.back(), node)) nodes.back().floats += node.floats;
  else nodes.push_back(node);
}

void ProductFollowers::clear() {
  written_.clear();
  added_.clear();
  last_ = {};
}

bool ProductFollowers::add(const FollowingOp& op, const std::vector<Command>& commands,
                           std::vector<WeightProduct>& noted) {
  last_.found.rest = 0;  // others may follow there by now
  if (!find_targets(op)) return false;
  for (const FollowedColumns& t : targets_)
    if (op.forward() ? !may_read(t, op, commands) : !may_add(t, commands)) return false;
  for (const FollowedColumns& t : targets_) follow(t, op, noted);
  return true;
}

// ---------------------------------------------------------------- products

int64_t ProductFollowers::rows_of(const FollowedColumns& t) const {
  return launches_.at(t.launch).launch.products[t.product].m;
}

// Finds the products that made an operand of the op: of each, all columns.
bool ProductFollowers::find_targets(const FollowingOp& op) {
  targets_.clear();
  int64_t rows = 0;
  for (const FollowingNode& node : op.nodes) {
    if (!find_first(op, node)) return false;
    const int64_t m = launches_.at(last_.launch).launch.products[last_.product].m;
    if ((rows && m != rows) || node.floats % m != 0) return false;
    rows = m;
    if (!find_columns(op, node, m)) return false;
  }
  return std::all_of(targets_.begin(), targets_.end(), [&](FollowedColumns& t) { return is_whole(t); });
}

// The columns of a node, the first of which was found last.
bool ProductFollowers::find_columns(const FollowingOp& op, const FollowingNode& node, int64_t rows) {
  const int64_t made = node.at[op.made_by_product(second_)], count = node.floats / rows;
  for (int64_t c = 0; c < count;) {
    if (c > 0 && !find(op, made + c * rows)) return false;
    if (launches_.at(last_.launch).launch.products[last_.product].m != rows) return false;
    FollowedRun run{last_.found.column, std::min(count - c, last_.found.count(rows)), node.at, {}};
    for (size_t k = 0; k < kFollowerOperands; ++k) {
      run.step[k] = node.at[k] < 0 ? 0 : rows;
      run.at[k] += c * run.step[k];
    }
    add_run(run);
    skip(run.count - 1);
    c += run.count;
  }
  return true;
}

// Of two operands the one that was made later, as it mostly is in all nodes.
bool ProductFollowers::find_first(const FollowingOp& op, const FollowingNode& node) {
  if (!op.forward()) return find(op, node.at[kDz]);
  if (node.at[kY] < 0) {
    second_ = false;
    return find(op, node.at[kX]);
  }
  if (!targets_.empty() && find(op, node.at[second_ ? kY : kX])) return true;
  const bool x_found = find(op, node.at[kX]);
  const ColumnPlace x = last_;
  second_ = find(op, node.at[kY]) && (!x_found || last_.launch > x.launch);
  if (second_ || !x_found) return second_;
  last_ = x;
  last_offset_ = node.at[kX];
  return true;
}

void ProductFollowers::add_run(const FollowedRun& run) {
  auto target = std::find_if(targets_.rbegin(), targets_.rend(), [&](const FollowedColumns& t) {
    return t.launch == last_.launch && t.product == last_.product;
  });
  if (target == targets_.rend()) {
    targets_.push_back({last_.launch, last_.product, {}});
    target = targets_.rbegin();
  }
  append(target->runs, run);
}

// Does the op follow each column of the product once? Puts the runs in order.
bool ProductFollowers::is_whole(FollowedColumns& t) const {
  const auto before = [](const FollowedRun& a, const FollowedRun& b) { return a.column < b.column; };
  if (!std::is_sorted(t.runs.begin(), t.runs.end(), before)) {
    std::sort(t.runs.begin(), t.runs.end(), before);
    std::vector<FollowedRun> joined;
    for (const FollowedRun& run : t.runs) append(joined, run);
    t.runs = std::move(joined);
  }
  int64_t next = 0;
  for (const FollowedRun& run : t.runs) {
    if (run.column != next) return false;
    next = run.end();
  }
  const ProductLaunch& launch = launches_.at(t.launch).launch;
  return next == launch.products[t.product].n && (launch.partial.empty() || !launch.partial[t.product]) &&
         launches_.followers(t.launch, t.product).size() < cuda::kMostFollowers;
}

// Sets last_. Backward the last product that adds to it. A value is mostly of the column after the one that
// was found last, else of its product, or of the next one.
bool ProductFollowers::find(const FollowingOp& op, int64_t offset) {
  if (last_.found.rest > 0 && last_.found.step > 0 && offset == last_offset_ + last_.found.step) {
    skip(1);
    return true;
  }
  size_t looked = 0;
  const auto look = [&](size_t launch, size_t product) {
    ++looked;
    const std::optional<FoundColumn> found = find_in(op, launch, product, offset);
    if (found) last_ = {launch, product, *found}, last_offset_ = offset;
    return found.has_value();
  };
  if (op.forward() && last_.launch < launches_.size()) {
    const size_t count = launches_.at(last_.launch).launch.products.size();
    for (size_t p = last_.product, end = std::min(count, p + 2); p < end; ++p)
      if (look(last_.launch, p)) return true;
  }
  for (size_t launch = launches_.size(); launch > 0 && looked < kRecentProducts; --launch)
    for (size_t p = 0; p < launches_.at(launch - 1).launch.products.size(); ++p)
      if (look(launch - 1, p)) return true;
  return false;
}

void ProductFollowers::skip(int64_t columns) {
  last_.found.column += columns;
  last_.found.rest -= columns;
  last_offset_ += columns * last_.found.step;
}

// Where several followers add to the same gradient, the last of them.
std::optional<FoundColumn> ProductFollowers::find_in(const FollowingOp& op, size_t launch, size_t product,
                                                     int64_t offset) const {
  const std::vector<ProductFollower>& followers = launches_.followers(launch, product);
  for (auto follower = followers.rbegin(); follower != followers.rend(); ++follower)
    if (const auto found = follower->made.find(offset)) return found;
  const ProductLaunch& of = launches_.at(launch).launch;
  const cuda::Product& p = of.products[product];
  if (!p.c.index) return column_at(offset, distance(op.arena(), p.c.base), p.n > 1 ? p.c.stride : p.m, p.n);
  const std::vector<int64_t>& added = of.added.columns;
  const auto found = std::lower_bound(added.begin(), added.end(), offset);
  if (found == added.end() || *found != offset) return {};
  int64_t rest = 0;  // those next to each other
  for (auto next = found + 1; next != added.end() && *next == *(next - 1) + p.m; ++next) ++rest;
  return FoundColumn{found - added.begin(), rest, p.m};
}

// ---------------------------------------------------------------- forward

// Is all that the op reads there when the launch begins, or made by the thread that reads it?
bool ProductFollowers::may_read(const FollowedColumns& t, const FollowingOp& op,
                                const std::vector<Command>& commands) const {
  size_t since = launches_.at(t.launch).command;  // commands since the last wait run at the same time
  while (since > 0 && !commands[since].needs_grid_sync) --since;
  for (const FollowedRun& run : t.runs)
    for (const FollowerOperand operand : {kX, kY})
      if (run.at[operand] >= 0 && !are_there(t, op, run, operand, since)) return false;
  return true;
}

bool ProductFollowers::are_there(const FollowedColumns& t, const FollowingOp& op, const FollowedRun& run,
                                 FollowerOperand operand, size_t since) const {
  const int64_t rows = rows_of(t), last = run.offset(operand, run.count - 1);
  for (int64_t c = 0; c < run.count;) {
    const int64_t at = run.offset(operand, c);
    if (const auto found = find_in(op, t.launch, t.product, at)) {
      if (found->column != run.column + c) return false;
      c += found->count(run.step[operand]);
      continue;
    }
    if (!is_written({std::min(at, last), std::max(at, last) + rows}, since)) return true;
    if (is_written({at, at + rows}, since)) return false;
    ++c;
  }
  return true;
}

// By commands from this one on?
bool ProductFollowers::is_written(ArenaRange read, size_t since) const {
  for (auto w = written_.rbegin(); w != written_.rend(); ++w) {
    if (w->command >= since && w->range.meets(read)) return true;
    if (w->command < since && !w->follows) break;
  }
  return false;
}

// ---------------------------------------------------------------- backward

// May the op add to gradients where the product does, and not after the commands that follow it?
bool ProductFollowers::may_add(const FollowedColumns& t, const std::vector<Command>& commands) const {
  const AddedColumns& own = launches_.at(t.launch).launch.added;
  if (own.columns.empty()) return false;
  const ColumnRuns to_columns = columns_of(t, kTo), dz_columns = columns_of(t, kDz);
  const ArenaRange to = to_columns.range(), dz = dz_columns.range();
  if (to.meets(own.range()) || to.meets(own.reads)) return false;
  for (const ProductFollower& f : launches_.followers(t.launch, t.product)) {
    if (f.made.range().meets(to) && !(f.made == to_columns)) return false;
    if (f.made.range().meets(dz) && !(f.made == dz_columns)) return false;
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

ColumnRuns ProductFollowers::columns_of(const FollowedColumns& t, FollowerOperand operand) const {
  std::vector<ColumnRuns::Run> runs;
  for (const FollowedRun& run : t.runs)
    append(runs, {run.column, run.count, {run.at[operand]}, {run.step[operand]}});
  return {std::move(runs), rows_of(t)};
}

cuda::Matrix<const float> ProductFollowers::matrix(const ColumnRuns& columns, const float* arena) {
  const std::vector<ColumnRuns::Run>& runs = columns.runs();
  if (runs.size() == 1) return {arena + runs[0].at[0], nullptr, runs[0].count > 1 ? runs[0].step[0] : 0};
  std::vector<int64_t> index;
  index.reserve(static_cast<size_t>(columns.count()));
  for (const ColumnRuns::Run& run : runs)
    for (int64_t c = 0; c < run.count; ++c) index.push_back(run.offset(0, c));
  return {arena, launches_.list().put(index), 0};
}

// Is the operand what the product, or its last follower, has just made?
bool ProductFollowers::are_carried(const FollowedColumns& t, const FollowingOp& op,
                                   const ColumnRuns& operand) const {
  const std::vector<ProductFollower>& followers = launches_.followers(t.launch, t.product);
  if (!followers.empty()) return followers.back().made == operand;
  for (const ColumnRuns::Run& run : operand.runs()) {
    for (int64_t c = 0; c < run.count;) {
      const auto found = find_in(op, t.launch, t.product, run.offset(0, c));
      if (!found) return false;
      c += found->count(run.step[0]);
    }
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
  const bool is_noted = note != noted.rend() && note->step == command;
  const int64_t rows = rows_of(t);
  const auto describe = [&](const ColumnRuns& columns, const float* arena, bool writes) {
    if (is_noted && arena == op.arena()) note->accesses.push_back(access_of(columns, arena, rows, writes));
    return matrix(columns, arena);
  };
  const auto read = [&](FollowerOperand operand, const float* arena, bool may_be_carried) {
    if (t.runs[0].at[operand] < 0) return cuda::Matrix<const float>{};
    const ColumnRuns columns = columns_of(t, operand);
    cuda::Matrix<const float> m = describe(columns, arena, false);
    if (may_be_carried && are_carried(t, op, columns)) m = {};
    return m;
  };
  f.x = read(kX, op.values, op.forward());
  f.y = read(kY, op.values, op.forward());
  f.z = read(kZ, op.values, false);
  f.dz = read(kDz, op.gradients, true);
  all.made = columns_of(t, kTo);
  const cuda::Matrix<const float> to = describe(all.made, op.arena(), true);
  f.to = {const_cast<float*>(to.base), to.index, to.stride};
  const ArenaRange results = all.made.range();
  launches_.follow(t.launch, t.product, std::move(all));
  if (op.forward()) return written_.push_back({results, command, true});
  launches_.touch(t.launch, results);
  launches_.touch(t.launch, columns_of(t, kDz).range());
}

}  // namespace dyc
