#include "model/trainer_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dyc {

namespace {

constexpr const char* kHeader = "#Trainer# 1 ";

std::string dims_of(const Storage& s) {
  std::string out = "{";
  for (uint32_t i = 0; i < s.dim.nd; ++i) out += (i ? "," : "") + std::to_string(s.dim.d[i]);
  if (s.is_lookup()) out += (s.dim.nd ? "," : "") + std::to_string(s.rows);
  return out + "}";
}

// Shortest digits that give the same number again, in every locale.
template <class T>
void put(std::string& out, T value) {
  char buffer[48];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

void put_line(std::string& out, const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (i) out += ' ';
    put(out, values[i]);
  }
  out += '\n';
}

// Reads a text line by line and says where it stands.
class Lines {
 public:
  Lines(std::string_view text, const std::string& path) : rest_(text), path_(path) {}

  std::string_view next(const std::string& wanted) {
    ++number_;
    const size_t end = rest_.find('\n');
    if (end == std::string_view::npos) refuse(wanted, "the end of the file");
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    return line_;
  }
  bool at_end() const { return rest_.empty(); }

  void expect(const std::string& wanted) {
    if (next(wanted) != wanted) refuse(wanted);
  }
  // `name number`
  template <class T>
  T value(const std::string& name) {
    next(name);
    const size_t space = line_.find(' ');
    if (space == std::string_view::npos || line_.substr(0, space) != name) refuse(name + " and a number");
    return parsed<T>(line_.substr(space + 1), name + " and a number");
  }
  template <class T>
  T parsed(std::string_view word, const std::string& wanted) {
    T value{};
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || end != word.data() + word.size()) refuse(wanted);
    return value;
  }
  std::vector<float> floats(size_t n) {
    const std::string wanted = std::to_string(n) + " numbers";
    next(wanted);
    std::vector<float> values;
    values.reserve(std::min(n, line_.size()));
    const char *at = line_.data(), *end = at + line_.size();
    while (at != end && values.size() < n) {
      float value;
      const auto [stop, error] = std::from_chars(at, end, value);
      if (error != std::errc() || (stop != end && *stop != ' '))
        refuse(wanted, "something that is no number");
      values.push_back(value);
      at = stop == end ? end : stop + 1;
    }
    if (values.size() != n || at != end) refuse(wanted, at != end ? "more" : std::to_string(values.size()));
    return values;
  }
  [[noreturn]] void refuse(const std::string& wanted) { refuse(wanted, "'" + std::string(shown()) + "'"); }
  [[noreturn]] void refuse(const std::string& wanted, const std::string& got) {
    throw RuntimeError(text("Trainer.populate(): ", path_, ":", number_, ": expected ", wanted, ", found ",
                            got, ". The trainer is as before."));
  }

 private:
  std::string_view shown() const { return line_.substr(0, 60); }
  std::string_view rest_, line_;
  const std::string& path_;
  size_t number_ = 0;
};

// -------------------------------------------------------------------------------------------- writing

void put_states(std::string& out, const std::vector<ParameterState>& states) {
  for (const ParameterState& s : states) {
    out += text("#State# ", s.dims, ' ', s.size, ' ', s.wanted_arrays, ' ', s.arrays.empty() ? 0 : 1, ' ',
                s.mean.count, ' ', s.name, '\n');
    for (const std::vector<float>& array : s.arrays) put_line(out, array.data(), array.size());
    if (s.mean.count) put_line(out, s.mean.values.data(), s.mean.values.size());
  }
}

std::string written(const TrainerState& s) {
  std::string out = text(kHeader, s.kind, "\nlearning_rate ");
  put(out, s.learning_rate);
  out += "\nclip_threshold ";
  put(out, s.clip_threshold);
  out += text("\nsparse_updates ", s.sparse_updates ? 1 : 0, "\nupdates ", s.updates, "\nstatus_updates ",
              s.status_updates, "\nstatus_clips ", s.status_clips, "\ncycle ", s.cycle, "\naverage ",
              static_cast<int>(s.average));
  if (s.average != TrainerState::Average::none) {
    out += text("\naverage_every ", s.average_every, "\naverage_beta ");
    put(out, s.average_beta);
  }
  out += text("\nparameters ", s.parameters.size(), "\nlookups ", s.lookups.size(), '\n');
  put_states(out, s.parameters);
  put_states(out, s.lookups);
  return out + "#End#\n";
}

// -------------------------------------------------------------------------------------------- reading

