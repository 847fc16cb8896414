#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "experiments/commands/commands.hpp"
#include "results/run_directory.hpp"
#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/text_dataset.hpp"
#include "workers/data/token_stream.hpp"

namespace syncopate {

namespace {

namespace fs = std::filesystem;
using fs::path;

constexpr const char* train_file = "train.bin";
constexpr const char* test_file = "test.bin";
constexpr const char* vocabulary_file = "vocabulary.txt";
constexpr const char* end_of_text = "<end of text>";
constexpr const char* blanks = " \n\t";  // where a text may be divided

constexpr std::uint64_t most_text_bytes = std::uint64_t{1} << 34;

// Looks for an interruption after every 2^16 tokens: a text may be long, and a token takes nanoseconds.
void poll_interrupt(std::int64_t tokens) {
  if ((tokens & 0xffff) == 0) throw_if_interrupted();
}

// Returns the file's content. If the file is compressed with gzip, decompresses it. Throws DataFault.
std::string unpacked(const path& file) {
  std::string content = content_of(file, most_text_bytes);
  if (!content.starts_with("\x1f\x8b")) return content;
  bool is_read = false;
  GzipStream stream([&] { return std::exchange(is_read, true) ? std::string_view() : std::string_view(content); });
  std::string text;
  std::vector<char> piece(1 << 20);
  try {
    while (const std::size_t got = stream.read(piece.data(), piece.size())) {
      throw_if_interrupted();
      text.append(piece.data(), got);
    }
  } catch (const GzipFault& problem) {
    reject(file, problem.what());
  }
  return text;
}

// Returns the files of a folder, sorted by bytes, so that the result does not depend on the file system.
std::vector<path> files_in(const std::string& folder, std::vector<std::string>& faults) {
  std::vector<path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
  }
  if (error) faults.push_back(fmt::format("{}: {}", folder, error.message()));
  std::ranges::sort(files);
  return files;
}

// The texts that a command names, in memory. Folders may contain other files than texts in UTF-8, which are left out.
// If the command names such a file, that is a fault.
struct Texts {
  std::vector<std::string> all{};
  std::vector<path> left_out{};
};

Texts read_texts(const std::vector<std::string>& names) {
  Texts texts;
  std::vector<std::string> faults;
  for (const std::string& name : names) {
    std::error_code error;
    const bool is_folder = fs::is_directory(name, error);
    for (const path& file : is_folder ? files_in(name, faults) : std::vector<path>{name}) try {
        throw_if_interrupted();
        std::string content = unpacked(file);
        content.erase(0, content.size() - checked_text(file, content).size());  // the byte order mark
        texts.all.push_back(std::move(content));
      } catch (const DataFault& problem) {
        if (is_folder)
          texts.left_out.push_back(file);
        else
          faults.emplace_back(problem.what());
      }
  }
  if (!faults.empty()) throw ConfigurationFault(fmt::format("{}", fmt::join(faults, "\n")));
  return texts;
}

// Calls `visit` with the training part and the test part of each text, of which one may be empty. A text is divided
// after a blank or the end of a line, so that no word or character is cut. With `lines` each line is a text.
void for_each_text(const Texts& texts, const TokenFilesOptions& options,
                   const std::function<void(std::string_view train, std::string_view test)>& visit) {
  for (std::string_view text : texts.all) {
    throw_if_interrupted();
    if (!options.lines) {
      const auto least = static_cast<std::size_t>((1 - options.test_share) * static_cast<double>(text.size()));
      const std::size_t blank = text.find_first_of(blanks, least);
      const std::size_t end = blank == text.npos ? text.size() : blank + 1;
      visit(text.substr(0, end), text.substr(end));
      continue;
    }
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      const bool is_train = split_of(line, options.test_share) == Split::train;
      visit(is_train ? line : std::string_view(), is_train ? std::string_view() : line);
    }
  }
}

// A tokenizer: calls `token` with the number of each token of a text, and of the end of a text.
struct Tokenizer {
  std::vector<std::string> vocabulary;  // by token, as shown in vocabulary.txt
  std::int32_t end = 0;
  std::function<void(std::string_view text, const std::function<void(std::int32_t)>& token)> tokens;
};

