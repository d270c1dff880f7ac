// Running the engine from Python: other threads go on while kernels run.
#pragma once
#include "bindings/expression.h"

namespace dyc::py {

// While one exists, the interpreter lock is released and the engine belongs to this thread; other
// threads that touch the graph wait in engine().
class Computing {
 public:
  Computing();
  ~Computing();
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;
  Engine& engine() const { return engine_; }

 private:
  Engine& engine_;
  PyThreadState* state_;
};

const float* compute_value(NodeId id, bool recalculate);
void compute_forward(NodeId id, bool recalculate);
// Expression for a node recorded just now; computes it in immediate mode.
PyObject* recorded(NodeId id, PyTypeObject* type = &ExpressionType);

}  // namespace dyc::py
