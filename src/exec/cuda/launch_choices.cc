#include "exec/cuda/launch_choices.h"

#include <algorithm>
#include <sstream>

#include "exec/cuda/tuning.h"

namespace dyc {

namespace {

constexpr LaunchWay kAll[] = {LaunchWay::plain, LaunchWay::graph, LaunchWay::persistent};

size_t number(LaunchWay way) { return static_cast<size_t>(way); }

bool is_timed(const LaunchChoices::Timed& t) { return t.runs >= kWarmRuns + kTimedRuns; }

std::string text_of(const std::vector<LaunchWay>& order) {
  std::string text;
  for (const LaunchWay way : order)
    text += (text.empty() ? "" : " ") + std::string(kLaunchWayNames[number(way)]);
  return text;
}

// Empty where the text is not that of an order.
std::vector<LaunchWay> order_of(const std::string& text) {
  std::vector<LaunchWay> order;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    for (const LaunchWay way : kAll)
      if (word == kLaunchWayNames[number(way)]) order.push_back(way);
  if (order.empty() || order.size() > kLaunchWays || order.back() != LaunchWay::plain) order.clear();
  return order;
}

}  // namespace

double LaunchChoices::Timed::microseconds() const {
  return commands ? 1e6 * seconds / static_cast<double>(commands) : 0;
}

bool LaunchChoices::Set::wants(LaunchWay way) const {
  if (!order.empty()) return std::find(order.begin(), order.end(), way) != order.end();
  return way != LaunchWay::graph || questions < kGraphQuestions;
}

bool LaunchChoices::measures() const {
  return options_.measured && !options_.unfused && (options_.persistent || options_.graphs) &&
         backend_.tells_time();
}

LaunchChoices::Set& LaunchChoices::add(const Ids& ids, std::string name) {
  Set set{std::move(name)};
  set.order = order_of(backend_.recall(set.name));
  return sets_.emplace(ids, std::move(set)).first->second;
}

LaunchWay LaunchChoices::choose(Set& set, Ways ways) {
  read();
  if (set.order.empty()) {
    set.questions += !ways.graph;
    settle(set, ways);
  }
  const LaunchWay way = best(set, ways);
  ++set.lists[number(way)];
  return way;
}

LaunchWay LaunchChoices::best(const Set& set, Ways ways) {
  const bool has[kLaunchWays] = {true, ways.graph, ways.persistent};
  for (const LaunchWay way : set.order)
    if (has[number(way)]) return way;
  const auto before = [&](LaunchWay a, LaunchWay b) {  // what is not timed yet, then what is faster
    const Timed &x = set.timed[number(a)], &y = set.timed[number(b)];
    if (!is_timed(x) || !is_timed(y)) return x.runs < y.runs;
    return x.microseconds() < y.microseconds();
  };
  LaunchWay best = LaunchWay::plain;
  for (const LaunchWay way : kAll)
    if (has[number(way)] && before(way, best)) best = way;
  return best;
}

// Persistent kernels that are being compiled are waited for, and for some lists a graph that may come.
void LaunchChoices::settle(Set& set, Ways ways) {
  const auto missing = [&](LaunchWay way) { return !is_timed(set.timed[number(way)]); };
  if (missing(LaunchWay::plain) || ways.later || (ways.persistent && missing(LaunchWay::persistent)) ||
      (options_.graphs && set.wants(LaunchWay::graph) && missing(LaunchWay::graph)))
    return;
  for (const LaunchWay way : kAll)
    if (!missing(way)) set.order.push_back(way);
  std::stable_sort(set.order.begin(), set.order.end(), [&](LaunchWay a, LaunchWay b) {
    return set.timed[number(a)].microseconds() < set.timed[number(b)].microseconds();
  });
  set.order.erase(std::find(set.order.begin(), set.order.end(), LaunchWay::plain) + 1, set.order.end());
  backend_.keep(set.name, text_of(set.order));
}

void LaunchChoices::begin(Set& set, LaunchWay way, size_t commands) {
  if (timed_ || !set.order.empty() || is_timed(set.timed[number(way)]) || !backend_.begin_span()) return;
  timed_ = &set;
  way_ = way;
  commands_ = commands;
  open_ = true;
}

void LaunchChoices::end() {
  if (!open_) return;
  open_ = false;
  backend_.end_span();
}

// The first runs of a way load its kernels, and do not count.
void LaunchChoices::read() {
  if (!timed_) return;
  const double seconds = backend_.span_seconds();
  if (seconds < 0) return;  // it is not over
  Timed& t = timed_->timed[number(way_)];
  if (++t.runs > kWarmRuns) {
    t.commands += commands_;
    t.seconds += seconds;
  }
  timed_ = nullptr;
}

}  // namespace dyc