Tokenizer byte_tokenizer() {
  Tokenizer result;
  for (int byte = 0; byte < 256; ++byte) result.vocabulary.push_back(fmt::format("<0x{:02X}>", byte));
  result.end = static_cast<std::int32_t>(result.vocabulary.size());
  result.vocabulary.emplace_back(end_of_text);
  result.tokens = [](std::string_view text, const auto& token) {
    for (const char byte : text) token(static_cast<unsigned char>(byte));
  };
  return result;
}

// Whether the text can be divided at all: after a blank that is not its last character.
bool can_be_divided(std::string_view text) {
  const std::size_t blank = text.find_first_of(blanks);
  return blank != text.npos && blank + 1 < text.size();
}

// The vocabulary consists of the most frequent words of the training parts.
Tokenizer word_tokenizer(const Texts& texts, const TokenFilesOptions& options) {
  std::unordered_map<std::string, std::int64_t> counts;
  std::int64_t seen = 0;
  for_each_text(texts, options, [&](std::string_view train, std::string_view) {
    for_each_word(train, [&](std::string_view word) {
      poll_interrupt(++seen);
      ++counts[std::string(word)];
    });
  });
  Tokenizer result;
  result.vocabulary = {end_of_text, "<unknown>"};
  const auto special = static_cast<std::int32_t>(result.vocabulary.size());
  std::unordered_map<std::string, std::int32_t> numbers;
  const auto words = static_cast<std::size_t>(options.words.value_or(TextOptions().words));
  for (std::string& word : most_frequent(counts, words, 1)) {
    numbers.emplace(word, special + static_cast<std::int32_t>(numbers.size()));
    result.vocabulary.push_back(std::move(word));
  }
  result.tokens = [numbers = std::move(numbers)](std::string_view text, const auto& token) {
    for_each_word(text, [&](std::string_view word) {
      const auto found = numbers.find(std::string(word));
      token(found == numbers.end() ? 1 : found->second);
    });
  };
  return result;
}

// Appends a token as a file stores it.
void append(std::string& content, std::int32_t token, TokenType type) {
  std::array<char, sizeof(token)> bytes{};
  std::memcpy(bytes.data(), &token, sizeof(token));  // little-endian, see token_stream.cpp
  content.append(bytes.data(), bytes_of(type));
}

std::string cannot_be_written(const std::error_code& error) {
  return fmt::format("cannot be written: {}", error.message());
}

// Returns why the folder cannot be created, or replaced by another one; empty if it can. Tries to create a file beside
// the folder or, if folders above are missing, beside the first of these.
std::string why_not_writable(const path& folder) {
  const auto is_missing = [](const path& part) {
    std::error_code ignored;
    return fs::symlink_status(part, ignored).type() == fs::file_type::not_found;
  };
  path above = folder.parent_path();
  while (is_missing(above) && above.has_relative_path()) above = above.parent_path();
  const std::string why = why_not_replaceable(above / ".tried");
  return why.empty() ? "" : fmt::format("cannot be written: {}", why);
}

// Returns why the folder cannot be replaced by this command's files; empty if it can.
std::string why_not_replaceable_folder(const path& folder) {
  std::error_code error;
  const fs::file_status status = fs::status(folder, error);
  if (status.type() == fs::file_type::not_found) return why_not_writable(folder);
  if (!fs::status_known(status)) return cannot_be_written(error);
  if (!fs::is_directory(status)) return "is not a folder";
  if (access(folder.c_str(), R_OK | W_OK | X_OK) != 0) return cannot_be_written({errno, std::generic_category()});
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name != train_file && name != test_file && name != vocabulary_file)
      return fmt::format(
          "contains {}, which is not a file of this command; must be a new or empty folder, or one that "
          "this command has written",
          name);
  }
  return error ? error.message() : why_not_writable(folder);
}

}  // namespace

