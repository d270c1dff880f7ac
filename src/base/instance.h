// What batch_map (bindings/fibers.cc) tells every layer: whether this thread runs one of its instances, whose
// siblings are half done. What belongs to all of them must not change then.
#pragma once
#include "base/error.h"
#include "base/platform.h"

namespace dyc {

extern constinit thread_local bool inside_instance DYC_STATIC_TLS;

// Throws RuntimeError inside an instance.
inline void refuse_inside_instance(const char* call, const char* advice) {
  if (inside_instance) [[unlikely]]
    throw RuntimeError(
        text(call, ": not inside the function of batch_map(), whose instances share one graph; ", advice));
}

}  // namespace dyc
