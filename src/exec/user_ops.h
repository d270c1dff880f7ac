// Calls the functions of a script that are ops (bindings/user_ops.cc), for the executors of all devices.
#pragma once
#include <memory>
#include <vector>

#include "graph/signature.h"

namespace dyc {

// One node. Addresses are those of the device that computes.
struct UserNode {
  const Sig* sig;
  std::vector<const float*> x;
  float* y;                // written by forward
  const float* dy;         // null: forward
  std::vector<float*> dx;  // added to by backward; null where no gradient is wanted
  // Memory of the values and gradients, for views that outlive the call; null on the CPU, which gives copies.
  std::shared_ptr<const void> values = {}, gradients = {};
};

using UserFunction = void (*)(const UserNode& node);
// Throws what the script's function raises. Set when the module is made.
inline UserFunction call_user_op = nullptr;

}  // namespace dyc
