// Random numbers that a walk draws, from generators of Python's module random and of NumPy.
//
// They are drawn as Python would. Numbers that were drawn cannot be given back, so the state of a generator
// is kept before the first draw of a walk, and put back where the walk is refused.
#pragma once
#include <cstdint>
#include <vector>

#include "bindings/owned.h"

namespace dyc::py {

// A function that draws from a generator.
struct Drawer {
  enum Kind : uint8_t { none, random, getrandbits, randbelow, uniform, randint, randrange, choice, numpy };
  Kind kind = none;
  PyObject* generator = nullptr;  // borrowed
  PyObject* function = nullptr;   // borrowed: of the class
  // What the method `name` of the object draws; none: it is no generator, or one that a script has changed.
  static Drawer of_method(PyObject* object, PyObject* name);
  // The same of a function or bound method.
  static Drawer of(PyObject* callable);
  // A function of the same generator. For these of Python.
  PyObject* other(Kind other) const;
};

class WalkDraws {
 public:
  // Called before a draw. False: the state cannot be kept.
  bool keep(const Drawer& drawer);
  void put_back();
  void forget() { kept_.clear(); }

 private:
  struct Kept {
    Owned generator;
    std::vector<uint32_t> words;  // of the state at `at`
    uint32_t* at = nullptr;
    Owned state;  // what a bit generator of NumPy says, where it is not known where it lies
  };

  std::vector<Kept> kept_;
};

}  // namespace dyc::py
