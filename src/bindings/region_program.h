// Programs: functions of the script whose statements are regions, tests of values, calls of such functions,
// and reads of parts of values, as the rewriter describes them. The Walker runs them (region_walk.h).
//
// A program belongs to a code object. Which functions a call means is found out when it runs, by their code.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/compute.h"
#include "bindings/owned.h"
#include "bindings/region_walk_draws.h"

namespace dyc::py {

class Region;
struct WalkProgram;
struct RegionUse;  // region_walk.h

// A statement or expression.
struct WalkNode {
  enum Kind : uint8_t {
    // Expressions. `number` and `object` are what stands in brackets.
    slot,       // a local name [its number]
    constant,   // [object]
    global,     // a name of the module or of Python [object: name]
    attribute,  // of parts[0] [object: name]
    item,       // of parts[0] at parts[1]
    slice,      // of parts[0] from parts[1] to parts[2] [its step]
    // Of parts[0] with the others, the last of them by name [object: tuple of these names; number: which of
    // Method, where the name of the called attribute is one].
    call,
    tuple,        // of parts
    list,         // of parts
    negation,     // not parts[0]
    all,          // parts, the first of them that is false, or the last
    any,          // parts, the first of them that is true, or the last
    comparison,   // of parts[0] and parts[1] [which: Py_LT and so on, or one of the following]
    conditional,  // parts[1] if parts[0] else parts[2]
    arithmetic,   // on numbers, lists or expressions: parts[0] and parts[1] [which of Arithmetic]
    each,         // [parts[2] for parts[0] in parts[1] if parts[3] and ...]
    text,         // of parts, one after the other
    // A region with arguments parts[0], as statements that assign to targets parts[1] and append to lists
    // parts[2], or as an expression [object; number: the flags below]. Last: the same without the region.
    region,
    // Statements.
    assignment,  // in a block, to target parts[0] of parts[1]: slots, items, attributes, tuples of targets
    branch,      // if parts[0]: parts[1], else: parts[2]
    loop,        // for parts[0] in parts[1]: parts[2]
    result,      // return parts[0]
    evaluation,  // of parts[0]
    block,       // of statements
    iterator,    // what a loop or a sequence runs over: parts[0], one of Iterator, of the others [which]
    while_loop,  // while parts[0]: parts[1]
    jump,        // break, or continue [1]
    failure      // raises an exception
  };
  enum Comparison : uint32_t { is = 16, is_not, in, not_in };
  enum Arithmetic : uint32_t {
    add,
    subtract,
    multiply,
    divide,
    floor_divide,
    modulo,
    negative,
    in_place = 16
  };
  enum Iterator : uint32_t { zip, enumerate, reversed, range };
  // Of lists and dicts, of builders and their states, and of parameters.
  enum Method : uint32_t {
    append = 1,
    pop,
    extend,
    initial_state,
    add_input,
    add_inputs,
    transduce,
    output,
    h,
    s,
    get,
    insert,
    reverse,
    set_s,
    set_h,
    expr,
    set_dropout,
    set_dropouts,
    disable_dropout
  };
  enum RegionFlags : uint32_t { returns = 1, alone = 2, expression = 4 };
  Kind kind = constant;
  uint32_t number = 0;
  Owned object;
  std::vector<WalkNode> parts;
  std::shared_ptr<RegionUse> use;  // region
  // Cached for the current walk: for objects of this type, reading the attribute runs no code, or gives
  // `value`.
  struct Known {
    uint64_t walk = 0;
    const void* of = nullptr;  // a type; of a call, the object whose method was found
    PyObject* function = nullptr;
  };
  // value: of the attribute of an object; of a call, the class that it calls, and the __init__ of that
  mutable Known known, value;
  struct KnownDrawer {
    uint64_t walk = 0;
    PyObject* of = nullptr;
    Drawer found;
  };
  mutable KnownDrawer drawer;         // call: what draws random numbers of it
  mutable uint64_t versions[2] = {};  // global: of the two dicts that the name was looked for in
  // call: the function of the API that it was found to be, and what that records
  mutable Owned recorder;
  mutable OpId op = kOps;
  mutable PlainCall plain;
  mutable const WalkProgram* program = nullptr;  // call: of the code `code`, found in walk `found_in`
  mutable PyObject* code = nullptr;
  mutable uint64_t found_in = 0;
};

struct WalkProgram {
  // `spec`: (name, names of parameters ("" where only by place), number of slots, numbers of cells that it
  // reads, block, has it begun). `regions`: a dict, name -> region; may be null. Throws PythonError.
  WalkProgram(PyObject* spec, PyObject* regions);

  bool usable = false;
  bool begun = false;  // the first statements run before the program does: no walk can call the function
  std::string name;
  std::vector<Owned> parameters;
  uint32_t n_slots = 0;        // parameters, then free names, then others
  std::vector<uint32_t> free;  // indices of cells in the function's closure
  WalkNode body;
};

// The program of this code; null: there is none yet.
WalkProgram* find_program(PyObject* code);
// `spec` None: code that the Walker cannot run.
void define_program(PyObject* code, PyObject* spec, PyObject* regions = nullptr);
// `code` gets the program of `other`, if that has one and it has none.
void share_program(PyObject* code, PyObject* other);

}  // namespace dyc::py
