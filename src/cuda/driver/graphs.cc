// Lists of operations as CUDA graphs: captured from the stream once, launched as often as the list comes.
#include <iostream>

#include "base/error.h"
#include "cuda/driver/driver.h"

namespace dyc::cuda {

Graphs::Graphs(const Calls& calls, std::function<void(const Backend::Operation&)> issue)
    : calls_(calls),
      issue_(std::move(issue)),
      usable_(calls.cuda.graphs()),
      cache_([this](GraphCache::List list) { return capture(list); },
             [this](GraphCache::Graph graph) {
               if (!Calls::forked()) calls_.cuda.graph_destroy_made(static_cast<MadeGraph>(graph));
             }) {}

bool Graphs::launch(GraphCache::List list, Stream stream) {
  if (!usable_) return false;
  stream_ = stream;
  const auto graph = static_cast<MadeGraph>(cache_.find(list));
  if (!graph) return false;
  if (const Result r = calls_.cuda.graph_launch(graph, stream)) {
    give_up(r, "launching a graph");
    return false;
  }
  return true;
}

// While the stream is captured, nothing of it runs.
GraphCache::Graph Graphs::capture(GraphCache::List list) {
  const Libcuda& cuda = calls_.cuda;
  if (const Result r = cuda.capture_begin(stream_, kCaptureThisThread)) return give_up(r, "capturing");
  bool issued = true;
  try {
    for (const Backend::Operation& o : list) issue_(o);
  } catch (const Error&) {  // run one by one, the list says the same
    issued = false;
  }
  Graph graph = nullptr;
  Result r = cuda.capture_end(stream_, &graph);
  MadeGraph made = nullptr;
  if (!r && issued) r = cuda.graph_make(&made, graph, 0);
  if (graph) cuda.graph_destroy(graph);
  if (r || !issued) return give_up(r, "making a graph");
  return made;
}

// The list has not run, and runs by itself; so do all that follow.
GraphCache::Graph Graphs::give_up(Result result, const char* what) {
  usable_ = false;
  if (loses_context(result)) calls_.fail(result, what);
  if (calls_.lost()) calls_.fail(kContextDestroyed, what);
  std::cerr << text("[dynet] WARNING: ", calls_.device(), ", while ", what, ": ",
                    result ? describe(calls_.cuda, result) : "a launch failed",
                    "; launches run one by one\n");
  return nullptr;
}

}  // namespace dyc::cuda