// `like`: what the trainer has now.
std::vector<ParameterState> read_states(const std::vector<ParameterState>& like, Lines& in, bool average) {
  std::vector<ParameterState> read;
  for (const ParameterState& s : like) {
    const std::string head = text("#State# ", s.dims, ' ', s.size, ' ', s.wanted_arrays, ' ');
    const std::string wanted = text("'", head, ".. ", s.name, "'");
    std::string_view line = in.next(wanted);
    if (line.substr(0, head.size()) != head) in.refuse(wanted);
    line.remove_prefix(head.size());
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) in.refuse(wanted);
    if (line.substr(second + 1) != s.name) in.refuse(wanted);
    ParameterState state{s.name, s.dims, s.size, s.wanted_arrays, {}, {}};
    const bool there = in.parsed<unsigned>(line.substr(0, first), wanted) != 0;
    state.mean.count = in.parsed<uint64_t>(line.substr(first + 1, second - first - 1), wanted);
    if (state.mean.count && !average) in.refuse("no mean where there is no moving average");
    if (there)
      for (int k = 0; k < s.wanted_arrays; ++k) state.arrays.push_back(in.floats(s.size));
    if (state.mean.count) state.mean.values = in.floats(s.size);
    read.push_back(std::move(state));
  }
  return read;
}

TrainerState read(const TrainerState& like, Lines& in) {
  TrainerState s;
  s.kind = like.kind;
  in.expect(std::string(kHeader) + s.kind);
  s.learning_rate = in.value<float>("learning_rate");
  s.clip_threshold = in.value<float>("clip_threshold");
  s.sparse_updates = in.value<unsigned>("sparse_updates") != 0;
  s.updates = in.value<uint64_t>("updates");
  s.status_updates = in.value<uint64_t>("status_updates");
  s.status_clips = in.value<uint64_t>("status_clips");
  s.cycle = in.value<uint64_t>("cycle");
  const auto kind = in.value<unsigned>("average");
  if (kind > 2) in.refuse("average 0, 1 or 2");
  s.average = static_cast<TrainerState::Average>(kind);
  if (kind) {
    s.average_every = in.value<uint32_t>("average_every");
    s.average_beta = in.value<float>("average_beta");
    if (s.average_every == 0 || !(s.average_beta >= 0.f && s.average_beta < 1.f))
      in.refuse("0 <= average_beta < 1 and average_every > 0");
  }
  in.expect(text("parameters ", like.parameters.size()));
  in.expect(text("lookups ", like.lookups.size()));
  s.parameters = read_states(like.parameters, in, kind != 0);
  s.lookups = read_states(like.lookups, in, kind != 0);
  in.expect("#End#");
  if (!in.at_end()) in.refuse("nothing after #End#", "more lines");
  return s;
}

}  // namespace

// ---------------------------------------------------------------------------------------------- state

void refuse_averaged(const Trainer& trainer, const char* call) {
  if (trainer.averaged())
    throw RuntimeError(text(call,
                            ": the parameters have the values of the moving average; wanted "
                            "swap_params_to_weights() before"));
}

// Has the trainer's private parts.
struct TrainerFile {
  static TrainerState state_of(Trainer& t, const char* call, bool contents);
  static void take(Trainer& t, TrainerState& state);

 private:
  static std::vector<ParameterState> states_of(const Trainer& t, bool lookups, bool contents);
  static void take(Trainer& t, std::vector<ParameterState>& read, bool lookups);
};

std::vector<ParameterState> TrainerFile::states_of(const Trainer& t, bool lookups, bool contents) {
  const auto& states = lookups ? t.lookup_states_ : t.parameter_states_;
  const auto& all = lookups ? t.collection_->lookups() : t.collection_->parameters();
  std::vector<ParameterState> found;
  for (size_t i = 0; i < all.size(); ++i) {
    const Storage& s = *all[i];
    ParameterState state{s.name, dims_of(s), s.size(), t.kernels_.states, {}, {}};
    if (contents && i < states.size() && states[i].touched)
      for (int k = 0; k < t.kernels_.states; ++k)
        state.arrays.emplace_back(states[i].array[k], states[i].array[k] + s.size());
    if (contents && t.average_ && i < t.average_->means(lookups).size())
      state.mean = t.average_->means(lookups)[i];
    found.push_back(std::move(state));
  }
  return found;
}

