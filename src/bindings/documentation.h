// Documentation of functions, classes and methods: texts by name, in ops/docs and bindings/docs, which leave
// out what most have in common.
#pragma once
#include <string>

#include "bindings/expression.h"

namespace dyc::py {

struct DocText {
  const char *name, *text;
};
// Adds sections in front of the source or the example, unless the text has the first of them.
void add_section(std::string& text, const std::string& section);
// The text says where the function is from: the one of DyNet with its name, unless another source is given.
std::string with_source(const char* name, std::string text);

// Once, when all types are in the module: gives classes and their methods the texts of bindings/docs.
void attach_documentation(PyObject* module);

}  // namespace dyc::py
