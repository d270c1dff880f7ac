#include "ops/scratch.h"

namespace dyc {

void* take_scratch(size_t bytes) { return ::operator new(bytes); }

void give_scratch(void* memory) noexcept { ::operator delete(memory); }

}  // namespace dyc
