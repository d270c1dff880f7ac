#include "base/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "base/lasting_memory.h"

namespace dyc {

namespace {

// In bytes; SIZE_MAX: as much as there is.
size_t address_space() {
  rlimit limit{};
  const bool known = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? static_cast<size_t>(limit.rlim_cur) : SIZE_MAX;
}

// As much as the machine has memory for, or DYNET_COMPAT_MEM megabytes.
size_t reservation_bytes() {
  if (const char* mb = std::getenv("DYNET_COMPAT_MEM"))
    if (const long n = std::atol(mb); n > 0) return static_cast<size_t>(n) << 20;
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
  size_t bytes = pages > 0 && page > 0 ? static_cast<size_t>(pages) * page : size_t{8} << 30;
  // With a limit on address space, one arena takes no more than a quarter of it.
  return std::min(bytes, address_space() / 4);
}

}  // namespace

bool address_space_is_limited() { return address_space() != SIZE_MAX; }

Arena::Arena(const char* name, std::function<std::string()> details)
    : name_(name), details_(std::move(details)) {
  for (size_t bytes = reservation_bytes(); bytes >= (size_t{1} << 20); bytes /= 2) {
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    prefer_huge_pages(p, bytes);
    base_ = static_cast<float*>(p);
    reserved_ = bytes;
    far_ = capacity_ = static_cast<int64_t>(bytes / sizeof(float));
    return;
  }
  throw MemoryError(text("out of memory: cannot reserve the ", name_, " arena"));
}

Arena::~Arena() {
  if (base_) munmap(base_, reserved_);
}

int64_t Arena::allocate_far(size_t n) {
  const int64_t whole_pages = (static_cast<int64_t>(n) + 1023) & ~int64_t{1023};
  if (whole_pages > far_ - top_) fail(n);
  return far_ = (far_ - whole_pages) & ~int64_t{1023};
}

void Arena::fail(size_t n) const {
  const auto floats = [](auto count) { return bytes_text(4.0 * static_cast<double>(count)); };
  throw MemoryError(text("out of memory: ", name_, " arena, requested ", floats(n), ", in use ", floats(top_),
                         " of ", floats(capacity_), details_ ? details_() : ""));
}

std::string bytes_text(double bytes) {
  const double kilo = 1024, mega = kilo * kilo;
  const auto one_decimal = [](double x) { return std::round(x * 10) / 10; };
  if (bytes >= mega) return text(one_decimal(bytes / mega), " MB");
  return bytes >= kilo ? text(one_decimal(bytes / kilo), " kB") : text(bytes, " B");
}

}  // namespace dyc
