// Profiles: the calls of the script that they show, with their source positions, and the spans as Python
// objects.
#pragma once
#include "bindings/expression.h"
#include "bindings/pybind_names.h"

namespace dyc::py {

// A call of the script that computes, updates or begins a graph. While a profile is on it becomes a span with
// the call site, the line of the script.
class ScriptCall {
 public:
  explicit ScriptCall(const char* name) {
    const uint32_t session = profile_session.load(std::memory_order_relaxed);
    if (session != (this_thread ? this_thread->session() : 0)) [[unlikely]]
      attach(session);
    if (this_thread && this_thread->executor.trace) [[unlikely]]
      begin(name);
  }
  ~ScriptCall() {
    if (scope_) [[unlikely]]
      end();
  }
  ScriptCall(const ScriptCall&) = delete;
  ScriptCall& operator=(const ScriptCall&) = delete;

  // From now on this thread records spans for the profile of that number; 0: for none.
  static void attach(uint32_t session);

 private:
  void begin(const char* name);
  void end();
  std::optional<ProfileTrace::Scope> scope_;
};

// (file, line, function) of a call site; None if it is not known.
pybind11::object call_site_tuple(uint32_t site);

void add_profile(pybind11::module_& m);
void add_plan_view(pybind11::module_& m);  // plan_view.cc

}  // namespace dyc::py
