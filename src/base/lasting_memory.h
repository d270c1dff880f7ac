// Memory for buffers of parameters, their gradients and what trainers keep of them, which live about as long
// as a model. They lie one after the other in chunks of huge pages: a step over all of a model misses fewer
// pages and, as its lines are in order, fewer lines of the second-level cache. A chunk is filled once;
// the pages of a buffer go back to the system when it is freed, the chunk with the last of them.
//
// From any thread, also in processes that are forked while another thread is in here: nothing is locked.
#pragma once
#include <cstddef>

namespace dyc {

// Zeros on a cache-line boundary; null where the buffer is too small or too large for a chunk, or the system
// gives no memory.
void* take_lasting(size_t bytes);
void free_lasting(void* buffer, size_t bytes) noexcept;  // as many as were taken

// Fewer page faults and misses; where the kernel has no such thing the call does nothing.
void prefer_huge_pages(void* p, size_t bytes);

}  // namespace dyc
