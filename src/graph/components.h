// Strongly connected components of a graph, each after everything that it depends on.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace dyc {

// producers(v): what vertex v < n depends on, a vector that stays as it is. found(component): one component.
// Tarjan's algorithm, without recursion: a component is finished after what it depends on.
template <class Producers, class Found>
void for_each_component(uint32_t n, Producers&& producers, Found&& found) {
  std::vector<uint32_t> index(n, 0), low(n, 0), stack, component;
  std::vector<uint8_t> on_stack(n, 0);
  struct Visit {
    uint32_t vertex, next;
  };
  std::vector<Visit> frames;
  uint32_t counter = 0;
  for (uint32_t root = 0; root < n; ++root) {
    if (index[root]) continue;
    frames.push_back({root, 0});
    while (!frames.empty()) {
      const uint32_t v = frames.back().vertex;
      if (frames.back().next == 0 && !index[v]) {
        index[v] = low[v] = ++counter;
        stack.push_back(v);
        on_stack[v] = 1;
      }
      const std::vector<uint32_t>& sources = producers(v);
      bool descended = false;
      while (frames.back().next < sources.size()) {
        const uint32_t w = sources[frames.back().next++];
        if (!index[w]) {
          frames.push_back({w, 0});
          descended = true;
          break;
        }
        if (on_stack[w]) low[v] = std::min(low[v], index[w]);
      }
      if (descended) continue;
      if (low[v] == index[v]) {
        component.clear();
        for (uint32_t w = ~0u; w != v;) {
          w = stack.back();
          stack.pop_back();
          on_stack[w] = 0;
          component.push_back(w);
        }
        found(component);
      }
      frames.pop_back();
      if (!frames.empty()) low[frames.back().vertex] = std::min(low[frames.back().vertex], low[v]);
    }
  }
}

}  // namespace dyc
