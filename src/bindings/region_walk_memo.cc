#include "bindings/region_walk_memo.h"

#include <algorithm>
#include <utility>

#include "base/vectors.h"
#include "bindings/expression.h"
#include "bindings/region_walk.h"

namespace dyc::py {

namespace {

uint64_t mix(uint64_t key, uint64_t word) {
  key = (key ^ word) * 0x9E3779B97F4A7C15;
  return key ^ key >> 29;
}

uint64_t word_of(PyObject* o) {
  if (!o) return 1;
  if (PyUnicode_CheckExact(o) && PyUnicode_GET_LENGTH(o) > tuning::kMemoText) return 3;
  if (is_plain_value(o)) return static_cast<uint64_t>(PyObject_Hash(o)) * 2 + 3;
  if (is_expression(o) && !is_parameters(o)) return 2;
  return reinterpret_cast<uintptr_t>(o);
}

}  // namespace

size_t WalkMemo::bytes() const {
  return sizeof *this + bytes_in(arguments) + bytes_in(reads) + bytes_in(late_reads) + bytes_in(items) +
         bytes_in(steps) + bytes_in(nodes) + bytes_in(words) + bytes_in(values) + bytes_in(results) +
         bytes_in(keys) + bytes_in(types) + bytes_in(calls) + bytes_in(uses) + bytes_in(codes) +
         bytes_in(specialisations) + bytes_in(confirmed) + bytes_in(traces) + bytes_in(appends) +
         bytes_in(stored);
}

void WalkMemo::shrink() {
  shrink_to_fit(arguments, reads, late_reads, items, steps, nodes, words, values, results, types, keys, uses,
                codes);
}

// Of arguments that are equal in what a memo could be of: objects, numbers and text, and the items of lists.
uint64_t MemoTable::key(PyObject* const* args, size_t n) {
  uint64_t key = n + 1;
  for (size_t i = 0; i < n; ++i) {
    if (!args[i] || !is_sequence(args[i])) {
      key = mix(key, word_of(args[i]));
      continue;
    }
    const Py_ssize_t size = Py_SIZE(args[i]), few = std::min(size, tuning::kMemoItems);
    key = mix(key, static_cast<uint64_t>(size));
    for (Py_ssize_t k = 0; k < few; ++k) key = mix(key, word_of(PySequence_Fast_ITEMS(args[i])[k]));
  }
  return key | 1;
}

MemoFound MemoTable::look(PyObject* const* args, size_t n, bool sparsely) {
  MemoFound found;
  if (off_) return found;
  found.key = key(args, n);
  const bool sampled = look_for_repeats(found.key);
  if (off_ || (sparsely && memos_.empty() && !repeats_ && !sampled)) return found;
  if (++looks_ > 8 * tuning::kMemoKeys && found_ < looks_ / 8) {
    turn_off();
    return found;
  }
  if (looks_ % tuning::kFewMemos == 0) {  // at the end of a window
    const uint64_t part = found_ - found_before_;
    steady_ = steady_ || part > tuning::kFewMemos - tuning::kFewMemos / 8 || found_ > tuning::kMemoPatience;
    found_before_ = found_;
  }
  const auto at = memos_.find(found.key);
  if (at == memos_.end()) {
    found.writes = wants(found.key);
    return found;
  }
  // A memo that did not fit is written again.
  found.writes = at->second->failures > 0 && at->second->misfits < tuning::kMemoFailures;
  if (at->second->failures > 0) return found;
  found.memo = at->second.get();
  found.reviews = ++found_ % tuning::kRevalidateWalks == 0;
  return found;
}

bool MemoTable::wants(uint64_t key) {
  if (memo_memory.is_spent()) return false;
  const bool few = memos_.size() < tuning::kFewMemos;
  return repeats_ || seen_.find_or_add(key, few ? tuning::kFirstMemoKeys : tuning::kMemoKeys);
}

// Looks at the first calls, and at a part of the keys later, so that long epochs are noticed: had nearly all
// of these keys been seen? True: it has looked at this one.
bool MemoTable::look_for_repeats(uint64_t key) {
  if (asked_++ >= tuning::kFirstMemoKeys && (key >> 16) % tuning::kKeysPerSample) return false;
  repeated_ += sampled_.find_or_add(key, tuning::kSampledKeys);
  if (++samples_ % tuning::kMemoSample != 0) return true;
  repeats_ = std::exchange(repeated_, 0) > tuning::kMemoSample - tuning::kMemoSample / 16;
  idle_ = repeats_ || !memos_.empty() ? 0 : idle_ + 1;
  if (idle_ > tuning::kIdleSamples) turn_off();
  return true;
}

bool MemoTable::Keys::find_or_add(uint64_t key, size_t most) {
  if (keys_.size() < most) keys_.resize(most);
  uint64_t* const set = &keys_[key >> 32 & (keys_.size() - 1) & ~(kSet - 1)];
  if (std::find(set, set + kSet, key) != set + kSet) return true;
  std::copy_backward(set, set + kSet - 1, set + kSet);  // the oldest is forgotten
  *set = key;
  return false;
}

void MemoTable::add(uint64_t key, std::unique_ptr<WalkMemo> memo) {
  if (off_) return;
  if (!memo) {
    if (++impossible_ >= tuning::kMemoFailures && memos_.size() < impossible_) turn_off();
    return;
  }
  for (Owned& object : std::exchange(memo->kept, {})) keep(std::move(object));
  memo->shrink();
  std::unique_ptr<WalkMemo>& place = memos_[key];
  if (place) {
    memo->misfits = place->misfits;
    memo_memory.bytes -= place->bytes();
  }
  memo_memory.bytes += memo->bytes();
  place = std::move(memo);
}

void MemoTable::keep(Owned object) {
  PyObject* const key = object.get();
  if (kept_.try_emplace(key, std::move(object)).second) memo_memory.bytes += tuning::kKeptBytes;
}

void MemoTable::count_misfit(WalkMemo* memo) {
  ++memo->failures;
  ++memo->misfits;
  // All memos may misfit once: when a region was given up as too slow, say.
  const uint64_t allowed = 2 * tuning::kFewMemos + tuning::kMemoFailures;
  if (2 * ++misfits_ > allowed + found_) turn_off();
}

void MemoTable::turn_off() {
  for (const auto& [key, memo] : memos_) memo_memory.bytes -= memo->bytes();
  memo_memory.bytes -= kept_.size() * tuning::kKeptBytes;
  memos_.clear();
  kept_.clear();
  seen_ = sampled_ = {};
  off_ = true;
}

}  // namespace dyc::py
