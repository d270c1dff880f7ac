// For the files that bind functions with pybind11 which take or return a ParameterCollection.
#pragma once
#include <pybind11/pybind11.h>

#include "bindings/model.h"

namespace pybind11::detail {
template <>
struct type_caster<std::shared_ptr<dyc::Collection>> {
  PYBIND11_TYPE_CASTER(std::shared_ptr<dyc::Collection>, const_name("ParameterCollection"));
  bool load(handle source, bool) {
    if (!dyc::py::is_collection(source.ptr())) return false;
    value = dyc::py::as_collection(source.ptr(), "", "");
    return true;
  }
  static handle cast(const std::shared_ptr<dyc::Collection>& c, return_value_policy, handle) {
    return dyc::py::make_collection(c);
  }
};
}  // namespace pybind11::detail
