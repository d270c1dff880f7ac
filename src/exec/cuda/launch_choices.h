// Which way of running a command list is the fastest: its launches one by one, as a CUDA graph, or joined
// into persistent kernels. Measured on the device, once for each set of kernels: each way that can be had
// runs some times between two events, and what takes the least time for a command wins. That is kept for
// later processes. All ways make the same bits.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda/driver/backend.h"
#include "exec/device_options.h"

namespace dyc {

enum class LaunchWay : uint8_t { plain, graph, persistent };
constexpr size_t kLaunchWays = 3;
constexpr const char* kLaunchWayNames[kLaunchWays] = {"plain", "graph", "persistent"};

class LaunchChoices {
 public:
  using Ids = std::vector<uint32_t>;  // kernel ids of a list, ascending
  struct Timed {
    uint32_t runs = 0;
    uint64_t commands = 0;
    double seconds = 0;
    double microseconds() const;  // for a command; 0: has not been timed
  };
  struct Set {
    std::string name;
    std::array<Timed, kLaunchWays> timed = {};
    std::array<uint64_t, kLaunchWays> lists = {};  // that were run in each way
    uint32_t questions = 0;                        // lists that could be no graph yet
    std::vector<LaunchWay> order = {};             // from the fastest to plain; empty: not known yet
    bool wants(LaunchWay way) const;               // is it in the order, or may it be?
  };
  // How a list can be run now, besides launch by launch. `later`: its persistent kernels are to be compiled.
  struct Ways {
    bool graph, persistent, later;
  };

  LaunchChoices(cuda::Backend& backend, const DeviceOptions& options)
      : backend_(backend), options_(options) {}

  // Is there anything to choose, on a device that tells time?
  bool measures() const;
  // name_of(kernel id): its name for later processes.
  template <class F>
  Set& find(const Ids& ids, F name_of) {
    const auto found = sets_.find(ids);
    if (found != sets_.end()) return found->second;
    std::string name;
    for (const uint32_t id : ids) name += name_of(id) + "\n";
    return add(ids, std::move(name));
  }
  LaunchWay choose(Set& set, Ways ways);

  // Around the commands of a list; give_up() where one has failed. One list is timed at a time.
  void begin(Set& set, LaunchWay way, size_t commands);
  void end();
  void give_up() { timed_ = nullptr, open_ = false; }

  const std::map<Ids, Set>& sets() const { return sets_; }

 private:
  Set& add(const Ids& ids, std::string name);
  void read();
  void settle(Set& set, Ways ways);
  static LaunchWay best(const Set& set, Ways ways);

  cuda::Backend& backend_;
  const DeviceOptions& options_;
  std::map<Ids, Set> sets_;
  Set* timed_ = nullptr;  // the list that is being timed is one of this
  LaunchWay way_ = LaunchWay::plain;
  size_t commands_ = 0;
  bool open_ = false;  // end() is to come
};

}  // namespace dyc
