#include "model/text_io.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "model/numbers.h"
#include "model/tuning.h"

namespace dyc {

namespace {

constexpr size_t kToken = 256;       // no number is longer
constexpr size_t kHeader = 1 << 16;  // no header is longer

constexpr const char* kParameter = "#Parameter#";
constexpr const char* kLookup = "#LookupParameter#";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string dims_text(const std::vector<uint32_t>& dims) {
  std::string s = "{";
  for (size_t i = 0; i < dims.size(); ++i) s += (i ? "," : "") + std::to_string(dims[i]);
  return s + "}";
}

// What a message shows of a file's text.
std::string excerpt(const char* begin, const char* end) {
  std::string shown;
  for (const char* p = begin; p != end && shown.size() < 60; ++p) shown += *p >= ' ' && *p <= '~' ? *p : '?';
  return "'" + shown + (static_cast<size_t>(end - begin) > shown.size() ? "..." : "") + "'";
}

size_t bytes_of(const float* values, size_t n, float factor) {
  size_t special = 0;
  for (size_t i = 0; i < n; ++i) special += !std::isfinite(values[i] * factor);
  return n * kNumberWidth - special * (kNumberWidth - 5) + 1;
}

}  // namespace

// For messages: a damaged key may be no UTF-8.
std::string TextBlock::str() const {
  std::string shown = key;
  for (char& c : shown)
    if (static_cast<unsigned char>(c) >= 0x80) c = '?';
  return text(lookup ? "LookupParameter " : "Parameter ", shown, " ", dims_text(dims));
}

std::vector<uint32_t> file_dims(const Storage& s) {
  std::vector<uint32_t> dims(s.dim.d, s.dim.d + s.dim.nd);
  if (s.is_lookup()) dims.push_back(s.rows);
  return dims;
}

TextWriter::TextWriter(int fd, std::string path)
    : fd_(fd), path_(std::move(path)), buffer_(new char[tuning::kTextBuffer]) {}

void TextWriter::flush() {
  for (size_t done = 0; done < used_;) {
    const ssize_t n = ::write(fd_, buffer_.get() + done, used_ - done);
    if (n >= 0) done += static_cast<size_t>(n);
    else if (errno != EINTR) throw SystemError(errno, path_);
  }
  used_ = 0;
}

void TextWriter::put(const std::string& s) {
  for (size_t done = 0; done < s.size();) {
    if (used_ == tuning::kTextBuffer) flush();
    const size_t n = std::min(s.size() - done, tuning::kTextBuffer - used_);
    std::memcpy(buffer_.get() + used_, s.data() + done, n);
    used_ += n;
    done += n;
  }
}

void TextWriter::put_numbers(const float* values, size_t n, float factor) {
  for (size_t i = 0; i < n;) {
    if (tuning::kTextBuffer - used_ < kNumberWidth) flush();
    char* to = buffer_.get() + used_;
    const size_t stop = std::min(n, i + (tuning::kTextBuffer - used_) / kNumberWidth);
    for (; i < stop; ++i) to = write_number(values[i] * factor, to);
    used_ = static_cast<size_t>(to - buffer_.get());
  }
  put("\n");
}

void TextWriter::write(const Storage& s, const std::string& key) {
  const float factor = s.decay ? s.decay->factor : 1.f;
  const bool has_grad = s.grad_to_save();
  const std::vector<float> grad = has_grad ? s.copy_grad() : std::vector<float>();
  const size_t bytes =
      bytes_of(s.values(), s.size(), factor) + (has_grad ? bytes_of(grad.data(), s.size(), 1.f) : 0);
  put(text(s.is_lookup() ? kLookup : kParameter, " ", key, " ", dims_text(file_dims(s)), " ", bytes,
           has_grad ? " FULL_GRAD\n" : " ZERO_GRAD\n"));
  put_numbers(s.values(), s.size(), factor);
  if (has_grad) put_numbers(grad.data(), s.size(), 1.f);
}

TextReader::TextReader(int fd, std::string path)
    : fd_(fd),
      path_(std::move(path)),
      buffer_(new char[tuning::kTextBuffer]),
      at_(buffer_.get()),
      end_(at_) {}

void TextReader::fail(size_t line, const std::string& message) const {
  throw RuntimeError(text(path_, ", line ", line, ": ", message));
}

bool TextReader::fill() {
  const size_t kept = static_cast<size_t>(end_ - at_);
  std::memmove(buffer_.get(), at_, kept);
  at_ = buffer_.get();
  end_ = at_ + kept;
  while (!ended_) {
    const ssize_t n = ::read(fd_, buffer_.get() + kept, tuning::kTextBuffer - kept);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw SystemError(errno, path_);
    end_ += n;
    ended_ = n == 0;
    return n > 0;
  }
  return false;
}

// Whether n characters are there, or the rest of the file is.
bool TextReader::more(size_t n) {
  while (static_cast<size_t>(end_ - at_) < n)
    if (!fill()) return false;
  return true;
}

bool TextReader::next(TextBlock& block) {
  for (;;) {  // blank lines
    more(1);
    if (at_ == end_) return false;
    if (!is_blank(*at_) && *at_ != '\n') break;
    line_ += *at_++ == '\n';
  }
  more(kHeader);
  const char* stop = std::find(at_, end_, '\n');
  block.line = line_;
  const bool known = std::string_view(at_, static_cast<size_t>(end_ - at_)).starts_with("#");
  if (!known) refuse_start(at_, stop);
  if (stop == end_)
    fail(line_, text("the header ", excerpt(at_, stop), " has no end: the file is truncated"));
  parse_header(block, at_, stop);
  at_ = stop + 1;
  ++line_;
  return true;
}

void TextReader::refuse_start(const char* begin, const char* end) const {
  const std::string_view line(begin, static_cast<size_t>(end - begin));
  if (line.find("serialization::archive") != std::string_view::npos)
    fail(line_,
         "this is a Boost archive of DyNet 1.x, which no later version reads; load it with DyNet 1.1 and "
         "write "
         "the values with as_array(), then use parameters_from_numpy()");
  fail(line_, text("expected '#Parameter#' or '#LookupParameter#', found ", excerpt(begin, end),
                   line_ == 1 ? ": not a model file of DyNet" : ""));
}

// "#Parameter# key {2,3} 97 ZERO_GRAD"
void TextReader::parse_header(TextBlock& block, const char* begin, const char* end) {
  while (end > begin && is_blank(end[-1])) --end;
  std::vector<std::string_view> words;
  for (const char* p = begin; p <= end && words.size() < 7;) {
    const char* stop = std::find(p, end, ' ');
    words.emplace_back(p, static_cast<size_t>(stop - p));
    p = stop + 1;
  }
  const auto wrong = [&](const char* what) {
    fail(line_,
         text("expected '#Parameter# key {sizes} bytes ZERO_GRAD', found ", excerpt(begin, end), ": ", what));
  };
  if (words[0] != kParameter && words[0] != kLookup) wrong("no such kind of block");
  if (words.size() < 4 || words.size() > 5) wrong("4 or 5 words make a header");
  block.lookup = words[0] == kLookup;
  block.key = words[1];
  if (block.key.empty()) wrong("the key is empty");
  size_t bytes = 0;  // untrue in DyNet's files with inf or nan, so the lines count
  const auto done = std::from_chars(words[3].data(), words[3].data() + words[3].size(), bytes);
  if (done.ec != std::errc() || done.ptr != words[3].data() + words[3].size()) wrong("bytes is no number");
  flagged_ = words.size() == 5;
  block.has_grad = flagged_ && words[4] == "FULL_GRAD";
  if (flagged_ && !block.has_grad && words[4] != "ZERO_GRAD") wrong("neither ZERO_GRAD nor FULL_GRAD");
  parse_dims(block, words[2].data(), words[2].data() + words[2].size());
}

void TextReader::parse_dims(TextBlock& block, const char* begin, const char* end) {
  const auto wrong = [&](const std::string& what) {
    fail(line_, text("expected sizes such as {2,3}, found ", excerpt(begin, end), ": ", what));
  };
  if (end - begin < 2 || *begin != '{' || end[-1] != '}') wrong("not in braces");
  block.dims.clear();
  block.count = 1;
  const size_t most = kMaxDims + block.lookup;
  for (const char* p = begin + 1; p < end - 1;) {
    uint32_t size = 0;
    const auto done = std::from_chars(p, end - 1, size);
    if (done.ec != std::errc()) wrong("a size is no number below 4294967296");
    if (done.ptr != end - 1 && *done.ptr != ',') wrong("sizes are separated by commas");
    if (done.ptr == end - 2) wrong("a size is missing");
    if (block.dims.size() == most) wrong(text("more than ", most, " sizes"));
    if (__builtin_mul_overflow(block.count, static_cast<size_t>(size), &block.count) || block.count >> 40)
      wrong("more numbers than any file holds");
    block.dims.push_back(size);
    p = done.ptr + (done.ptr != end - 1);
  }
  if (block.lookup && block.dims.empty()) wrong("a table has rows");
}

void TextReader::read(TextBlock& block) {
  read_numbers(block, "values", block.values);
  if (block.has_grad) read_numbers(block, "gradients", block.grad);
  if (!flagged_) skip_unflagged(block);
}

void TextReader::skip(const TextBlock& block) {
  skip_line(block);
  if (block.has_grad) skip_line(block);
  if (!flagged_) skip_unflagged(block);
}

// Files of the first 2.0 do not say whether there is a gradient; one that follows is not used.
void TextReader::skip_unflagged(const TextBlock& block) {
  more(1);
  if (at_ != end_ && *at_ != '#' && *at_ != '\n' && *at_ != '\r') skip_line(block);
}

void TextReader::skip_line(const TextBlock& block) {
  for (;;) {
    more(1);
    if (at_ == end_) fail(line_, text(block.str(), ": the file is truncated here"));
    const void* found = std::memchr(at_, '\n', static_cast<size_t>(end_ - at_));
    if (found) {
      at_ = static_cast<const char*>(found) + 1;
      ++line_;
      return;
    }
    at_ = end_;
  }
}

void TextReader::read_numbers(const TextBlock& block, const char* what, std::vector<float>& out) {
  const auto wrong = [&](const auto&... parts) { fail(line_, text(block.str(), ": ", parts...)); };
  const auto truncated = [&] {
    wrong("the file is truncated after ", out.size(), " of ", block.count, " ", what);
  };
  out.clear();
  out.reserve(std::min<size_t>(block.count, 1 << 22));  // no more: sizes of a damaged file say nothing
  for (;;) {
    if (static_cast<size_t>(end_ - at_) < kToken) more(kToken);
    while (at_ != end_ && is_blank(*at_)) ++at_;
    if (at_ == end_ && !ended_) continue;
    if (at_ == end_) truncated();
    if (*at_ == '\n') break;
    if (out.size() == block.count) wrong("expected ", block.count, " ", what, ", found more");
    float value;
    if (end_ - at_ > kNumberWidth && read_fixed_number(at_, &value)) {
      at_ += kNumberWidth;
      out.push_back(value);
      continue;
    }
    if (static_cast<size_t>(end_ - at_) < kToken) more(kToken);
    const char* stop = at_;
    while (stop != end_ && !is_blank(*stop) && *stop != '\n') ++stop;
    if (stop == end_ && ended_) truncated();
    if (stop == end_ || !read_number(at_, stop, &value))
      wrong("expected ", block.count, " ", what, ", found ", excerpt(at_, stop), " for number ",
            out.size() + 1);
    at_ = stop;
    out.push_back(value);
  }
  ++at_;
  if (out.size() != block.count) wrong("expected ", block.count, " ", what, ", found ", out.size());
  ++line_;
}

}  // namespace dyc
