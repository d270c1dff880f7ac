// What the op headers name of the C++ library, for NVRTC, which has no library of its own: it is given this
// file under the names of the headers that they include. Shape rules and messages are read by the compiler
// and never run on a device, so strings, streams and exceptions only have to parse.
#pragma once

#ifdef DYC_EMULATION  // cuda/emulation/device.h has included the library
#else

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

// Device code has no exceptions: `throw ValueError(...)` becomes an expression of no use.
#define throw (void)

// The elements' alignment is known, which memcpy forgets: it would move floats byte by byte.
template <class A, class B>
inline __attribute__((always_inline)) void dyc_copy(A* to, const B* from, size_t bytes) {
  if constexpr (sizeof(A) == sizeof(B)) {
    for (size_t i = 0; i < bytes / sizeof(A); ++i) to[i] = __builtin_bit_cast(A, from[i]);
  } else {
    memcpy(to, from, bytes);
  }
}
#define __builtin_memcpy dyc_copy
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(tag) __int_as_float(0x7fc00000)
#define __builtin_nan(tag) __longlong_as_double(0x7ff8000000000000ll)
#define __builtin_isfinite(a) isfinite(a)
#define __builtin_fabs(a) fabs(a)
#define __builtin_log(a) log(a)
#define UINT32_MAX 0xffffffffu

namespace std {

using ::memcpy;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;

template <bool first, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool first, class A, class B>
using conditional_t = typename conditional<first, A, B>::type;

struct string {
  string(const char* = "") {}
};
inline string operator+(const string& a, const string&) { return a; }

struct ostream {};
template <class T>
ostream& operator<<(ostream& out, const T&) {
  return out;
}
struct ostringstream : ostream {
  string str() const { return {}; }
};

struct runtime_error {
  runtime_error(const string&) {}
};

}  // namespace std

#endif