Action prepare_token_files(const TokenFilesOptions& options) {
  if (options.words && !options.by_words)
    throw ConfigurationFault("--words: needs --tokenizer words; bytes have a vocabulary of 256 and the end of a text");
  // Without a trailing slash, so that the name has a last part.
  path folder = fs::absolute(options.to).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (const std::string why = why_not_replaceable_folder(folder); !why.empty())
    throw ConfigurationFault(fmt::format("--to {}: {}", options.to, why));

  const Texts texts = read_texts(options.texts);
  const Tokenizer tokenizer = options.by_words ? word_tokenizer(texts, options) : byte_tokenizer();
  const auto vocabulary = std::ssize(tokenizer.vocabulary);
  const TokenType type =
      vocabulary <= std::numeric_limits<std::uint16_t>::max() + std::int64_t{1} ? TokenType::uint16 : TokenType::uint32;
  struct Part {
    std::string content;
    std::int64_t tokens = 0;
  };
  Part train, test;
  std::int64_t unknown = 0, documents = 0;
  bool has_test_part = false, has_divisible_text = false;
  for_each_text(texts, options, [&](std::string_view train_text, std::string_view test_text) {
    ++documents;
    has_test_part = has_test_part || !test_text.empty();
    has_divisible_text = has_divisible_text || can_be_divided(train_text);
    for (const auto& [text, part] : {std::pair(train_text, &train), std::pair(test_text, &test)}) {
      const std::int64_t before = part->tokens;
      const auto put = [&, part = part](std::int32_t token) {
        append(part->content, token, type);
        poll_interrupt(++part->tokens);
        unknown += options.by_words && token == 1 ? 1 : 0;
      };
      tokenizer.tokens(text, put);
      if (part->tokens > before) put(tokenizer.end);
    }
  });
  const std::string named = fmt::format("{}", fmt::join(options.texts, ", "));
  if (texts.all.empty()) throw ConfigurationFault(fmt::format("{}: contains no text in UTF-8", named));
  if (!options.lines && !has_test_part) {
    if (has_divisible_text)
      throw ConfigurationFault(
          fmt::format("{}: --test-share {} leaves nothing for tests: no text can be divided in its last {} %, after a "
                      "blank or the end of a line; must be larger",
                      named, options.test_share, shown_number(100 * options.test_share)));
    throw ConfigurationFault(
        fmt::format("{}: nothing is left for tests: a text is divided after a blank or the end of a line, and none has "
                    "one before its last character; must be longer{}",
                    named, texts.all.size() > 1 ? ", or use --lines, which keeps lines whole" : ""));
  }
  for (const auto& [part, name] : {std::pair(&train, "training"), std::pair(&test, "tests")})
    if (part->tokens == 0)
      throw ConfigurationFault(
          fmt::format("{}: --test-share {} leaves nothing for {}; training and tests each need at least one {}", named,
                      options.test_share, name, options.by_words ? "word" : "character"));
  FileContents files;
  for (const auto& [part, name] : {std::pair(&train, train_file), std::pair(&test, test_file)}) {
    if (options.header && part->tokens > std::numeric_limits<std::int32_t>::max())
      throw ConfigurationFault(
          fmt::format("--header: {} has {} tokens; llm.c's header counts at most 2^31 - 1", name, part->tokens));
    files[name] = (options.header ? token_file_header(type, part->tokens) : "") + std::move(part->content);
  }
  files[vocabulary_file] = fmt::format("{}\n", fmt::join(tokenizer.vocabulary, "\n"));
  std::string summary = fmt::format("{}\n{} of {}: {} tokens for training, {} for tests, from a vocabulary of {}\n",
                                    options.to, counted(documents, options.lines ? "line" : "text"),
                                    counted(texts.all.size(), "file"), train.tokens, test.tokens, vocabulary);
  if (unknown > 0)
    summary += fmt::format(
        "{} % of the tokens are words beyond the vocabulary\n",
        shown_number(100 * static_cast<double>(unknown) / static_cast<double>(train.tokens + test.tokens), 3));
  if (!texts.left_out.empty())
    summary += fmt::format("{} of folders left out, without text in UTF-8, such as {}\n",
                           counted(texts.left_out.size(), "file"), texts.left_out.front().string());
  return [to = options.to, folder = std::move(folder), files = std::move(files), summary = std::move(summary)] {
    try {
      write_directory(folder, files);
    } catch (const std::system_error& problem) {
      throw std::runtime_error(fmt::format("--to {}: {}", to, cannot_be_written(problem.code())));
    }
    standard_output.write(printable_lines(summary));
  };
}

}  // namespace syncopate
