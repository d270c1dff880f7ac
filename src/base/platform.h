// What differs between operating systems, processors and compilers, so that no other file outside the
// device folders needs the preprocessor to decide.
#pragma once
#include <algorithm>
#include <thread>

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <pthread.h>
#endif

// For thread_local variables read at every recorded node: an offset known when the module is loaded takes the
// place of a call. C libraries other than glibc may refuse such variables in a module that is loaded late.
#if defined(__linux__) && defined(__GLIBC__)
#define DYC_STATIC_TLS __attribute__((tls_model("initial-exec")))
#else
#define DYC_STATIC_TLS
#endif

namespace dyc {

// A hint inside a spinning loop: another thread of this core may run.
inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Whether the process began with this thread.
inline bool is_main_thread() {
#ifdef __linux__
  return syscall(SYS_gettid) == getpid();
#else
  return pthread_main_np() != 0;
#endif
}

// CPUs that this process may run on; at least 1.
inline int usable_cpus() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace dyc
