// Model files: what dynet_compat/files/objects.py needs of the text format, of parameters and of collections.
#include "model/text_io.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "bindings/tuning.h"
#include "bindings/expression.h"
#include "bindings/compute.h"
#include "bindings/collection_caster.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using Pair = std::pair<StoragePtr, std::shared_ptr<TextBlock>>;

const StoragePtr& as_storage(const pb::handle& object, const char* op) {
  PyObject* p = object.ptr();
  if (PyObject_TypeCheck(p, &ParametersType) || PyObject_TypeCheck(p, &LookupParametersType))
    return storage_in(p);
  throw TypeError(text(op, "(): expected Parameters or LookupParameters, got ", type_name(p)));
}

template <class F>
auto with_os_errors(F f) {
  try {
    return f();
  } catch (const SystemError& e) {
    errno = e.code;
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, e.what());
    throw pb::error_already_set();
  }
}

pb::tuple dims_tuple(const std::vector<uint32_t>& dims) {
  pb::tuple all(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) all[i] = dims[i];
  return all;
}

// Damaged keys are shown, not refused: collections go by order.
pb::str key_text(const std::string& key) {
  return pb::reinterpret_steal<pb::str>(
      PyUnicode_DecodeUTF8(key.data(), static_cast<pb::ssize_t>(key.size()), "backslashreplace"));
}

void write_parameters(int fd, const std::string& path, const pb::list& pairs) {
  wait_for_gradients();
  with_os_errors([&] {
    TextWriter writer(fd, path);
    for (const pb::handle pair : pairs) {
      const auto item = pb::reinterpret_borrow<pb::tuple>(pair);
      writer.write(*as_storage(item[0], "save"), item[1].cast<std::string>());
    }
    writer.flush();
  });
}

// All blocks whose key starts with the prefix, with their numbers; the others, without them, go to a list.
pb::list read_blocks(int fd, const std::string& path, const std::string& prefix, pb::list others) {
  return with_os_errors([&] {
    TextReader reader(fd, path);
    pb::list found;
    for (;;) {
      auto block = std::make_shared<TextBlock>();
      if (!reader.next(*block)) return found;
      if (block->key.compare(0, prefix.size(), prefix) != 0) {
        reader.skip(*block);
        if (others.size() < tuning::kListedBlocks) others.append(block);
        continue;
      }
      reader.read(*block);
      found.append(block);
    }
  });
}

// The first block of this kind and key, or None; what comes before it goes to the list.
pb::object read_block(int fd, const std::string& path, bool lookup, const std::string& key, pb::list others) {
  return with_os_errors([&]() -> pb::object {
    TextReader reader(fd, path);
    for (;;) {
      auto block = std::make_shared<TextBlock>();
      if (!reader.next(*block)) return pb::none();
      if (block->lookup == lookup && block->key == key) {
        reader.read(*block);
        return pb::cast(block);
      }
      reader.skip(*block);
      if (others.size() < tuning::kListedBlocks) others.append(block);
    }
  });
}

bool same_contents(const TextBlock& a, const TextBlock& b) {
  const auto equal = [](const std::vector<float>& x, const std::vector<float>& y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
  };
  return a.lookup == b.lookup && a.key == b.key && a.dims == b.dims && equal(a.values, b.values) &&
         equal(a.grad, b.grad);
}

// Values and gradients of all pairs, or, with an exception, of none.
void restore(const pb::list& pairs) {
  std::vector<Pair> all;
  for (const pb::handle pair : pairs) {
    const auto item = pb::reinterpret_borrow<pb::tuple>(pair);
    all.emplace_back(as_storage(item[0], "populate"), item[1].cast<std::shared_ptr<TextBlock>>());
  }
  wait_for_gradients();
  for (const auto& [storage, block] : all)
    if (file_dims(*storage) != block->dims || block->values.size() != storage->size() ||
        block->lookup != storage->is_lookup())
      throw RuntimeError(text("populate(): got ", block->str(), " for ", storage->name, " ", storage->dim));
  for (const auto& [storage, block] : all) storage->reserve_restore(block->has_grad);
  for (const auto& [storage, block] : all)
    storage->restore(block->values.data(), block->has_grad ? block->grad.data() : nullptr);
}

// (a table?, full name, sizes as in a file, number)
pb::tuple describe(const pb::object& parameter) {
  const Storage& s = *as_storage(parameter, "describe");
  return pb::make_tuple(s.is_lookup(), s.name, dims_tuple(file_dims(s)), s.uid);
}

}  // namespace

void add_files(pb::module_& m) {
  using Marks = std::vector<Collection::ListSizes>;
  pb::class_<TextBlock, std::shared_ptr<TextBlock>>(m, "_FileBlock", "One parameter of a model file.")
      .def_readonly("lookup", &TextBlock::lookup)
      .def_readonly("line", &TextBlock::line)
      .def_property_readonly("count", [](const TextBlock& b) { return b.values.size(); })
      .def_property_readonly("key", [](const TextBlock& b) { return key_text(b.key); })
      .def_property_readonly("dims", [](const TextBlock& b) { return dims_tuple(b.dims); })
      .def("same", &same_contents);
  pb::class_<Marks>(m, "_Marks", "Sizes of a collection and its ancestors.");
  m.def("_mark", [](const std::shared_ptr<Collection>& c) { return c->mark(); });
  m.def("_roll_back", [](const Marks& marks) { Collection::roll_back(marks); });
  m.def("_write_parameters", &write_parameters);
  m.def("_read_blocks", &read_blocks);
  m.def("_read_block", &read_block);
  m.def("_restore", &restore);
  m.def("_describe", &describe);
  m.def("_rename",
        [](const pb::object& p, const std::string& name) { as_storage(p, "rename")->name = name; });
}

}  // namespace dyc::py
