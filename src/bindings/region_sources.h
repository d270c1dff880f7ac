// Reads the values of a region's sources before each call.
//
// Reading must not run code of the script, or the script would see itself read twice when the region is run
// after all. So attributes are looked up as Python does it, and reading fails where a class overrides the
// lookup, where a descriptor or property computes the value, or where a key has a comparison of its own.
//
// Sources that are items or attributes of one value are read together (ValueParts): those of a dict or module
// are read again only when it has a new version.
#pragma once
#include "bindings/region_guard.h"
#include "bindings/region_spec.h"

namespace dyc::py {

// Does code run when the attribute of an object of this class is read? *found: what the class has by the
// name, which may be nothing.
bool is_computed(PyTypeObject* type, PyObject* name, PyObject** found);

// A whole number plus n; null: the base is something else, or very large.
Owned sum_of(PyObject* base, Py_ssize_t n);

// Equal versions: no part of the value has changed. Unknown where Python keeps no version of it.
struct PartsVersion {
  PyObject* base = nullptr;
  uint64_t dict = 0;
  bool is_known() const { return dict != 0; }
  bool operator==(const PartsVersion&) const = default;
};

class SourceReader {
 public:
  // Items or attributes of one value.
  struct ValueParts {
    uint32_t base;
    bool attributes;
    std::vector<uint32_t> sources;
    PartsVersion version{};  // when they were read last
  };

  explicit SourceReader(const RegionSpec& spec);

  // Reads all sources. False: reading one would run code of the script, or it is the length or an item of a
  // list that the region appends to.
  bool read(PyObject* const* args);
  // In a loop, after read(): reads what the iterations of the loop can change. check_parts(i) is called after
  // parts()[i] were read; where it returns false, so does this.
  template <class F>
  bool read_varying(PyObject* const* args, F&& check_parts) {
    std::copy_n(args, spec_.n_args, values.all.begin());
    for (const ReadStep& s : varying_) {
      if (!run(s)) return false;
      if (s.parts && !check_parts(s.at)) return false;
    }
    return true;
  }
  // Releases the attributes that were read as new references.
  void release() { attribute_values_.clear(); }

  const std::vector<ValueParts>& parts() const { return parts_; }
  // Index among parts(); kNone: the source is read alone.
  uint32_t parts_of(uint32_t source) const { return parts_of_[source]; }
  // Can no iteration of the loop change the source?
  bool is_fixed(uint32_t source) const { return fixed_[source] != 0; }
  // Do all iterations append to the same lists, and read the same lists after that?
  bool lists_are_fixed() const { return lists_are_fixed_; }

  SourceValues values;

 private:
  struct ReadStep {
    bool parts;
    uint32_t at;  // in parts_, or among the sources
  };
  void plan();
  void plan_loop(const RegionLoop& loop);
  bool run(const ReadStep& s) { return s.parts ? read_parts(&parts_[s.at]) : read_one(s.at); }
  bool read_one(uint32_t at);
  bool read_parts(ValueParts* parts);
  bool read_name(const RegionSource& source, PyObject* dict, PyObject** value);
  bool read_attribute(uint32_t at, PyObject* base, PyObject** value);
  bool read_item(const RegionSource& source, PyObject* base, PyObject** value);
  bool lists_are_separate();

  const RegionSpec& spec_;
  std::vector<ValueParts> parts_;
  std::vector<uint32_t> parts_of_;        // beside the sources
  std::vector<ReadStep> plan_, varying_;  // all, in the order in which they are read; what a loop changes
  std::vector<uint32_t> appended_;        // sources of lists that are appended to
  std::vector<uint32_t> read_late_;       // sources whose items or lengths are read after that
  std::vector<uint8_t> fixed_;            // beside the sources
  bool lists_are_fixed_ = true;
  std::vector<Owned> attribute_values_;
  // Of the object whose attribute a source was last: what the class has by that name; no code runs to read
  // it.
  struct ClassSeen {
    uint32_t version = 0;  // type_version()
    PyObject* found = nullptr;
  };
  std::vector<ClassSeen> classes_;  // beside the sources
};

}  // namespace dyc::py
