// What copies and pickles of collections and parameters are made of (dynet_compat/api/copies.py).
#include <pybind11/stl.h>

#include <algorithm>

#include "base/error.h"
#include "bindings/collection_caster.h"
#include "bindings/float_arrays.h"
#include "bindings/compute.h"
#include "bindings/model.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

using CollectionPtr = std::shared_ptr<Collection>;
using StateTuple = std::tuple<std::string, float, std::unordered_map<std::string, uint32_t>,
                              std::unordered_map<std::string, uint32_t>>;

// The root of a collection's or a parameter's tree, or None, and a number of the tree.
pb::tuple root_of(const pb::object& o) {
  wait_for_update();
  CollectionPtr root;
  if (is_parameters(o.ptr())) root = Collection::root_of(*storage_in(o.ptr()));
  else root = as_collection(o.ptr(), "_root_of", "o")->root().shared_from_this();
  if (!root) return pb::make_tuple(pb::none(), 0);
  const auto number = reinterpret_cast<uintptr_t>(root.get());
  return pb::make_tuple(root, number);
}

StateTuple to_tuple(Collection::Saved s) {
  return {std::move(s.name), s.lambda, std::move(s.parameter_counts), std::move(s.child_counts)};
}
Collection::Saved from_tuple(StateTuple t) {
  auto& [name, lambda, parameters, children] = t;
  return {std::move(name), lambda, std::move(parameters), std::move(children)};
}

// Indices in the root's list. Both lists are in order of creation, except after load_param() and the like.
std::vector<uint32_t> indices_of(const std::vector<StoragePtr>& own, const std::vector<StoragePtr>& all) {
  std::vector<uint32_t> found;
  size_t at = 0;
  for (const StoragePtr& s : own) {
    auto i = std::find(all.begin() + static_cast<std::ptrdiff_t>(at), all.end(), s);
    if (i == all.end()) i = std::find(all.begin(), all.end(), s);
    if (i == all.end()) throw RuntimeError(text("copy: ", s->name, " is not in the root collection"));
    at = static_cast<size_t>(i - all.begin());
    found.push_back(static_cast<uint32_t>(at));
  }
  return found;
}

// (number, parent or None, state, indices of its parameters and lookups in the root's lists).
pb::tuple collection_state(const CollectionPtr& c) {
  Collection& root = c->root();
  return pb::make_tuple(reinterpret_cast<uintptr_t>(c.get()),
                        c->parent() ? pb::cast(c->parent()) : pb::none(), to_tuple(c->state()),
                        indices_of(c->parameters(), root.parameters()),
                        indices_of(c->lookups(), root.lookups()));
}

CollectionPtr restore_root(StateTuple state, float factor) {
  auto root = Collection::restored(from_tuple(std::move(state)), nullptr, {}, {});
  root->set_decay_factor(factor);
  return root;
}

CollectionPtr restore_child(const CollectionPtr& parent, StateTuple state,
                            const std::vector<uint32_t>& parameters, const std::vector<uint32_t>& lookups) {
  const Collection& root = parent->root();
  const auto listed = [](const std::vector<uint32_t>& at, const std::vector<StoragePtr>& all) {
    std::vector<StoragePtr> own;
    for (const uint32_t i : at) {
      if (i >= all.size()) throw ValueError("_restore_child(): expected parameters of the root");
      own.push_back(all[i]);
    }
    return own;
  };
  return Collection::restored(from_tuple(std::move(state)), parent, listed(parameters, root.parameters()),
                              listed(lookups, root.lookups()));
}

// (name, sizes as in files, rows of a table or None, updated, raw values in memory order) of a parameter.
pb::tuple parameter_state(const pb::object& p) {
  wait_for_gradients();
  const Storage& s = *storage_in(p.ptr());
  const pb::array_t<float> values(static_cast<pb::ssize_t>(s.size()), s.values());
  const pb::object rows = s.is_lookup() ? pb::object(pb::int_(s.rows)) : pb::none();
  return pb::make_tuple(s.name, pb::reinterpret_steal<pb::object>(dim_tuple(s.dim)), rows, s.updated, values);
}

void restore_parameter(const CollectionPtr& root, const std::string& name, const pb::object& sizes,
                       const pb::object& rows, bool updated, const pb::object& values) {
  const FloatArray array = float_array(values.ptr(), "copy", name.c_str());
  const Dim dim = as_dim(sizes.ptr(), "copy");
  const bool lookup = !rows.is_none();
  const std::optional<uint32_t> count = lookup ? std::optional(rows.cast<uint32_t>()) : std::nullopt;
  const ArrayInitialiser init(std::vector<float>(array.data(), array.data() + array.size()), lookup);
  root->restore_parameter(name, dim, count, init)->updated = updated;
}

// The index of a parameter in the root's list of its kind.
uint32_t parameter_index(const CollectionPtr& root, const pb::object& p) {
  const StoragePtr& s = storage_in(p.ptr());
  return indices_of({s}, s->is_lookup() ? root->lookups() : root->parameters())[0];
}

pb::object parameter_at(const CollectionPtr& root, bool lookup, uint32_t index) {
  const auto& all = lookup ? root->lookups() : root->parameters();
  if (index >= all.size()) throw ValueError("_parameter_at(): expected a parameter of the root");
  return pb::reinterpret_steal<pb::object>(make_parameters(all[index]));
}

}  // namespace

void add_copies(pb::module_& m) {
  m.def("_root_of", &root_of, pb::arg("o"));
  m.def("_collection_state", &collection_state, pb::arg("collection"));
  m.def("_restore_root", &restore_root, pb::arg("state"), pb::arg("factor"));
  m.def("_restore_child", &restore_child, pb::arg("parent"), pb::arg("state"), pb::arg("parameters"),
        pb::arg("lookups"));
  m.def("_decay_factor", [](const CollectionPtr& c) { return c->decay_factor(); }, pb::arg("collection"));
  m.def(
      "_set_decay_factor", [](const CollectionPtr& c, float factor) { c->set_decay_factor(factor); },
      pb::arg("collection"), pb::arg("factor"));
  m.def("_parameter_state", &parameter_state, pb::arg("parameter"));
  m.def("_restore_parameter", &restore_parameter, pb::arg("root"), pb::arg("name"), pb::arg("sizes"),
        pb::arg("count"), pb::arg("updated"), pb::arg("values"));
  m.def("_parameter_index", &parameter_index, pb::arg("root"), pb::arg("parameter"));
  m.def("_parameter_at", &parameter_at, pb::arg("root"), pb::arg("lookup"), pb::arg("place"));
  m.def(
      "_as_class",
      [](const pb::type& cls, const CollectionPtr& c) {
        return pb::reinterpret_steal<pb::object>(
            make_collection(c, reinterpret_cast<PyTypeObject*>(cls.ptr())));
      },
      pb::arg("cls"), pb::arg("collection"));
}

}  // namespace dyc::py
