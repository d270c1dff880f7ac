#include "exec/launch_reader.h"

#include <algorithm>
#include <utility>

namespace dyc {

void LaunchReader::check(const Launch& l) const {
  const OpInfo& info = op_info(l.op);
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const Graph::Ids ids = graph_.ids(it.id);
    KernelArgs m{};
    m.xd = it.sig->x.data();
    m.yd = it.sig->y;
    m.n = it.sig->n_args;
    m.attrs = it.sig->attrs.data();
    m.ids = ids.data;
    m.n_ids = ids.n;
    info.check(m, info.meta->name);
  }
}

void LaunchReader::check_rows(const Storage& storage, const Graph::Ids& ids) {
  for (uint32_t j = 0; j < ids.n; ++j)
    if (ids.data[j] >= storage.rows)
      throw ValueError(
          text("lookup(): expected index < ", storage.rows, ", got ", ids.data[j], " in ", storage.name));
}

uint64_t LaunchReader::operand_bytes(const Launch& l) const {
  uint64_t floats = 0;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i)
    for (const Dim* d : item(l, i).sig->x) floats += d->size();
  return 4 * floats * (l.uniform ? l.count : 1);
}

// Other nodes are left out rather than run with a zero gradient: 0 times an infinite derivative would be NaN.
Launch LaunchReader::live_part(std::span<const uint32_t> launches, const std::vector<uint8_t>& live,
                               const std::vector<uint32_t>& live_nodes) {
  Launch part = plan_.launches[launches.front()];
  part.uniform = false;
  part.nodes = static_cast<uint32_t>(plan_.nodes.size());
  part.out_index = static_cast<uint32_t>(plan_.index.size());
  kept_.clear();
  part.total = 0;
  for (const uint32_t number : launches) {
    const Launch& l = plan_.launches[number];
    for (uint32_t i = 0; i < l.count; ++i) {
      const Item it = item(l, i);
      if (live_nodes[number] < l.count && !live[it.id]) continue;
      kept_.push_back({number, i});
      part.total += it.sig->size;
      plan_.nodes.push_back(it.id);
      plan_.index.push_back(it.out);
    }
  }
  part.count = static_cast<uint32_t>(kept_.size());
  part.sig = graph_.node(plan_.nodes[part.nodes]).sig;
  const uint32_t operands = std::exchange(part.operands, static_cast<uint32_t>(plan_.operands.size()));
  if (!part.fixed_arity) {
    add_arguments(part, operands);
    return part;
  }
  for (uint32_t k = 0; k < part.n_operands; ++k) {
    Operand o = plan_.operands[operands + k];
    if (o.kind != Operand::weight && (o.kind != Operand::shared || launches.size() > 1)) {
      o.kind = Operand::indexed;
      o.index = static_cast<uint32_t>(plan_.index.size());
      for (const Kept& node : kept_) {
        const Launch& l = plan_.launches[node.launch];
        const int64_t at = argument(l, plan_.operands[l.operands + k], node.number);
        plan_.index.push_back(at);
      }
    }
    plan_.operands.push_back(o);
  }
  return part;
}

// The arguments of the kept nodes, whose number differs; `operands`: of one of their launches.
void LaunchReader::add_arguments(Launch& part, uint32_t operands) {
  Operand o = plan_.operands[operands];
  std::vector<int64_t> offsets;
  part.arg_begin = static_cast<uint32_t>(plan_.starts.size());
  for (const Kept& node : kept_) {
    const Launch& l = plan_.launches[node.launch];
    const auto places = plan_.index.begin() + plan_.operands[l.operands].index;
    const uint32_t first = plan_.starts[l.arg_begin + node.number];
    const uint32_t end = plan_.starts[l.arg_begin + node.number + 1];
    plan_.starts.push_back(static_cast<uint32_t>(offsets.size()));
    offsets.insert(offsets.end(), places + first, places + end);
  }
  plan_.starts.push_back(static_cast<uint32_t>(offsets.size()));
  o.index = static_cast<uint32_t>(plan_.index.size());
  plan_.index.insert(plan_.index.end(), offsets.begin(), offsets.end());
  plan_.operands.push_back(o);
}

namespace {

// True if nodes that each add to `a` and `b` never add to the same memory as another node.
bool are_disjoint(const Operand& a, int64_t size_a, const Operand& b, int64_t size_b, int64_t count) {
  if (a.base == b.base && a.stride == b.stride) return true;  // one node's own memory
  const Operand &low = a.base < b.base ? a : b, &high = a.base < b.base ? b : a;
  const int64_t size_low = a.base < b.base ? size_a : size_b, size_high = a.base < b.base ? size_b : size_a;
  if (low.stride == high.stride && low.stride > 0) {  // interleaved, as parts of one result
    const int64_t gap = high.base - low.base;
    if (gap >= size_low && gap + size_high <= low.stride) return true;
  }
  if (low.stride < 0 || high.stride < 0) return false;
  return low.base + (count - 1) * low.stride + size_low <= high.base;
}

}  // namespace

