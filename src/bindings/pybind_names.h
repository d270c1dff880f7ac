// Names of pybind11 for declarations. Its header costs each file that includes it four seconds to compile,
// so only the files that bind something by it do.
#pragma once

namespace pybind11 {
class cpp_function;
class module_;
class object;
}  // namespace pybind11
