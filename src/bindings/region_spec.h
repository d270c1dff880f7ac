// The description of a region, as the rewriter of hints passes it: the values that its statements read, what
// they assign, and the loop whose body they are. It does not change after it was parsed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "bindings/owned.h"

namespace dyc::py {

// A value that the region reads: an argument of the call, or a part of the value of another source, `base`,
// which stands before it in RegionSpec::sources.
struct RegionSource {
  enum Kind : uint8_t { argument, item, item_at, attribute, count, sum };
  Kind kind = argument;
  uint32_t base = 0;
  Owned key;                // item: int or str; attribute: name
  uint32_t key_source = 0;  // item_at: the source of the index
  // count: the length that the base must have; item_at: how many ops read this item; sum: what is added.
  Py_ssize_t n = 0;
  // How the region uses the value.
  bool called = false;      // as a function, which may only record
  bool method = false;      // called as a method of the value of source `base`
  bool expression = false;  // it must be an Expression
  bool state = false;       // it must be an RNNState
  bool parameters = false;  // it must be Parameters: a method of these is called
  bool mapping = false;     // it must be a dict: a method of it is called
  bool truth = false;       // its truth decides
  bool appended = false;    // as a list to append to
  bool late = false;        // it is read after something was appended to a list
  uint32_t indices = 0;     // uses where an index may stand
  uint32_t others = 0;      // other uses
  Owned codes;              // called: a list of the code objects that the function may have instead
  bool own = false;         // called: a function that the script creates for each call, with such code
  Owned defaults;           // called: the defaults it must have: (positional, by name), `...` for any
};

// A result of the region, or a part of one.
struct RegionOutput {
  enum Kind : uint8_t { source, constant, recorded, tuple, list, either, state, input, derived, dict, part };
  Kind kind = recorded;
  uint32_t at = 0;  // source: its number
  Owned object;     // constant
  std::vector<RegionOutput> parts;
};

// The loop of the script whose body the region is, or the comprehension whose element it is.
struct RegionLoop {
  struct Target {  // names that an item is bound to
    uint32_t argument = kNone;
    std::vector<Target> parts;  // if it is unpacked
  };
  Target target;
  uint32_t n_added = 0;            // arguments after the region's own, which are only assigned
  std::vector<uint32_t> left;      // arguments that are names of the target which are read after the loop
  std::vector<uint32_t> carried;   // of names that the region assigns: the arguments of the next iteration
  std::vector<uint32_t> appended;  // sources of the lists that its other results are appended to
};

struct RegionSpec {
  RegionSpec();                                     // of another process: it records nothing
  RegionSpec(PyObject* spec, PyObject* functions);  // throws PythonError

  std::string name;
  uint32_t n_args = 0;                // the first of the sources
  std::vector<RegionSource> sources;  // arguments, then parts in the order in which they can be read
  std::vector<long> ints;             // numbers that stand in the region
  RegionOutput output;                // parallel to the object that is passed on when the region has run
  std::optional<RegionLoop> loop;
  Owned functions;  // a set: the functions that only record
};

}  // namespace dyc::py
