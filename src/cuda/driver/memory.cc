// Memory of a device, and the copies that fill and read it.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cuda/driver/driver.h"

namespace dyc::cuda {

namespace {

using tuning::kSmall, tuning::kSmallStep, tuning::kLargeStep, tuning::kStagingPiece;

size_t rounded(size_t bytes) {
  const size_t step = bytes <= kSmall ? kSmallStep : kLargeStep;
  return std::max(bytes + step - 1, step) / step * step;
}

std::string megabytes(size_t bytes) {
  if (bytes < size_t{10} << 20) return text((bytes + 1023) >> 10, " KB");
  return text(bytes >> 20, " MB");
}

}  // namespace

Pool::~Pool() {
  if (Calls::forked()) return;
  for (const Block& block : used_) calls_.cuda.free(block.memory);
  for (const Block& block : shared_) calls_.cuda.free(block.memory);
  trim();
}

std::vector<Pool::Block>::iterator Pool::find_kept(size_t wanted) {
  auto best = kept_.end();  // the smallest that is large enough, and not much too large
  for (auto it = kept_.begin(); it != kept_.end(); ++it)
    if (it->bytes >= wanted && it->bytes <= 2 * wanted && (best == kept_.end() || it->bytes < best->bytes))
      best = it;
  return best;
}

// Otherwise the driver would be asked for memory, which takes as long as the wait.
std::vector<Pool::Block> Pool::take_shared(size_t bytes) {
  if (shared_.empty() || find_kept(rounded(bytes)) != kept_.end()) return {};
  return std::exchange(shared_, {});
}

void Pool::give_back(const std::vector<Block>& shared, bool waited) {
  std::vector<Block>& to = waited ? kept_ : shared_;
  to.insert(to.end(), shared.begin(), shared.end());
  for (const Block& block : shared) kept_bytes_ += waited ? block.bytes : 0;
}

Address Pool::allocate(size_t bytes) {
  const size_t wanted = rounded(bytes);
  if (wanted < bytes) fail(bytes);
  Block block{0, wanted};
  if (const auto kept = find_kept(wanted); kept != kept_.end()) {
    block = *kept;
    kept_.erase(kept);
    kept_bytes_ -= block.bytes;
  } else {
    Result r = calls_.cuda.allocate(&block.memory, wanted);
    if (r == kOutOfMemory && !kept_.empty()) {
      trim();
      r = calls_.cuda.allocate(&block.memory, wanted);
    }
    if (r == kOutOfMemory) fail(bytes);
    calls_.check(r, "allocating memory");
  }
  used_.push_back(block);
  used_bytes_ += block.bytes;
  return block.memory;
}

void Pool::release(Address memory, bool shared) noexcept {
  const auto it =
      std::find_if(used_.begin(), used_.end(), [&](const Block& b) { return b.memory == memory; });
  if (it == used_.end()) return;
  used_bytes_ -= it->bytes;
  if (!shared) kept_bytes_ += it->bytes;
  (shared ? shared_ : kept_).push_back(*it);
  used_.erase(it);
}

void Pool::trim() noexcept {
  for (const Block& block : kept_) calls_.cuda.free(block.memory);
  trims_ += !kept_.empty();
  kept_.clear();
  kept_bytes_ = 0;
}

void Pool::fail(size_t bytes) const {
  size_t free = 0, total = 0;
  calls_.cuda.memory_info(&free, &total);
  throw MemoryError(text(
      "out of memory on ", calls_.device(), ": ", megabytes(bytes), " asked for, ", megabytes(used_bytes_),
      " in use by this program's graphs and parameters, ", megabytes(free), " of ", megabytes(total),
      " free; use smaller batches, call renew_cg() between them, or set DYNET_COMPAT_DEVICE=cpu"));
}

Staging::~Staging() {
  if (Calls::forked()) return;
  const auto drop = [&](Piece& piece) {
    if (piece.left) calls_.cuda.event_destroy(piece.left);
    if (piece.memory) calls_.cuda.free_host(piece.memory);
  };
  std::for_each(std::begin(up_), std::end(up_), drop);
  std::for_each(std::begin(down_), std::end(down_), drop);
}

void Staging::make(Piece& piece) {
  if (!piece.left) calls_.check(calls_.cuda.event_create(&piece.left, kEventUntimed), "making an event");
  if (piece.memory) return;
  void* memory = nullptr;
  const Result r = calls_.cuda.allocate_host(&memory, kStagingPiece, 0);
  if (r == kOutOfMemory)
    throw MemoryError(text("out of memory on the host: ", megabytes(kStagingPiece),
                           " of it must be locked for copies to ", calls_.device(), "; see ulimit -l"));
  calls_.check(r, "locking memory for copies");
  piece.memory = static_cast<char*>(memory);
}

void Staging::wait(Piece& piece) {
  if (!piece.busy) return;
  calls_.check(calls_.cuda.event_wait(piece.left), "waiting for a copy");
  piece.busy = false;
}

void Staging::upload(Address to, const void* from, size_t bytes, Stream stream) {
  const char* source = static_cast<const char*>(from);
  while (bytes > 0) {
    if (filled_ == kStagingPiece) {
      Piece& full = up_[up_at_];
      calls_.check(calls_.cuda.event_record(full.left, stream), "recording an event");
      full.busy = true;
      up_at_ = (up_at_ + 1) % tuning::kStagingPieces;
      filled_ = 0;
      wait(up_[up_at_]);
    }
    Piece& piece = up_[up_at_];
    make(piece);
    const size_t part = std::min(bytes, kStagingPiece - filled_);
    std::memcpy(piece.memory + filled_, source, part);
    calls_.check(calls_.cuda.copy_up(to, piece.memory + filled_, part, stream), "copying to the device");
    filled_ = std::min(kStagingPiece, (filled_ + part + 15) & ~size_t{15});
    source += part;
    to += part;
    bytes -= part;
  }
}

// While one piece is copied out, the next is under way.
void Staging::download(void* to, Address from, size_t bytes, Stream stream) {
  char* target = static_cast<char*>(to);
  const size_t pieces = (bytes + kStagingPiece - 1) / kStagingPiece;
  for (size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      Piece& piece = down_[i % 2];
      make(piece);
      const size_t part = std::min(kStagingPiece, bytes - i * kStagingPiece);
      calls_.check(calls_.cuda.copy_down(piece.memory, from + i * kStagingPiece, part, stream),
                   "copying from the device");
      calls_.check(calls_.cuda.event_record(piece.left, stream), "recording an event");
      piece.busy = true;
    }
    if (i > 0) {
      Piece& done = down_[(i - 1) % 2];
      wait(done);
      std::memcpy(target + (i - 1) * kStagingPiece, done.memory,
                  std::min(kStagingPiece, bytes - (i - 1) * kStagingPiece));
    }
  }
}

}  // namespace dyc::cuda
