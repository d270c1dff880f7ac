// The batch plan as Python sees it: launches that ran, and those that would run.
#include <cstdio>

#include <pybind11/stl.h>

#include "bindings/background.h"
#include "bindings/call_site.h"
#include "bindings/compute.h"
#include "plan/critical_path.h"

namespace pb = pybind11;

namespace dyc::py {

namespace {

std::string number_text(uint32_t word) {
  float f;
  std::memcpy(&f, &word, 4);
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%g", static_cast<double>(f));
  return buffer;
}

// Attributes with the names of the op's parameters; numbers alone where they do not correspond.
std::vector<std::string> attributes(const Sig& sig) {
  const OpInfo& info = op_info(sig.op);
  std::vector<std::string> texts;
  if (info.meta->kind == OpKind::parameter || info.meta->kind == OpKind::lookup) return texts;
  for (uint32_t i = 0; i < info.n_params && texts.size() < sig.attrs.size(); ++i) {
    const Param& p = info.params[i];
    if (p.kind == Param::expr || p.kind == Param::exprs || p.kind == Param::index || p.kind == Param::number)
      continue;
    const uint32_t word = sig.attrs[texts.size()];
    texts.push_back(text(p.kind == Param::indices ? "length of " : "", p.name, "=",
                         p.kind == Param::real ? number_text(word) : std::to_string(word)));
  }
  if (texts.size() == sig.attrs.size()) return texts;
  texts.clear();
  for (const uint32_t word : sig.attrs) texts.push_back(std::to_string(word));
  return texts;
}

// The parameters, tables and computed weights that all nodes of the launch share.
pb::list weights(Graph& g, const Plan& plan, const Launch& l) {
  pb::list names;
  const Sig& sig = g.sig_number(l.sig);
  const NodeId member = plan.nodes[l.nodes];
  if (l.kind == OpKind::lookup) names.append(g.parameters.storage(sig.attrs[0]).name);
  if (l.kind == OpKind::parameter) names.append(g.parameter_use(member).storage->name);
  for (uint32_t k = 0; k < sig.n_args && k < 32; ++k) {
    if (!(sig.weights >> k & 1)) continue;
    const NodeId weight = g.args(member)[k], base = g.base_of(weight);
    if (g.is_parameter(base)) names.append(g.parameter_use(base).storage->name);
    else names.append(text("node ", weight));
  }
  return names;
}

pb::list modes(const Plan& plan, const Launch& l) {
  static constexpr const char* words[] = {"shared", "contiguous", "strided", "gathered", "weight", "unused"};
  pb::list list;
  for (uint32_t k = 0; k < l.n_operands; ++k) list.append(words[plan.operands[l.operands + k].kind]);
  return list;
}

pb::dict row_of(Graph& g, const Plan& plan, uint32_t i, const DepthRange& depths) {
  const Launch& l = plan.launches[i];
  const Sig& sig = g.sig_number(l.sig);
  const Meta& meta = *op_info(l.op).meta;
  pb::dict d;
  pb::list nodes, shapes;
  for (uint32_t k = 0; k < l.count; ++k) nodes.append(plan.nodes[l.nodes + k]);
  for (const Dim* x : sig.x) shapes.append(text(*x));
  d["op"] = meta.name;
  d["nodes"] = nodes;
  d["arguments"] = shapes;
  d["result"] = text(*sig.y);
  d["mixed"] = !l.uniform;
  d["operands"] = modes(plan, l);
  d["weights"] = weights(g, plan, l);
  d["attributes"] = attributes(sig);
  d["class"] = l.batch_key;
  d["rule"] = meta.batch == Batch::none ? "none" : "ragged";
  d["columns"] = sig.columns;
  d["least"] = depths.least;
  d["most"] = depths.most;
  d["together"] = l.elementwise + l.fused;
  return d;
}

pb::list rows_of(Engine& e) {
  const Plan& plan = e.planner.plan;
  const std::vector<DepthRange> depths = critical_path_depths(e.graph, plan);
  pb::list rows;
  for (uint32_t i = 0; i < plan.launches.size(); ++i) rows.append(row_of(e.graph, plan, i, depths[i]));
  return rows;
}

// (all launches, how many of them ran, (first launch, line) of each flush, whether there is batching).
// `of`: what is pending is planned for this expression; None: for all of the graph.
pb::tuple batch_plan(const pb::object& of) {
  Engine& e = engine();
  NodeId id = e.graph.size() - 1;
  if (!of.is_none() && !to_node(of.ptr(), "batch_plan", &id)) throw pb::error_already_set();
  const auto ran = e.planner.plan.launches.size();
  pb::list flushes, rows;
  for (const Engine::Flush& f : e.flushes) flushes.append(pb::make_tuple(f.first, call_site_tuple(f.site)));
  if (e.graph.size()) e.preview(id, of.is_none(), [&] { rows = rows_of(e); });
  const bool batching = e.options.batching && e.options.scheduler != Scheduler::none;
  return pb::make_tuple(rows, ran, flushes, batching);
}

// The node number of an expression of the current graph; None for other objects, and for parameters, which
// may not be in the graph yet.
pb::object node_number(const pb::object& o) {
  if (!is_expression(o.ptr()) || PyObject_TypeCheck(o.ptr(), &ParametersType) ||
      PyObject_TypeCheck(o.ptr(), &LookupParametersType))
    return pb::none();
  const auto* p = reinterpret_cast<PyExpression*>(o.ptr());
  if (!this_thread) take_back_graph();
  if (!this_thread || !is_current(p, this_thread->graph)) return pb::none();
  return pb::int_(p->id);
}

// (sizes, batch size, value or None if it is not computed yet) of an expression; None where node_number() is.
// Changes nothing and computes nothing.
pb::object peek(const pb::object& o) {
  const pb::object number = node_number(o);
  if (number.is_none()) return number;
  Engine& e = *this_thread;
  const NodeId id = number.cast<NodeId>();
  const Dim& d = e.graph.dim(id);
  const bool there = e.has_value(id) && !e.graph.is_parameter(e.graph.base_of(id));
  const pb::object value = there ? pb::reinterpret_steal<pb::object>(array_of(e.value(id), d)) : pb::none();
  return pb::make_tuple(pb::reinterpret_steal<pb::object>(dim_tuple(d)), d.bd, value);
}

// Name of the parameter that a node is, or looks up rows of; None for other nodes.
pb::object node_parameter(NodeId id) {
  Graph& g = engine().graph;
  if (id >= g.size()) throw IndexError(text("expected a node below ", g.size(), ", got ", id));
  const Sig& sig = g.sig(id);
  if (sig.op == op_id<ParameterNode>) return pb::str(g.parameter_use(g.base_of(id)).storage->name);
  if (sig.op == op_id<Lookup>) return pb::str(g.parameters.storage(sig.attrs[0]).name);
  return pb::none();
}

// Of a node: attributes as words of 32 bits, indices or number, whether those are a list, rows of the table
// that it reads.
pb::tuple node_words(NodeId id) {
  Graph& g = engine().graph;
  if (id >= g.size()) throw IndexError(text("expected a node below ", g.size(), ", got ", id));
  const Sig& sig = g.sig(id);
  const NodeId own = g.node(id).flags & Node::merged ? g.base_of(id) : id;
  const OpInfo& info = op_info(sig.op);
  const Graph::Ids ids = info.ids() ? g.ids(own) : Graph::Ids{};
  const std::vector<uint32_t> indices(ids.data, ids.data + ids.n);
  const bool table = info.meta->kind == OpKind::lookup;
  return pb::make_tuple(sig.attrs, indices, ids.list, table ? g.parameters.storage(sig.attrs[0]).rows : 0);
}

}  // namespace

void add_plan_view(pb::module_& m) {
  using namespace pybind11::literals;
  m.def("_batch_plan", &batch_plan, "of"_a);
  m.def("_node_words", &node_words, "index"_a);
  m.def("_node_parameter", &node_parameter, "index"_a);
  m.def("_node_number", &node_number, "expression"_a);
  m.def("_peek", &peek, "expression"_a);
}

}  // namespace dyc::py
