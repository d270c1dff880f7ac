// DyNet's text files of parameters. A file is a sequence of blocks:
//   #Parameter# <key> {d1,d2,...} <bytes> ZERO_GRAD
//   <values in memory order>
// #LookupParameter# for a table, whose number of rows comes last in the braces; with FULL_GRAD a second line
// holds the gradient; <bytes> counts the lines that follow. Nothing here touches a parameter.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/storage.h"

namespace dyc {

// A system call failed; becomes an OSError.
struct SystemError : std::runtime_error {
  SystemError(int number, const std::string& path) : std::runtime_error(path), code(number) {}
  int code;
};

struct TextBlock {
  bool lookup = false;
  std::string key;
  std::vector<uint32_t> dims;  // rows last
  bool has_grad = false;
  size_t line = 0;                  // of the header, from 1
  size_t count = 0;                 // of numbers
  std::vector<float> values, grad;  // empty unless read

  std::string str() const;  // "Parameter /W {2,3}"
};

// The row count of lookups at the end, as in a file.
std::vector<uint32_t> file_dims(const Storage& s);

class TextWriter {
 public:
  TextWriter(int fd, std::string path);  // the caller closes fd
  void write(const Storage& s, const std::string& key);
  void flush();

 private:
  void put(const std::string& text);
  void put_numbers(const float* values, size_t n, float factor);

  int fd_;
  std::string path_;
  std::unique_ptr<char[]> buffer_;
  size_t used_ = 0;
};

// Errors are RuntimeErrors that name the file and the line.
class TextReader {
 public:
  TextReader(int fd, std::string path);
  // The next header; false at the end of the file. Then either read() or skip().
  bool next(TextBlock& block);
  void read(TextBlock& block);
  void skip(const TextBlock& block);

 private:
  bool fill();  // makes room and reads on; false at the end of the file
  bool more(size_t n);
  void parse_header(TextBlock& block, const char* begin, const char* end);
  void parse_dims(TextBlock& block, const char* begin, const char* end);
  void read_numbers(const TextBlock& block, const char* what, std::vector<float>& out);
  void skip_line(const TextBlock& block);
  void skip_unflagged(const TextBlock& block);
  [[noreturn]] void refuse_start(const char* begin, const char* end) const;
  [[noreturn]] void fail(size_t line, const std::string& message) const;

  int fd_;
  std::string path_;
  std::unique_ptr<char[]> buffer_;
  const char *at_, *end_;
  bool ended_ = false;
  size_t line_ = 1;
  bool flagged_ = true;  // the block says whether it has a gradient
};

}  // namespace dyc
