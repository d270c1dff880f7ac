#include "bindings/call_site.h"

#include <map>

#include <pybind11/pybind11.h>

#include "bindings/compute.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

// All of this is guarded by the interpreter lock.
std::vector<std::shared_ptr<ProfileTrace>> traces;  // of the profile that is on, one per thread
uint32_t sessions = 0;                              // profiles so far
size_t most_spans = 0;
std::string own_folder;  // of this package: its lines are not the script's

struct CallSite {
  std::string file, function;
  int line;
};
std::vector<CallSite> call_sites;
std::map<std::tuple<std::string, int, std::string>, uint32_t> call_site_numbers;

std::string text_of(PyObject* owner, const char* attribute) {
  PyObject* value = PyObject_GetAttrString(owner, attribute);
  const char* utf8 = value && PyUnicode_Check(value) ? PyUnicode_AsUTF8(value) : nullptr;
  const std::string text = utf8 ? utf8 : "?";
  Py_XDECREF(value);
  PyErr_Clear();
  return text;
}

// The call site of the innermost line outside this package, or kNone.
uint32_t innermost_call_site() {
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame) {
    auto* code = reinterpret_cast<PyObject*>(PyFrame_GetCode(frame));
    std::string file = text_of(code, "co_filename");
    if (file.compare(0, own_folder.size(), own_folder) != 0) {
      const int line = PyFrame_GetLineNumber(frame);
      std::string function = text_of(code, "co_name");
      Py_DECREF(code);
      Py_DECREF(frame);
      const auto [at, fresh] =
          call_site_numbers.try_emplace({file, line, function}, static_cast<uint32_t>(call_sites.size()));
      if (fresh) call_sites.push_back({std::move(file), std::move(function), line});
      return at->second;
    }
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return kNone;
}

void detach() {
  if (this_thread) this_thread->set_trace(nullptr, 0);
}

void start(size_t most, const std::string& folder) {
  traces.clear();
  most_spans = most;
  own_folder = folder;
  engine();
  profile_session = ++sessions;
  ScriptCall::attach(sessions);
}

// Spans of a thread as dicts; numbers of names become text.
pb::list spans_of(const ProfileTrace::Contents& c) {
  static constexpr const char* kinds[] = {"call",   "record",      "plan",    "forward", "backward",
                                          "launch", "back_launch", "weights", "kernel"};
  static constexpr const char* modes[] = {"shared", "contiguous", "strided", "gathered", "weight", "unused"};
  pb::list spans;
  for (const ProfileSpan& s : c.spans) {
    pb::dict d;
    d["kind"] = kinds[s.kind];
    d["name"] = s.name;
    d["begin"] = s.begin;
    d["end"] = s.end;
    d["graph"] = s.graph;
    if (s.failed) d["failed"] = true;
    if (s.site != kNone) d["site"] = call_site_tuple(s.site);
    if (s.nodes) d["nodes"] = s.nodes;
    if (s.kind == ProfileSpan::kernel) d["sizes"] = pb::make_tuple(s.m, s.n, s.k);
    if (s.flops > 0) d["flops"] = s.flops;
    if (s.bytes > 0 || s.n_ops) d["bytes"] = s.bytes;
    if (s.n_ops) {
      pb::list ops, operands, floats;
      for (uint32_t i = 0; i < s.n_ops; ++i) {
        ops.append(op_info(c.ops[s.ops + i]).meta->name);
        floats.append(c.sizes[s.ops + i]);
      }
      for (uint32_t i = 0; i < s.n_operands; ++i) operands.append(modes[s.modes >> 4 * i & 15]);
      d["ops"] = ops;
      d["operands"] = operands;
      d["floats"] = floats;
      d["shapes"] = c.texts[s.shapes];
      d["mixed"] = s.mixed;
    }
    spans.append(d);
  }
  return spans;
}

pb::list stop() {
  profile_session = 0;
  detach();
  const std::vector<std::shared_ptr<ProfileTrace>> ended = std::move(traces);
  traces.clear();
  pb::list threads;
  for (const auto& trace : ended) {
    const ProfileTrace::Contents contents = trace->drain();
    threads.append(pb::make_tuple(trace->thread, trace->thread_name, spans_of(contents), contents.dropped));
  }
  return threads;
}

}  // namespace

pb::object call_site_tuple(uint32_t site) {
  if (site == kNone) return pb::none();
  return pb::make_tuple(call_sites[site].file, call_sites[site].line, call_sites[site].function);
}

void ScriptCall::attach(uint32_t session) {
  if (session == 0) return detach();
  if (!this_thread) return;  // no graph: nothing to tell
  std::string name = "?";
  uint64_t number = 0;
  try {
    const pb::object thread = pb::module_::import("threading").attr("current_thread")();
    name = pb::str(thread.attr("name"));
    number = thread.attr("ident").cast<uint64_t>();
  } catch (pb::error_already_set&) {  // as the interpreter ends
  }
  traces.push_back(std::make_shared<ProfileTrace>(number, name, most_spans));
  this_thread->set_trace(traces.back(), session);
}

void ScriptCall::begin(const char* name) {
  this_thread->executor.trace->recorded_until(this_thread->graph.size());
  this_thread->site = innermost_call_site();
  scope_.emplace(this_thread->executor.trace, ProfileSpan::call, name);
  scope_->site(this_thread->site);
}

void ScriptCall::end() {
  this_thread->site = kNone;
  scope_.reset();
}

void add_profile(pb::module_& m) {
  using namespace pybind11::literals;
  m.def("_profile_start", &start, "most"_a, "own_folder"_a);
  m.def("_profile_stop", &stop, "Per thread: its number, its name, its spans, how many more there were.");
  m.def("_profile_clock", &profile_clock, "The clock of the spans, in nanoseconds.");
}

}  // namespace dyc::py
