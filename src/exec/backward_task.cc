#include "exec/backward_task.h"

#include <utility>

#include "exec/engine.h"

namespace dyc {

void BackwardTask::run() {
  const int64_t start = profile_clock();
  failed = true;
  executor->backward(root, *live, *live_nodes);
  failed = false;
  seconds += 1e-9 * static_cast<double>(profile_clock() - start);
}

void BackwardTask::exchange(Engine& engine) {
  engine.graph.lend_nodes(graph);
  std::swap(engine.planner.plan, plan);
  engine.executor.exchange(*executor);
}

void BackwardTask::clear() {
  graph.drop_nodes();
  plan.clear();
  executor->cut_back(0);
}

}  // namespace dyc
