#include "exec/cuda/parameter_sync.h"

#include <unordered_map>

#include "base/error.h"
#include "cuda/abi/lookup.h"
#include "exec/cuda/parameters.h"

namespace dyc {

const float* ParameterSync::weight(const Operand& o) {
  if (o.base >= 0) return c_.values() + o.base;
  return values(c_.graph().parameter_use(o.node));
}

const float* ParameterSync::values(ParameterUse& use) {
  c_.graph().parameters.pin(use);
  const std::shared_ptr<Storage>& storage = c_.graph().parameters.shared_storage(use.storage->uid);
  const float* const raw = c_.device.parameters().values(storage, use.pinned, use.version);
  return use.factor == 1.f ? raw : scaled(storage, use, raw);
}

// By weight decay: the lookup of one row that is the whole parameter.
const float* ParameterSync::scaled(const std::shared_ptr<Storage>& storage, const ParameterUse& use,
                                   const float* raw) {
  const auto [copy, made] = c_.device.parameters().scaled(storage, use.version, use.factor);
  if (!made) return copy;
  c_.needs_grid_sync = true;  // the launch that reads the copy
  scaled_.push_back(storage->uid);
  const int64_t size = static_cast<int64_t>(storage->size());
  const cuda::LookupArgs table{raw, use.factor, size};
  const uint32_t first = 0;
  cuda::LaunchArgs args;
  args.count = 1;
  args.y = copy;
  args.results = {1, size, nullptr, size, size, cuda::divisor(size)};
  args.ids = c_.commands.put(&first, 1);
  args.extra = c_.commands.put(&table, 1);
  c_.commands.launch(CudaDevice::kernel_id(cuda::kLookupForward), args, size);
  c_.commands.note_weights(copy);
  return copy;
}

void ParameterSync::discarded() {
  for (const uint32_t uid : scaled_) c_.device.parameters().drop_scaled(uid);
  scaled_.clear();
}

int64_t ParameterSync::gradient_of_weight(const Operand& o) {
  if (o.base >= 0) return o.base;
  const ParameterUse& use = c_.graph().parameter_use(o.node);
  mark_reached(use);
  return use.gradient;
}

void ParameterSync::forget_unreached() {
  for (ParameterUse& use : c_.graph().parameters.all())
    if (!reached_[number_of(use)] && c_.graph().offset_of(use.node) < 0) use.gradient = -1;
}

void ParameterSync::accumulate(const std::vector<RowGradient>& rows) {
  PendingGradients host;
  {
    const auto lock = c_.device.lock();
    PendingGradients device;
    try {
      // First, as a compiler may release the interpreter lock.
      c_.device.prepare({CudaDevice::kernel_id(cuda::kAddFew), CudaDevice::kernel_id(cuda::kAddMany)});
      split_by_side(rows, device, host);
      accumulate_on_device(device);
    } catch (const MemoryError&) {  // the host has memory
      c_.commands.discard();
      host.uses.insert(host.uses.end(), device.uses.begin(), device.uses.end());
      host.rows.insert(host.rows.end(), device.rows.begin(), device.rows.end());
    } catch (...) {
      c_.commands.discard();
      c_.device.rethrow();
    }
  }
  if (!host.empty()) accumulate_on_host(host);
}

void ParameterSync::split_by_side(const std::vector<RowGradient>& rows, PendingGradients& device,
                                  PendingGradients& host) {
  // A table's gradient by rows that now becomes one of all rows is converted on the host.
  std::vector<const Storage*> host_only;
  const auto stays = [&](const Storage& s) {
    return c_.device.parameters().on_host() || !s.device_may_add_grad() ||
           std::find(host_only.begin(), host_only.end(), &s) != host_only.end();
  };
  for (const ParameterUse& use : c_.graph().parameters.all()) {
    if (!c_.launches.has_gradient(use)) continue;
    const Storage& s = *use.storage;
    if (s.has_grad() && !s.dense_grad()) host_only.push_back(&s);
    (stays(s) ? host : device).uses.push_back(&use);
  }
  for (const RowGradient& row : rows) (stays(*row.storage) ? host : device).rows.push_back(row);
}

// Storages are informed when nothing can fail any more. What is done leaves the list.
void ParameterSync::accumulate_on_device(PendingGradients& pending) {
  const auto is_table = [](const ParameterUse* use) { return use->storage->is_lookup(); };
  const bool tables = std::any_of(pending.uses.begin(), pending.uses.end(), is_table);
  const auto finish = [&] {
    c_.commands.submit();
    for (const ParameterUse* use : pending.uses) use->storage->grad_added_on_device(c_.device.parameters());
    pending.uses.clear();
  };
  add_whole(pending);
  if (tables) finish();  // where rows are stored depends on it
  const std::vector<TableRows> rows = rows_by_table(pending);
  add_rows(rows);
  finish();
  for (const TableRows& r : rows) {
    r.table->rows_added_on_device(c_.device.parameters(), r.rows);
    if (r.single) r.table->count_single_rows();
  }
}

void ParameterSync::add_whole(const PendingGradients& pending) {
  SegmentList list;
  for (const ParameterUse* use : pending.uses) {
    bool fresh = false;
    const float* const to = c_.device.parameters().memory_for_grad(
        c_.graph().parameters.shared_storage(use->storage->uid), fresh);
    list.begin(reducer_.offset_of(to), static_cast<int64_t>(use->storage->size()));
    list.fresh.push_back(fresh);
    list.sources.push_back(use->gradient);
  }
  reducer_.launch(list);
}

std::vector<ParameterSync::TableRows> ParameterSync::rows_by_table(const PendingGradients& pending) {
  std::vector<TableRows> tables;
  std::unordered_map<const Storage*, size_t> number;
  for (const RowGradient& r : pending.rows) {
    const auto [found, fresh] = number.emplace(r.storage, tables.size());
    if (fresh) tables.push_back({r.storage, {}, {}, false});
    TableRows& table = tables[found->second];
    table.rows.push_back(r.row);
    table.from.push_back(r.from);
    table.single |= r.single;
  }
  return tables;
}

// Each row once, with all that is added to it in order.
void ParameterSync::add_rows(const std::vector<TableRows>& tables) {
  struct Sum {
    CudaParameters::RowMemory memory;
    int64_t size;
    std::vector<int64_t> sources;
  };
  std::vector<Sum> sums;
  std::unordered_map<const float*, size_t> number;
  for (const TableRows& t : tables) {
    const auto memory =
        c_.device.parameters().memory_for_rows(c_.graph().parameters.shared_storage(t.table->uid), t.rows);
    for (size_t i = 0; i < memory.size(); ++i) {
      if (t.from[i] < 0 && !memory[i].fresh) continue;
      const auto [found, first] = number.emplace(memory[i].at, sums.size());
      if (first) sums.push_back({memory[i], static_cast<int64_t>(t.table->row_size()), {}});
      if (t.from[i] >= 0) sums[found->second].sources.push_back(t.from[i]);
    }
  }
  SegmentList list;
  for (const Sum& sum : sums) {
    list.begin(reducer_.offset_of(sum.memory.at), sum.size);
    list.fresh.push_back(sum.memory.fresh);
    list.sources.insert(list.sources.end(), sum.sources.begin(), sum.sources.end());
  }
  reducer_.launch(list);
}

void ParameterSync::accumulate_on_host(const PendingGradients& pending) {
  std::vector<ArenaRange> ranges;
  for (const ParameterUse* use : pending.uses)
    ranges.push_back({use->gradient, use->gradient + static_cast<int64_t>(use->storage->size())});
  for (const RowGradient& r : pending.rows)
    if (r.from >= 0) ranges.push_back({r.from, r.from + static_cast<int64_t>(r.storage->row_size())});
  c_.arenas.fetch_gradients(std::move(ranges));
  for (const ParameterUse* use : pending.uses) c_.launches.add_to_storage(*use);
  c_.launches.add_to_storage(pending.rows);
}

}  // namespace dyc
