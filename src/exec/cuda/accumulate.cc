// Gradients of parameters: what a backward pass found is added to what is there, on the device.
#include <algorithm>
#include <unordered_map>

#include "exec/cuda/cuda_executor.h"
#include "exec/cuda/parameters.h"

namespace dyc {

void CudaExecutor::accumulate() {
  PendingGradients here;
  {
    const auto lock = device_.lock();
    PendingGradients there;
    try {
      // First, as a compiler may let go of the interpreter lock.
      device_.prepare({CudaDevice::kernel_id(cuda::kAddFew), CudaDevice::kernel_id(cuda::kAddMany)});
      split_by_side(there, here);
      accumulate_on_device(there);
    } catch (const MemoryError&) {  // the host has room
      forget();
      here.uses.insert(here.uses.end(), there.uses.begin(), there.uses.end());
      here.rows.insert(here.rows.end(), there.rows.begin(), there.rows.end());
    } catch (...) {
      forget();
      device_.rethrow();
    }
  }
  if (!here.empty()) accumulate_on_host(here);
  rows_.clear();
}

void CudaExecutor::split_by_side(PendingGradients& there, PendingGradients& here) {
  // A table's gradient by rows that now becomes one of all rows is the host's to convert.
  std::vector<const Storage*> host_only;
  const auto stays = [&](const Storage& s) {
    return device_.parameters().on_host() || !s.device_may_add_grad() ||
           std::find(host_only.begin(), host_only.end(), &s) != host_only.end();
  };
  for (const ParameterUse& use : graph_.parameters()) {
    if (!accumulates(use)) continue;
    const Storage& s = *use.storage;
    if (s.has_grad() && !s.dense_grad()) host_only.push_back(&s);
    (stays(s) ? here : there).uses.push_back(&use);
  }
  for (const RowGradient& row : rows_) (stays(*row.storage) ? here : there).rows.push_back(row);
}

// Storages are told when nothing can fail any more. What is done leaves the list.
void CudaExecutor::accumulate_on_device(PendingGradients& delivery) {
  const auto is_table = [](const ParameterUse* use) { return use->storage->is_lookup(); };
  const bool tables = std::any_of(delivery.uses.begin(), delivery.uses.end(), is_table);
  const auto finish = [&] {
    submit();
    for (const ParameterUse* use : delivery.uses) use->storage->grad_added_on_device(device_.parameters());
    delivery.uses.clear();
  };
  launch_whole(delivery);
  if (tables) finish();  // where rows go depends on it
  const std::vector<TableRows> rows = rows_by_table(delivery);
  launch_rows(rows);
  finish();
  for (const TableRows& r : rows) r.table->rows_added_on_device(device_.parameters(), r.rows);
}

void CudaExecutor::launch_whole(const PendingGradients& delivery) {
  SegmentList list;
  for (const ParameterUse* use : delivery.uses) {
    bool fresh = false;
    const float* const to =
        device_.parameters().memory_for_grad(graph_.shared_storage(use->storage->uid), fresh);
    list.begin(offset_of(to), static_cast<int64_t>(use->storage->size()));
    list.fresh.push_back(fresh);
    list.sources.push_back(use->gradient);
  }
  launch_segments(list);
}

std::vector<CudaExecutor::TableRows> CudaExecutor::rows_by_table(const PendingGradients& delivery) const {
  std::vector<TableRows> tables;
  std::unordered_map<const Storage*, size_t> number;
  for (const RowGradient& r : delivery.rows) {
    const auto [found, fresh] = number.emplace(r.storage, tables.size());
    if (fresh) tables.push_back({r.storage, {}, {}});
    tables[found->second].rows.push_back(r.row);
    tables[found->second].from.push_back(r.from);
  }
  return tables;
}

// Each row once, with all that is added to it in order.
void CudaExecutor::launch_rows(const std::vector<TableRows>& tables) {
  struct Sum {
    CudaParameters::RowMemory room;
    int64_t size;
    std::vector<int64_t> sources;
  };
  std::vector<Sum> sums;
  std::unordered_map<const float*, size_t> number;
  for (const TableRows& t : tables) {
    const auto rooms = device_.parameters().memory_for_rows(graph_.shared_storage(t.table->uid), t.rows);
    for (size_t i = 0; i < rooms.size(); ++i) {
      if (t.from[i] < 0 && !rooms[i].fresh) continue;
      const auto [found, first] = number.emplace(rooms[i].at, sums.size());
      if (first) sums.push_back({rooms[i], static_cast<int64_t>(t.table->row_size()), {}});
      if (t.from[i] >= 0) sums[found->second].sources.push_back(t.from[i]);
    }
  }
  SegmentList list;
  for (const Sum& sum : sums) {
    list.begin(offset_of(sum.room.at), sum.size);
    list.fresh.push_back(sum.room.fresh);
    list.sources.insert(list.sources.end(), sum.sources.begin(), sum.sources.end());
  }
  launch_segments(list);
}

// By the host: what was found comes down, and what is there where the device has it.
void CudaExecutor::accumulate_on_host(const PendingGradients& delivery) {
  {
    const auto lock = device_.lock();
    std::vector<ArenaRange> spans;
    for (const ParameterUse* use : delivery.uses)
      spans.push_back({use->gradient, use->gradient + static_cast<int64_t>(use->storage->size())});
    for (const RowGradient& r : delivery.rows)
      if (r.from >= 0) spans.push_back({r.from, r.from + static_cast<int64_t>(r.storage->row_size())});
    try {
      download_gradients(spans);
    } catch (...) {
      device_.rethrow();
    }
  }
  for (const ParameterUse* use : delivery.uses) add_to_storage(*use);
  for (const RowGradient& r : delivery.rows) add_to_storage(r);
}

}  // namespace dyc
