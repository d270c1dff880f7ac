#include "exec/cuda/persistent_kernels.h"

#include <algorithm>
#include <iostream>

#include "base/error.h"
#include "cuda/abi/persistent.h"
#include "exec/cuda/tuning.h"
#include "ops/table.h"

namespace dyc {

namespace {

bool contains(const PersistentKernels::Ids& all, const PersistentKernels::Ids& some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

}  // namespace

void PersistentKernels::Kernel::require(uint32_t kernel_id) const {
  if (!std::binary_search(kernel_ids.begin(), kernel_ids.end(), kernel_id))
    throw RuntimeError(text("internal error: a kernel of many launches lacks the body ", kernel_id));
}

bool PersistentKernels::can_run(uint32_t kernel_id) {
  if (kernel_id >= kOps * cuda::kPasses) return kernel_id - kOps * cuda::kPasses <= cuda::kLastPersistent;
  return op_info(static_cast<OpId>(kernel_id / cuda::kPasses)).meta->kind != OpKind::custom;
}

PersistentKernels::Kernel* PersistentKernels::find(const Ids& kernel_ids) {
  for (Kernel& k : kernels_)
    if (contains(k.kernel_ids, kernel_ids)) return &k;
  return nullptr;
}

bool PersistentKernels::is_possible(const Ids& kernel_ids) {
  if (find(kernel_ids)) return true;
  // Which step is at fault is unknown, so no subset or superset of these steps is compiled, either.
  if (unsupported_.size() >= kPersistentFailures || (kind_.cooperative && !backend_.limits().cooperative))
    return false;
  return std::none_of(unsupported_.begin(), unsupported_.end(),
                      [&](const Ids& u) { return contains(u, kernel_ids) || contains(kernel_ids, u); });
}

bool PersistentKernels::is_wanted(const Ids& kernel_ids) {
  if (find(kernel_ids)) return true;
  if (!is_possible(kernel_ids)) return false;
  auto request = std::find_if(requests_.begin(), requests_.end(),
                              [&](const Request& r) { return r.kernel_ids == kernel_ids; });
  if (request == requests_.end()) {
    if (requests_.size() == kCompileRequests) requests_.clear();
    request = requests_.insert(requests_.end(), {kernel_ids, 0});
  }
  const uint32_t after = emulated() ? 1 : kPersistentRequests;
  return ++request->count >= (options_.persistent_after ? options_.persistent_after : after);
}

void PersistentKernels::prepare(const std::vector<Ids>& sets) {
  Ids all;  // one kernel for all these sets, for those requested and for the last kernel's
  const auto add = [&all](const Ids& kernel_ids) {
    all.insert(all.end(), kernel_ids.begin(), kernel_ids.end());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
  };
  for (const Ids& set : sets)
    if (!find(set)) add(set);
  if (all.empty()) return;
  const auto add_if_few = [&](const Ids& kernel_ids) {
    if (all.size() + kernel_ids.size() <= kPersistentKernelIds) add(kernel_ids);
  };
  for (const Request& r : requests_) add_if_few(r.kernel_ids);
  if (!kernels_.empty()) add_if_few(kernels_.back().kernel_ids);
  if (!options_.persistent_after) {
    if (compiling_.empty()) compiling_ = all;
    if (!backend_.is_ready(name_of(compiling_))) return;
    all.swap(compiling_);  // what was asked for since is compiled next
    compiling_.clear();
  }
  std::erase_if(requests_, [&](const Request& r) { return contains(all, r.kernel_ids); });
  try {
    compile(all);
  } catch (const Error& e) {
    if (backend_.lost()) throw;
    mark_unsupported(all, e.what());
  }
}

cuda::KernelName PersistentKernels::name_of(const Ids& kernel_ids) const {
  std::string list;
  if (!emulated())
    for (const uint32_t id : kernel_ids) list += (list.empty() ? "" : ", ") + std::to_string(id);
  return {"persistent", kind_.name + ("<" + list) + ">"};
}

void PersistentKernels::compile(const Ids& kernel_ids) {
  const cuda::Backend::Kernel kernel = backend_.kernel(name_of(kernel_ids));
  const uint32_t blocks = backend_.active_blocks(kernel, threads_, 0);
  if (blocks == 0) throw RuntimeError("no block of it fits on the device");
  kernels_.push_back({kernel_ids, kernel, blocks});
}

bool PersistentKernels::fits(Kernel& kernel, uint32_t blocks, size_t shared_bytes) {
  for (const auto& [bytes, most] : kernel.with_memory)
    if (bytes == shared_bytes) return most >= blocks;
  try {
    const uint32_t most =
        backend_.active_blocks(kernel.kernel, threads_, static_cast<uint32_t>(shared_bytes));
    if (kernel.with_memory.size() == kOccupancyAnswers) kernel.with_memory.clear();
    kernel.with_memory.emplace_back(shared_bytes, most);
    return most >= blocks;
  } catch (const Error&) {  // less shared memory than the device reported
    if (backend_.lost()) throw;
    return false;
  }
}

void PersistentKernels::mark_unsupported(const Ids& kernel_ids, const std::string& why) {
  unsupported_.push_back(kernel_ids);
  for (const Kernel& k : kernels_)
    if (contains(k.kernel_ids, kernel_ids)) unsupported_.back() = k.kernel_ids;
  std::erase_if(kernels_, [&](const Kernel& k) { return contains(k.kernel_ids, kernel_ids); });
  if (unsupported_.size() == 1)
    std::cerr << text("[dynet] WARNING: ", kind_.what, " do not work here, launches run one by one: ", why,
                      "\n");
}

}  // namespace dyc
