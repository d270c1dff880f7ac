#include "ops/room.h"

#include <new>

namespace dyc {

void* take_room(size_t bytes) { return ::operator new(bytes); }

void give_room(void* room) noexcept { ::operator delete(room); }

}  // namespace dyc
