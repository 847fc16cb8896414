// Streams of tokens in binary files, as nanoGPT, llm.c and `syncopate data tokens` write them, and the data set that
// their windows form.
// Source:  bare files: nanoGPT, data/*/prepare.py; files with a header: llm.c, dev/data/data_common.py and
//          llmc/dataloader.h.
// Shapes:  a file (a shard) of n tokens has (n - 1) / context windows of context + 1 tokens. Window w begins at token w
//          x context, so it overlaps the next one by one token. A model that predicts each next token thus predicts
//          each token of a shard exactly once. Exceptions are the first token and a rest that is shorter than a window.
// Differs: llm.c also leaves out windows that do not fill a batch of all processes. nanoGPT always reads windows at
//          random positions, as with `random`, and has no epochs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/base/arrays.hpp"
#include "workers/data/dataset.hpp"
#include "workers/data/datasets.hpp"

namespace syncopate {

// The type of a file's tokens, little-endian. The bytes of any file, such as a text, are tokens of type uint8.
enum class TokenType { uint8, uint16, uint32 };
std::size_t bytes_of(TokenType type);

// Returns the header of llm.c's files: 256 int32, of which the first three are a magic number, a version and the number
// of tokens. The type must be uint16 or uint32, and the number below 2^31.
std::string token_file_header(TokenType type, std::int64_t tokens);

// One memory-mapped file. Thread-safe.
class TokenFile {
 public:
  // `type`: that of the tokens, if it is given. Otherwise llm.c's header decides, and a file without one has uint16.
  // Throws DataFault if the file cannot be read or has no whole number of tokens, or if its header contradicts its size
  // or `type`.
  TokenFile(const std::filesystem::path& file, std::optional<TokenType> type);

  const std::filesystem::path& path() const { return path_; }
  std::int64_t size() const { return size_; }
  // Appends the tokens [begin, begin + count). Reads only the part of the file that contains them.
  void append(std::int64_t begin, std::int64_t count, std::vector<std::int32_t>& out) const;
  // Returns the first token of at least this number, and its index; nullopt: there is none. Reads the file piece by
  // piece, without keeping it in memory. Throws DataFault or Interrupted.
  struct Found {
    std::int64_t index = 0;
    std::int64_t token = 0;
  };
  std::optional<Found> find_at_least(std::int64_t token) const;
  // Returns the largest token. The result is cached by the file's digest. Throws DataFault or Interrupted.
  std::int64_t largest() const;

 private:
  template <typename Function>
  void for_each_piece(const Function& function) const;

  std::filesystem::path path_;
  TokenType type_ = TokenType::uint16;
  MappedFile mapped_;
  std::size_t begin_ = 0;  // where the tokens begin, in bytes
  std::int64_t size_ = 0;
};

// The windows of several files, in the order of the files.
class TokenWindows {
 public:
  // A file that is shorter than a window has no windows.
  TokenWindows(std::vector<TokenFile> files, std::int64_t context);

  std::span<const TokenFile> files() const { return files_; }
  std::int64_t windows() const { return windows_.back(); }
  // Number of tokens at which a window of any position can begin.
  std::int64_t begins() const { return begins_.back(); }
  // Append context + 1 tokens: those of a window, or of any position, in [0, begins()).
  void append_window(std::int64_t window, std::vector<std::int32_t>& out) const;
  void append_at(std::int64_t begin, std::vector<std::int32_t>& out) const;

 private:
  std::vector<TokenFile> files_;
  std::int64_t context_;
  // windows() and begins() of the files before each file; the last elements are those of all files.
  std::vector<std::int64_t> windows_, begins_;
};

struct TokenStreamOptions {
  // Patterns as for glob(7), with braces, relative to the data set's directory.
  std::string train = "*train*.bin";
  std::string test = "*{test,val}*.bin";
  std::optional<TokenType> type{};  // see TokenFile
  std::int64_t context = 256;       // tokens of a window that a model sees; the token after them is only predicted
  std::optional<std::int64_t> vocabulary{};  // nullopt: the largest token in the files + 1
  // Whether each visit of a training sample sees a window at a random position instead of the sample's own window.
  bool random = false;
  std::optional<std::int64_t> test_windows{};  // only the first ones; nullopt: all
};

// `size` reads all tokens, unless the largest token of each file is cached. All functions also throw Interrupted.
DirectoryFormat token_stream(const TokenStreamOptions& options);

}  // namespace syncopate