bool LaunchReader::distinct(const Launch& l) const {
  if (!l.fixed_arity || !l.uniform) return false;
  const Sig& sig = graph_.sig_number(l.sig);
  for (uint32_t k = 0; k < l.n_operands; ++k) {
    if (!wanted(l, k)) continue;
    const Operand& o = plan_.operands[l.operands + k];
    const int64_t size = static_cast<int64_t>(sig.x[k]->size());
    if (o.kind != Operand::contiguous &&
        !(o.kind == Operand::strided && (o.stride >= size || o.stride <= -size)))
      return false;
    for (uint32_t j = 0; j < k; ++j)
      if (wanted(l, j) && !are_disjoint(plan_.operands[l.operands + j], sig.x[j]->size(), o, size, l.count))
        return false;
  }
  return true;
}

LaunchReader::Columns LaunchReader::columns(const Launch& l, const Operand& o, uint32_t k,
                                            std::vector<int64_t>& memory) const {
  const Sig& first = graph_.sig_number(l.sig);
  const int64_t rows = first.x[k]->rows();
  Columns c;
  c.base = o.base;
  c.stride = rows;
  if (o.kind == Operand::contiguous) {
    c.count = 0;
    if (l.uniform) c.count = int64_t{l.count} * first.x[k]->size() / rows;
    else
      for (uint32_t i = 0; i < l.count; ++i) c.count += item(l, i).sig->x[k]->size() / rows;
    return c;
  }
  bool single = true;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i)
    single = single && item(l, i).sig->x[k]->size() == size_t(rows);
  if (single) {
    c.count = l.count;
    c.stride = o.kind == Operand::strided ? o.stride : 0;
    if (o.kind == Operand::indexed) {
      c.index = plan_.index.data() + o.index;
      c.base = 0;
    }
    return c;
  }
  memory.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    const int64_t at = argument(l, o, i), n = it.sig->x[k]->size() / rows;
    for (int64_t j = 0; j < n; ++j) memory.push_back(at + j * rows);
  }
  c.base = 0;
  c.index = memory.data();
  c.count = static_cast<int64_t>(memory.size());
  return c;
}

// Also of launches restricted to their live nodes.
LaunchReader::Columns LaunchReader::result_columns(const Launch& l, std::vector<int64_t>& memory) const {
  const int64_t m = graph_.sig_number(l.sig).y->rows();
  if (l.uniform && !l.out_index) return {l.out, m, nullptr, l.total / m};
  memory.clear();
  for (uint32_t i = 0; i < l.count; ++i) {
    const Item it = item(l, i);
    for (uint32_t c = 0; c < it.sig->size / m; ++c) memory.push_back(it.out + c * m);
  }
  return {0, 0, memory.data(), static_cast<int64_t>(memory.size())};
}

void LaunchReader::add_to_storage(const ParameterUse& use) const {
  Storage& storage = *use.storage;
  bool unset = false;
  float* to = storage.grad(&unset);
  const float* from = grads() + use.gradient;
  const size_t n = storage.size();
  for_copies(n, static_cast<int64_t>(n), [&](size_t begin, size_t end) {
    if (unset) return store_sums(to + begin, from + begin, end - begin);
    for (size_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

// In their order. Threads share the elements of each row, as rows may repeat.
void LaunchReader::add_to_storage(std::span<const RowGradient> rows) {
  row_sums_.clear();
  size_t widest = 0, floats = 0;
  for (const RowGradient& r : rows) {
    bool unset = false;
    float* to = r.storage->grad_row(r.row, r.from < 0 ? nullptr : &unset);
    if (r.single) r.storage->count_single_rows();
    if (r.from < 0) continue;
    const size_t size = r.storage->row_size();
    row_sums_.push_back({to, grads() + r.from, size, unset});
    widest = std::max(widest, size);
    floats += size;
  }
  for_copies(widest, static_cast<int64_t>(widest < tuning::kSharedRow ? 0 : floats),
             [&](size_t begin, size_t end) {
               for (const RowSum& r : row_sums_) {
                 const size_t last = std::min(end, r.size);
                 if (r.unset && begin < last) store_sums(r.to + begin, r.from + begin, last - begin);
                 else
                   for (size_t i = begin; i < last; ++i) r.to[i] += r.from[i];
               }
             });
}

}  // namespace dyc
