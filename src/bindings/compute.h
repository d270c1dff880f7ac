// Running the engine from Python: other threads go on while kernels run.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

// While one exists, the engine belongs to this thread. If there is much to do the interpreter lock is
// released; other threads that touch the graph then wait in engine().
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
  Engine& engine() const { return engine_; }

 private:
  Engine& engine_;
  PyThreadState* state_ = nullptr;
};

const float* compute_value(NodeId id, bool recalculate);
void compute_forward(NodeId id, bool recalculate);
// Expression for a node recorded just now; computes it in immediate mode.
PyObject* recorded(NodeId id, PyTypeObject* type = &ExpressionType);

}  // namespace dyc::py
