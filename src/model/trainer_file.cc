#include "model/trainer_file.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
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

struct ReadState {
  std::vector<std::vector<float>> arrays;
  MovingAverage::Mean mean;
};

}  // namespace

// Has the trainer's private parts.
struct TrainerFile {
  static std::string written(Trainer& t);
  static void read(Trainer& t, Lines& in);

 private:
  static void put_states(std::string& out, const Trainer& t, bool lookups);
  static std::vector<ReadState> read_states(const Trainer& t, Lines& in, bool lookups, bool average);
  static void take(Trainer& t, std::vector<ReadState>& read, bool lookups);
  static const std::vector<StoragePtr>& storages(const Trainer& t, bool lookups) {
    return lookups ? t.collection_->lookups() : t.collection_->parameters();
  }
};

void TrainerFile::put_states(std::string& out, const Trainer& t, bool lookups) {
  const auto& states = lookups ? t.lookup_states_ : t.parameter_states_;
  const auto& all = storages(t, lookups);
  for (size_t i = 0; i < all.size(); ++i) {
    const Storage& s = *all[i];
    const bool there = i < states.size() && states[i].touched;
    const MovingAverage::Mean* mean = nullptr;
    if (t.average_ && i < t.average_->means(lookups).size()) mean = &t.average_->means(lookups)[i];
    out += text("#State# ", dims_of(s), ' ', s.size(), ' ', t.kernels_.states, ' ', there ? 1 : 0, ' ',
                mean ? mean->count : 0, ' ', s.name, '\n');
    if (there)
      for (int k = 0; k < t.kernels_.states; ++k) put_line(out, states[i].array[k], s.size());
    if (mean && mean->count) put_line(out, mean->values.data(), s.size());
  }
}

std::string TrainerFile::written(Trainer& t) {
  if (t.average_ && t.average_->swapped())
    throw RuntimeError(
        "Trainer.save(): the parameters have the values of the moving average; wanted "
        "swap_params_to_weights() "
        "before");
  t.bring_states();
  std::string out = text(kHeader, t.name(), "\nlearning_rate ");
  put(out, t.learning_rate_);
  out += "\nclip_threshold ";
  put(out, t.clip_threshold_);
  out += text("\nsparse_updates ", t.sparse_updates_ ? 1 : 0, "\nupdates ", t.updates_, "\nstatus_updates ",
              t.status_updates_, "\nstatus_clips ", t.status_clips_, "\ncycle ", t.cycle(), "\naverage ");
  if (t.average_) {
    out += text(static_cast<int>(t.average_->kind()) + 1, "\naverage_every ", t.average_->every(),
                "\naverage_beta ");
    put(out, t.average_->beta());
  } else {
    out += '0';
  }
  out += text("\nparameters ", t.collection_->parameters().size(), "\nlookups ",
              t.collection_->lookups().size(), '\n');
  put_states(out, t, false);
  put_states(out, t, true);
  return out + "#End#\n";
}

std::vector<ReadState> TrainerFile::read_states(const Trainer& t, Lines& in, bool lookups, bool average) {
  std::vector<ReadState> read;
  for (const StoragePtr& s : storages(t, lookups)) {
    const std::string head = text("#State# ", dims_of(*s), ' ', s->size(), ' ', t.kernels_.states, ' ');
    const std::string wanted = text("'", head, ".. ", s->name, "'");
    std::string_view line = in.next(wanted);
    if (line.substr(0, head.size()) != head) in.refuse(wanted);
    line.remove_prefix(head.size());
    const size_t first = line.find(' '), second = line.find(' ', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) in.refuse(wanted);
    if (line.substr(second + 1) != s->name) in.refuse(wanted);
    ReadState state;
    const bool there = in.parsed<unsigned>(line.substr(0, first), wanted) != 0;
    state.mean.count = in.parsed<uint64_t>(line.substr(first + 1, second - first - 1), wanted);
    if (state.mean.count && !average) in.refuse("no mean where there is no moving average");
    if (there)
      for (int k = 0; k < t.kernels_.states; ++k) state.arrays.push_back(in.floats(s->size()));
    if (state.mean.count) state.mean.values = in.floats(s->size());
    read.push_back(std::move(state));
  }
  return read;
}

void TrainerFile::take(Trainer& t, std::vector<ReadState>& read, bool lookups) {
  auto& states = lookups ? t.lookup_states_ : t.parameter_states_;
  for (size_t i = 0; i < read.size(); ++i) {
    if (t.kernels_.states > 0) {
      states[i].touched = !read[i].arrays.empty();
      states[i].away = false;
      std::memset(states[i].buffer.data(), 0, states[i].buffer.size() * sizeof(float));
    }
    for (size_t k = 0; k < read[i].arrays.size(); ++k)
      std::copy(read[i].arrays[k].begin(), read[i].arrays[k].end(), states[i].array[k]);
    if (t.average_) t.average_->means(lookups).push_back(std::move(read[i].mean));
  }
}

void TrainerFile::read(Trainer& t, Lines& in) {
  in.expect(std::string(kHeader) + t.name());
  const float rate = in.value<float>("learning_rate"), clip = in.value<float>("clip_threshold");
  const bool sparse = in.value<unsigned>("sparse_updates") != 0;
  const auto updates = in.value<uint64_t>("updates"), since = in.value<uint64_t>("status_updates"),
             clips = in.value<uint64_t>("status_clips"), cycle = in.value<uint64_t>("cycle");
  std::unique_ptr<MovingAverage> average;
  const auto kind = in.value<unsigned>("average");
  if (kind > 2) in.refuse("average 0, 1 or 2");
  if (kind) {
    const auto every = in.value<uint32_t>("average_every");
    const float beta = in.value<float>("average_beta");
    if (every == 0 || !(beta >= 0.f && beta < 1.f)) in.refuse("0 <= average_beta < 1 and average_every > 0");
    average = std::make_unique<MovingAverage>(static_cast<MovingAverage::Kind>(kind - 1), beta, every);
  }
  in.expect(text("parameters ", t.collection_->parameters().size()));
  in.expect(text("lookups ", t.collection_->lookups().size()));
  auto parameters = read_states(t, in, false, kind != 0), lookups = read_states(t, in, true, kind != 0);
  in.expect("#End#");
  if (!in.at_end()) in.refuse("nothing after #End#", "more lines");
  // Nothing can fail from here on but memory.
  t.allocate_states();
  t.learning_rate_ = rate;
  t.set_clip_threshold(clip);
  t.sparse_updates_ = sparse;
  t.updates_ = updates;
  t.status_updates_ = since;
  t.status_clips_ = clips;
  t.set_cycle(cycle);
  t.average_ = std::move(average);
  take(t, parameters, false);
  take(t, lookups, true);
}

void save_trainer(Trainer& trainer, const std::string& path) {
  const std::string content = TrainerFile::written(trainer), part = path + ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out << content;
  out.close();
  if (!out || std::rename(part.c_str(), path.c_str()) != 0) {
    std::remove(part.c_str());
    throw RuntimeError(text("Trainer.save(): cannot write '", path, "'"));
  }
}

void populate_trainer(Trainer& trainer, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw RuntimeError(text("Trainer.populate(): cannot read '", path, "'"));
  const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (file.bad()) throw RuntimeError(text("Trainer.populate(): cannot read '", path, "'"));
  if (trainer.averaged())
    throw RuntimeError(
        "Trainer.populate(): the parameters have the values of the moving average; wanted "
        "swap_params_to_weights() before");
  Lines lines(all, path);
  TrainerFile::read(trainer, lines);
}

}  // namespace dyc
