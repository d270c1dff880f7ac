#include "exec/cuda/chain_pass.h"

#include <algorithm>

#include "exec/cuda/command_list.h"

namespace dyc {

namespace {

// End of the chain that begins with this command.
const Command* chain_end(const Command* begin, const Command* end) {
  const Command* next = begin + 1;
  while (begin->link.chain && next < end && next->link.chain == begin->link.chain) ++next;
  return next;
}

}  // namespace

std::vector<Command> ChainPass::joined(std::vector<Command> commands) {
  clear();
  if (!find_kernel(commands)) return commands;
  std::vector<Command> joined;
  const Command *at = commands.data(), *const end = at + commands.size();
  while (at < end) {
    const Command* const next = chain_end(at, end);
    joined.push_back(next - at > 1 ? chain_of(at, next) : *at);
    at = next;
  }
  return joined;
}

bool ChainPass::find_kernel(const std::vector<Command>& commands) {
  PersistentKernels& kernels = device_.chain_kernels();
  PersistentKernels::Ids ids;
  const Command *at = commands.data(), *const end = at + commands.size();
  for (const Command* next = at; at < end; at = next) {
    next = chain_end(at, end);
    if (next - at == 1) continue;
    for (const Command* c = at; c < next; ++c) ids.push_back(c->kernel_id);
  }
  if (ids.empty()) return false;
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  if (kernels.is_wanted(ids)) kernels.prepare({ids});
  kernel_ = kernels.find(ids);
  to_come_ = !kernel_ && kernels.is_possible(ids);
  return kernel_;
}

Command ChainPass::chain_of(const Command* begin, const Command* end) {
  Command chain{Command::kChain, 1, false, nullptr, nullptr, 0};
  std::vector<cuda::PersistentStep> steps;
  for (const Command* c = begin; c < end; ++c) {
    chain.blocks = std::max(chain.blocks, c->blocks);
    chain.needs_grid_sync = chain.needs_grid_sync || c->needs_grid_sync;
    kernel_->require(c->kernel_id);
    steps.push_back({c->kernel_id, false, static_cast<const cuda::LaunchArgs*>(c->args)});
    links_.push_back(c->link);
  }
  ++chains_;
  if (begin->link.instances) chain.blocks = std::min(chain.blocks, begin->link.instances);
  cuda::PersistentArgs all{};
  all.steps = list_.put(steps);
  all.count = static_cast<uint32_t>(steps.size());
  cuda::LaunchArgs args;
  args.count = all.count;
  args.extra = list_.put(&all, 1);
  chain.args = list_.put(&args, 1);
  return chain;
}

// The arguments serve as well if each step is launched by itself.
void ChainPass::use() {
  for (const Link& link : links_) {
    link.args->instances = link.instances;
    link.args->period = link.period;
  }
  device_.backend().counters.links += links_.size() - chains_;
}

cuda::Backend::Operation ChainPass::operation(const Command& chain) const {
  return {cuda::Backend::Operation::launching,
          kernel_->kernel,
          {chain.blocks, device_.threads()},
          reinterpret_cast<cuda::Backend::Address>(chain.args),
          0,
          0};
}

void ChainPass::clear() {
  links_.clear();
  chains_ = 0;
  to_come_ = false;
}

}  // namespace dyc
