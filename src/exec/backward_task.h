// A backward pass in a thread of its own, while the script records its next graph. It has the nodes, the
// values and the plan of the graph that the script has left; the engine keeps what it has learned of the
// script (sites, signatures, orders of launches), so that the next plan is the same as it would be without
// this thread.
#pragma once
#include <memory>
#include <vector>

#include "exec/executor.h"
#include "plan/launch.h"

namespace dyc {

class Engine;

struct BackwardTask {
  BackwardTask() : executor(make_executor(graph, plan)) {}
  BackwardTask(const BackwardTask&) = delete;
  BackwardTask& operator=(const BackwardTask&) = delete;

  void run();
  // Nodes, values and plan of the engine's graph against those here.
  void exchange(Engine& engine);
  // The graph is not needed any more.
  void clear();

  Graph graph;
  Plan plan;
  const std::unique_ptr<Executor> executor;
  // See Executor::backward(); the engine's, which leaves them alone meanwhile.
  NodeId root = kNone;
  const std::vector<uint8_t>* live = nullptr;
  const std::vector<uint32_t>* live_nodes = nullptr;
  bool failed = false;
  double seconds = 0;
};

}  // namespace dyc
