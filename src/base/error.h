// Exceptions of the core. Each maps to one Python exception type (bindings/errors.cc).
#pragma once
#include <sstream>
#include <stdexcept>
#include <string>

namespace dyc {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct ValueError : Error {
  using Error::Error;
};  // ValueError
struct RuntimeError : Error {
  using Error::Error;
};  // RuntimeError
struct InvalidValue : RuntimeError {
  using RuntimeError::RuntimeError;
};  // RuntimeError, with the line of the script: a NaN or infinity in a checked graph
struct IndexError : Error {
  using Error::Error;
};  // IndexError
struct TypeError : Error {
  using Error::Error;
};  // TypeError
struct MemoryError : Error {
  using Error::Error;
};  // MemoryError

// Streams all parts into one message: text("pick(): got ", i).
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace dyc
