// What the parts of CudaExecutor share.
#pragma once

#include "cuda/abi/operands.h"
#include "exec/cuda/arena_mirror.h"
#include "exec/cuda/command_list.h"
#include "exec/cuda/launch_strategy.h"
#include "exec/executor.h"

namespace dyc {

using ValueOperand = cuda::DeviceOperand<const float>;
using GradientOperand = cuda::DeviceOperand<float>;

struct CudaContext {
  LaunchReader& launches;
  CudaDevice& device;
  CommandList& commands;
  ArenaMirror& arenas;
  Counters& counters;
  // Does the next launch wait for those before it? Set for each launch; a copy that is launched for its
  // operands sets it, too.
  bool needs_grid_sync = true;
  Link link = {};  // of the launches that it is made of

  Graph& graph() const { return launches.graph(); }
  Plan& plan() const { return launches.plan(); }
  float* values() const { return arenas.values(); }
  float* gradients() const { return arenas.gradients(); }
  const LaunchStrategy& strategy() const { return launch_strategy(device.options); }
};

}  // namespace dyc