TrainerState TrainerFile::state_of(Trainer& t, const char* call, bool contents) {
  if (contents) {
    refuse_averaged(t, call);
    t.bring_states();
  }
  TrainerState s;
  s.kind = t.name();
  s.learning_rate = t.learning_rate_;
  s.clip_threshold = t.clip_threshold_;
  s.sparse_updates = t.sparse_updates_;
  s.updates = t.updates_;
  s.status_updates = t.status_updates_;
  s.status_clips = t.status_clips_;
  s.cycle = t.cycle();
  if (t.average_) {
    s.average = static_cast<TrainerState::Average>(static_cast<int>(t.average_->kind()) + 1);
    s.average_every = t.average_->every();
    s.average_beta = t.average_->beta();
  }
  s.parameters = states_of(t, false, contents);
  s.lookups = states_of(t, true, contents);
  return s;
}

void TrainerFile::take(Trainer& t, std::vector<ParameterState>& read, bool lookups) {
  auto& states = lookups ? t.lookup_states_ : t.parameter_states_;
  for (size_t i = 0; i < read.size(); ++i) {
    if (t.kernels_.states > 0) {
      states[i].touched = !read[i].arrays.empty();
      states[i].on_device = false;
      std::memset(states[i].buffer.data(), 0, states[i].buffer.size() * sizeof(float));
    }
    for (size_t k = 0; k < read[i].arrays.size(); ++k)
      std::copy(read[i].arrays[k].begin(), read[i].arrays[k].end(), states[i].array[k]);
    if (t.average_) t.average_->means(lookups).push_back(std::move(read[i].mean));
  }
}

// The state fits. Nothing can fail but for want of memory, before anything has changed.
void TrainerFile::take(Trainer& t, TrainerState& s) {
  std::unique_ptr<MovingAverage> average;
  if (s.average != TrainerState::Average::none)
    average = std::make_unique<MovingAverage>(
        static_cast<MovingAverage::Kind>(static_cast<int>(s.average) - 1), s.average_beta, s.average_every);
  t.allocate_states();
  t.learning_rate_ = s.learning_rate;
  t.set_clip_threshold(s.clip_threshold);
  t.sparse_updates_ = s.sparse_updates;
  t.updates_ = s.updates;
  t.status_updates_ = s.status_updates;
  t.status_clips_ = s.status_clips;
  t.set_cycle(s.cycle);
  t.average_ = std::move(average);
  take(t, s.parameters, false);
  take(t, s.lookups, true);
}

namespace {

// What symbolic links lead to, be it there or not.
std::filesystem::path linked(std::filesystem::path path) {
  std::error_code none;
  for (int links = 0; links < 40 && std::filesystem::is_symlink(path, none); ++links)
    path = path.parent_path() / std::filesystem::read_symlink(path, none);
  return path;
}

bool write(std::FILE* file, const std::string& content) {
  if (!file) return false;
  const bool whole = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  return std::fclose(file) == 0 && whole;
}

// By a file beside it, which is no other's. What is no plain file, such as /dev/stdout, cannot be replaced.
bool replace(const std::string& name, const std::string& content) {
  std::error_code error;
  const auto old = std::filesystem::status(name, error);
  if (!std::filesystem::status_known(old)) return false;  // links in a circle
  if (std::filesystem::exists(old) && !std::filesystem::is_regular_file(old))
    return write(std::fopen(name.c_str(), "ab"), content);
  const std::filesystem::path path = linked(name);
  std::string part;
  std::FILE* file = nullptr;
  for (int n = 0; !file && n < 1000 && (n == 0 || errno == EEXIST); ++n) {
    part = path.native() + ".part" + (n ? std::to_string(n) : "");
    file = std::fopen(part.c_str(), "wbx");
  }
  if (!file) return false;
  bool done = write(file, content);
  error.clear();
  if (done && std::filesystem::exists(old)) std::filesystem::permissions(part, old.permissions(), error);
  done = done && std::rename(part.c_str(), path.c_str()) == 0;
  if (!done) std::remove(part.c_str());
  return done;
}

}  // namespace

TrainerState trainer_state(Trainer& trainer, const char* call, bool contents) {
  return TrainerFile::state_of(trainer, call, contents);
}

void set_trainer_state(Trainer& trainer, TrainerState state) { TrainerFile::take(trainer, state); }

void save_trainer(Trainer& trainer, const std::string& path) {
  const std::string content = written(trainer_state(trainer, "Trainer.save()"));
  if (!replace(path, content)) throw RuntimeError(text("Trainer.save(): cannot write '", path, "'"));
}

void populate_trainer(Trainer& trainer, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeError(text("Trainer.populate(): cannot read '", path, "'"));
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw RuntimeError(text("Trainer.populate(): cannot read '", path, "'"));
  refuse_averaged(trainer, "Trainer.populate()");
  const TrainerState like = trainer_state(trainer, "Trainer.populate()", false);
  Lines lines(all, path);
  set_trainer_state(trainer, read(like, lines));
}

}  // namespace dyc
