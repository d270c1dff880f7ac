#include "exec/cuda/launch_encoder.h"

#include <algorithm>

#include "base/error.h"
#include "cuda/abi/scratch.h"
#include "exec/cuda/tuning.h"

namespace dyc {

using cuda::Axes;
using cuda::LaunchArgs;
using cuda::NodeSizes;
using cuda::Shape;

void LaunchEncoder::forget() {
  for (const uint32_t s : shapes_put_) shapes_[s] = nullptr;
  shapes_put_.clear();
  forget_index();
}

LaunchArgs LaunchEncoder::encode(const Launch& l, bool backward) {
  LaunchArgs args;
  args.op = l.op;
  args.count = l.count;
  args.full = c_.launches.full();
  encode_results(l, args);
  if (backward) args.dy = c_.gradients() + l.out;
  if (l.fixed_arity) encode_arguments(l, args, backward);
  else encode_lists(l, args, backward);
  encode_shapes(l, args);
  encode_ids(l, args);
  encode_scratch(l, args);
  return args;
}

void LaunchEncoder::encode_results(const Launch& l, LaunchArgs& args) {
  args.y = c_.values() + l.out;
  args.results = sizes(l, kResult);
  if (l.uniform) return;
  bool gapless = true;  // not if the launch was restricted to its live nodes
  const int64_t* const outs = c_.plan().index.data() + l.out_index;
  int64_t at = l.out;
  for (uint32_t i = 0; i < l.count; at += c_.launches.item(l, i).sig->size, ++i)
    gapless = gapless && outs[i] == at;
  if (gapless) return;
  const auto relative = c_.commands.array<int64_t>(l.count);
  for (uint32_t i = 0; i < l.count; ++i) relative[i] = outs[i] - l.out;
  args.outs = relative.device;
}

NodeSizes LaunchEncoder::sizes(uint32_t count, int64_t size) {
  NodeSizes e{count, size, nullptr, count * size, size, cuda::divisor(size)};
  if (e.total < cuda::kDivisible) return e;
  const auto starts = c_.commands.array<int64_t>(size_t{count} + 1);
  for (uint32_t i = 0; i <= count; ++i) starts[i] = i * size;
  e.size = 0;
  e.starts = starts.device;
  return e;
}

// Of the results, or of an argument.
NodeSizes LaunchEncoder::sizes(const Launch& l, uint32_t arg) {
  const auto size_of = [arg](const Sig& s) -> int64_t { return arg == kResult ? s.size : s.x[arg]->size(); };
  const auto size_at = [&](uint32_t i) { return size_of(*c_.launches.item(l, i).sig); };
  const int64_t first = size_of(c_.graph().sig_number(l.sig));
  if (l.uniform) return sizes(l.count, first);
  bool alike = first > 0;
  for (uint32_t i = 0; i < l.count; ++i) alike = alike && size_at(i) == first;
  if (alike) return sizes(l.count, first);
  NodeSizes e{};
  e.count = l.count;
  const auto starts = c_.commands.array<int64_t>(size_t{l.count} + 1);
  starts[0] = 0;
  for (uint32_t i = 0; i < l.count; ++i) {
    const int64_t size = size_at(i);
    starts[i + 1] = starts[i] + size;
    e.largest = std::max(e.largest, size);
  }
  e.starts = starts.device;
  e.total = starts[l.count];
  return e;
}

ValueOperand LaunchEncoder::operand(const Launch& l, const Operand& o, const float* arena) {
  ValueOperand p{arena + o.base, nullptr, o.stride, ValueOperand::shared, false};
  switch (o.kind) {
    case Operand::contiguous:
      p.kind = ValueOperand::contiguous;
      break;
    case Operand::strided:
      p.kind = ValueOperand::strided;
      break;
    case Operand::indexed: {
      p.kind = ValueOperand::indexed;
      p.base = arena;
      const int64_t* const index = c_.plan().index.data() + o.index;
      if (index_host_ != index) index_device_ = c_.commands.put(index, l.count);
      index_host_ = index;
      p.index = index_device_;
      break;
    }
    default:
      break;
  }
  return p;
}

void LaunchEncoder::encode_arguments(const Launch& l, LaunchArgs& args, bool backward) {
  if (l.n_operands > cuda::kMaxOperands)
    throw RuntimeError(
        text("internal error: ", op_info(l.op).meta->name, " has ", l.n_operands, " operands"));
  args.n = l.n_operands;
  const auto operands = c_.commands.array<ValueOperand>(l.n_operands);
  for (uint32_t k = 0; k < l.n_operands; ++k)
    operands[k] =
        backward ? operand(l, c_.launches.operand(l, k), c_.values()) : c_.strategy().operand(*this, l, k);
  args.x = operands.device;
}

void LaunchEncoder::encode_lists(const Launch& l, LaunchArgs& args, bool backward) {
  const uint32_t* const starts = c_.plan().starts.data() + l.arg_begin;
  const int64_t* const index = c_.plan().index.data() + c_.launches.operand(l, 0).index;
  const uint32_t first = starts[0], n = starts[l.count] - first;
  const auto lists = c_.commands.array<const float*>(n);
  for (uint32_t k = 0; k < n; ++k) lists[k] = c_.values() + index[first + k];
  if (!backward) c_.strategy().operand_lists(*this, l, lists.host, n);
  const auto begins = c_.commands.array<uint32_t>(size_t{l.count} + 1);
  for (uint32_t i = 0; i <= l.count; ++i) begins[i] = starts[i] - first;
  args.lists = lists.device;
  args.list_starts = begins.device;
}

const Shape* LaunchEncoder::put_shape(const Sig& sig) {
  const uint32_t n = sig.n_args;
  const auto dims = c_.commands.array<Dim>(n);
  const auto x = c_.commands.array<const Dim*>(n);
  for (uint32_t k = 0; k < n; ++k) {
    dims.host[k] = *sig.x[k];
    x[k] = dims.device + k;
  }
  const auto s = c_.commands.array<Shape>(1);
  s.host->y = *sig.y;
  s.host->x = x.device;
  s.host->attrs = c_.commands.put(sig.attrs);
  s.host->needs = c_.commands.put(sig.requires_grad_args);
  s.host->n = n;
  return s.device;
}

// One for each signature of the launches that are submitted together.
const Shape* LaunchEncoder::shape_of(uint32_t sig) {
  if (shapes_.size() <= sig) shapes_.resize(sig + 64, nullptr);
  if (!shapes_[sig]) {
    shapes_[sig] = put_shape(c_.graph().sig_number(sig));
    shapes_put_.push_back(sig);
  }
  return shapes_[sig];
}

void LaunchEncoder::encode_shapes(const Launch& l, LaunchArgs& args) {
  args.shape = shape_of(l.sig);
  if (l.uniform) return;
  const auto shapes = c_.commands.array<const Shape*>(l.count);
  for (uint32_t i = 0; i < l.count; ++i)
    shapes[i] = shape_of(c_.graph().node(c_.plan().nodes[l.nodes + i]).sig);
  args.shapes = shapes.device;
}

void LaunchEncoder::encode_ids(const Launch& l, LaunchArgs& args) {
  if (!op_info(l.op).ids() && l.kind != OpKind::lookup) return;
  const auto ids_of = [&](uint32_t i) { return c_.graph().ids(c_.plan().nodes[l.nodes + i]); };
  const auto starts = c_.commands.array<uint32_t>(size_t{l.count} + 1);
  starts[0] = 0;
  for (uint32_t i = 0; i < l.count; ++i) starts[i + 1] = starts[i] + ids_of(i).n;
  const auto all = c_.commands.array<uint32_t>(starts[l.count]);
  for (uint32_t i = 0; i < l.count; ++i) {
    const Graph::Ids ids = ids_of(i);
    std::copy_n(ids.data, ids.n, all.host + starts[i]);
  }
  args.ids = all.device;
  args.id_starts = starts.device;
}

void LaunchEncoder::encode_scratch(const Launch& l, LaunchArgs& args) {
  const OpInfo& info = op_info(l.op);
  if (!info.scratch) return;
  size_t bytes = 16;
  for (uint32_t i = 0; i < (l.uniform ? 1 : l.count); ++i) {
    const Sig& s = *c_.launches.item(l, i).sig;
    KernelArgs m{};
    m.xd = s.x.data();
    m.yd = s.y;
    m.n = s.n_args;
    m.attrs = s.attrs.data();
    bytes = std::max(bytes, info.scratch(m));
  }
  cuda::ScratchMemory scratch{};
  scratch.bytes = (bytes + 15) / 16 * 16;
  scratch.workers = static_cast<uint32_t>(std::clamp<size_t>(kNodeScratch / scratch.bytes, 1, l.count));
  scratch.memory = static_cast<char*>(c_.commands.uninitialised(scratch.bytes * scratch.workers));
  args.extra = c_.commands.put(&scratch, 1);
}

namespace {

// The dimensions of z, batch last, with neighbours merged where x and y both advance or both repeat; n = 0
// where all dimensions are equal.
Axes axes_of(const Dim& x, const Dim& y, const Dim& z) {
  Axes a{};
  if (x == y && x.size() == z.size()) return a;
  uint32_t x_size = 1, y_size = 1;
  const auto add = [&](uint32_t extent, uint32_t of_x, uint32_t of_y) {
    if (extent == 1) return;
    const bool x_on = of_x != 1, y_on = of_y != 1;
    if (a.n > 0 && (a.x[a.n - 1] != 0) == x_on && (a.y[a.n - 1] != 0) == y_on) {
      a.extent[a.n - 1] *= extent;
    } else {
      a.extent[a.n] = extent;
      a.x[a.n] = x_on ? x_size : 0;
      a.y[a.n++] = y_on ? y_size : 0;
    }
    if (x_on) x_size *= extent;
    if (y_on) y_size *= extent;
  };
  for (uint32_t i = 0; i < z.nd; ++i) add(z.d[i], x[i], y[i]);
  add(z.bd, x.bd, y.bd);
  if (z.size() >= static_cast<size_t>(cuda::kDivisible))
    throw RuntimeError(text("a result of ", z.str(), ", of arguments ", x.str(), " and ", y.str(),
                            ": on a GPU, ops that repeat an argument along a dimension make less than 2^31 "
                            "elements; split the batch, or compute it on the CPU"));
  for (uint32_t i = 0; i < a.n; ++i) a.by_extent[i] = cuda::divisor(a.extent[i]);
  return a;
}

}  // namespace

void LaunchEncoder::encode_axes(const Launch& l, LaunchArgs& args) {
  args.each_own = !l.flat && !l.uniform;
  const auto axes = c_.commands.array<Axes>(args.each_own ? l.count : 1);
  axes[0] = Axes{};
  if (!l.flat)
    for (uint32_t i = 0; i < axes.n; ++i) {
      const Sig& s = *c_.launches.item(l, i).sig;
      axes[i] = axes_of(*s.x[0], *s.x[1], *s.y);
    }
  args.axes = axes.device;
}

void LaunchEncoder::gather(float* to, const ValueOperand& from, const NodeSizes& results,
                           const NodeSizes& own) {
  LaunchArgs args;
  args.count = own.count;
  args.n = 1;
  args.results = results;
  args.own = own;
  args.x = c_.commands.put(&from, 1);
  args.y = to;
  c_.commands.launch(CudaDevice::kernel_id(cuda::kGather), args, own.total);
}

void LaunchEncoder::gather_columns(float* to, const cuda::Matrix<const float>& m, int64_t rows,
                                   int64_t columns) {
  const NodeSizes own = sizes(static_cast<uint32_t>(columns), rows);
  gather(to, {m.base, m.index, m.stride, m.index ? ValueOperand::indexed : ValueOperand::strided, false}, own,
         own);
}

cuda::Matrix<const float> LaunchEncoder::gathered_columns(const cuda::Matrix<const float>& m, int64_t rows,
                                                          int64_t columns) {
  const size_t bytes = static_cast<size_t>(rows * columns) * sizeof(float);
  float* const to = static_cast<float*>(c_.commands.uninitialised(bytes));
  gather_columns(to, m, rows, columns);
  c_.counters.gathered_bytes += bytes;
  return {to, nullptr, rows};
}

}  // namespace dyc
