// What Record::more is for member rows: null, or who adds to the same memory, and scratch memory.
#pragma once
#include <cstdint>

namespace dyc::cuda {

struct MemberExtra {
  // Backward: members that add to the same memory form a chain and run in order, by one worker. Chain c has
  // the members chain_members[chain_starts[c]] to chain_members[chain_starts[c + 1]]; every member is in one.
  // Null: all are apart.
  const uint32_t* chain_starts = nullptr;
  const uint32_t* chain_members = nullptr;
  uint32_t chains = 0;

  // Rows with OpRow::room: of each worker `room_bytes`, one after the other, for `rooms` workers; more than
  // that do nothing. A worker is a warp where Meta::team says so, else a thread.
  char* room = nullptr;
  uint64_t room_bytes = 0;
  uint32_t rooms = 0;
};

}  // namespace dyc::cuda
