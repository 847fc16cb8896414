#include "workers/data/token_stream.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>
#include <functional>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "workers/base/files.hpp"
#include "workers/base/process.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {

namespace {

using std::filesystem::path;

static_assert(std::endian::native == std::endian::little, "tokens are little-endian");

// The first words of llm.c's header, by type.
struct HeaderForm {
  TokenType type;
  std::int32_t magic;
  std::int32_t version;
};
constexpr std::array header_forms = {HeaderForm{TokenType::uint16, 20240520, 1},
                                     HeaderForm{TokenType::uint32, 20240801, 7}};
constexpr std::size_t header_words = 256, header_bytes = header_words * sizeof(std::int32_t);

constexpr std::string_view name_of(TokenType type) {
  return type == TokenType::uint8 ? "uint8" : type == TokenType::uint16 ? "uint16" : "uint32";
}

// Refuses a header with an unknown magic number, because its words would be read as tokens: its third word counts the
// tokens that follow, and the rest of it is zero. `content`: bytes after the header.
void refuse_unknown_header(const path& file, const std::array<std::int32_t, header_words>& words, std::size_t content) {
  const auto is_size = [&](const HeaderForm& form) {
    return words[2] > 0 && content == static_cast<std::size_t>(words[2]) * bytes_of(form.type);
  };
  if (std::ranges::none_of(header_forms, is_size) || std::any_of(words.begin() + 3, words.end(), std::identity()))
    return;
  std::vector<std::string> known;
  for (const HeaderForm& form : header_forms) known.push_back(fmt::format("{} ({})", form.magic, name_of(form.type)));
  reject(file, fmt::format("has a header of an unknown kind, with the magic number {}; must have llm.c's header, with "
                           "the magic number {}, or no header",
                           words[0], fmt::join(known, " or ")));
}

// Returns the form of the file's header, and checks the header; null if the file has none.
const HeaderForm* header_form(const path& file, const MappedFile& mapped) {
  std::array<std::int32_t, header_words> words{};
  std::memcpy(words.data(), mapped.bytes.get(), std::min(mapped.size, header_bytes));
  const std::int32_t magic = words[0], version = words[1], tokens = words[2];
  const auto form = std::ranges::find(header_forms, magic, &HeaderForm::magic);
  if (form == header_forms.end()) {
    if (mapped.size >= header_bytes) refuse_unknown_header(file, words, mapped.size - header_bytes);
    return nullptr;
  }
  if (mapped.size < header_bytes)
    reject(file,
           fmt::format("ends within llm.c's header; has {} bytes, and the header has {}", mapped.size, header_bytes));
  if (version != form->version)
    reject(file, fmt::format("has version {} of llm.c's header; must be {} after the magic number {}", version,
                             form->version, magic));
  const std::size_t content = mapped.size - header_bytes;
  if (tokens < 1) reject(file, fmt::format("its header declares {} tokens; must declare at least 1", tokens));
  if (content != static_cast<std::size_t>(tokens) * bytes_of(form->type))
    reject(file, fmt::format("its header declares {} tokens of {}, but {} bytes follow it; must be {} bytes per token",
                             tokens, name_of(form->type), content, bytes_of(form->type)));
  return form;
}

// Whether tokens that are read as uint16 are probably uint32: every second number is 0.
bool look_like_uint32(const char* bytes, std::size_t size) {
  constexpr std::size_t least = 64, most = 4096;  // bytes
  const std::size_t judged = std::min(size, most) / sizeof(std::uint32_t) * sizeof(std::uint32_t);
  if (size % sizeof(std::uint32_t) != 0 || judged < least) return false;
  bool are_all_zero = true;
  for (std::size_t at = 0; at < judged; at += sizeof(std::uint32_t)) {
    if (bytes[at + 2] != 0 || bytes[at + 3] != 0) return false;
    are_all_zero = are_all_zero && bytes[at] == 0 && bytes[at + 1] == 0;
  }
  return !are_all_zero;
}

template <typename Element>
void append_as(const char* bytes, std::int64_t count, std::vector<std::int32_t>& out) {
  const std::size_t before = out.size();
  out.resize(before + static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    Element token;
    std::memcpy(&token, bytes + i * sizeof(Element), sizeof(Element));  // a bare file need not be aligned
    out[before + i] = static_cast<std::int32_t>(token);
  }
}

// Calls `with` with a value of the tokens' type.
template <typename With>
void with_type(TokenType type, const With& with) {
  switch (type) {
    case TokenType::uint8:
      return with(std::uint8_t{});
    case TokenType::uint16:
      return with(std::uint16_t{});
    case TokenType::uint32:
      return with(std::uint32_t{});
  }
}

// A random stream of Purpose::data_order, besides those of the sampler.
constexpr std::uint8_t window_stream = 2;

class TokenStream : public Dataset {
 public:
  TokenStream(DatasetSize size, Splits<TokenWindows> windows) : size_(std::move(size)), windows_(std::move(windows)) {}

  const DatasetSize& size() const override { return size_; }

  void gather(Split, std::span<const std::uint32_t> samples, float*, std::int64_t* labels) const override {
    std::fill_n(labels, samples.size(), 0);
  }

  std::span<const std::int32_t> tokens(Split split, std::uint32_t sample, const Visit& visit,
                                       std::vector<std::int32_t>& space) const override {
    const TokenWindows& windows = windows_[split];
    space.clear();
    if (split == Split::train && size_.draws_samples) {
      const RandomStream stream{.seed = visit.seed,
                                .purpose = Purpose::data_order,
                                .stream = window_stream,
                                .worker = Rank{static_cast<int>(sample)},
                                .step = visit.epoch};
      windows.append_at(static_cast<std::int64_t>(stream.uniform(0) * static_cast<double>(windows.begins())), space);
    } else {
      windows.append_window(sample, space);
    }
    return space;
  }

  std::int64_t length(Split, std::uint32_t) const override { return size_.shape.width; }

 private:
  DatasetSize size_;
  Splits<TokenWindows> windows_;
};

// Returns a pattern that matches only the text itself.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (std::string_view("*?[]{}\\~").find(c) != std::string_view::npos) result += '\\';
    result += c;
  }
  return result;
}

// Returns the files that match the pattern, sorted by the bytes of their names. `key`: that of the pattern. Throws
// KeyFault, or DataFault if the directory is empty.
std::vector<path> matching(const path& directory, std::string_view key, const std::string& pattern) {
  if (pattern.empty()) reject(directory, key, fmt::format("`{}` must be a pattern of files' names", key));
  glob_t found{};
  const std::string whole = path(pattern).is_absolute() ? pattern : escaped(directory.string()) + "/" + pattern;
  const int status = glob(whole.c_str(), GLOB_BRACE | GLOB_NOSORT, nullptr, &found);
  std::vector<path> files(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (status == GLOB_NOSPACE) throw std::bad_alloc();
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());  // braces may match a file twice
  std::error_code ignored;
  for (const path& file : files)
    if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored))
      reject(file, key, "is not a regular file");
  if (!files.empty()) return files;
  std::vector<std::string> others;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored))
    others.push_back(entry.path().filename().string());
  std::ranges::sort(others);
  constexpr std::size_t most_named = 5;
  const std::size_t left_out = others.size() - std::min(others.size(), most_named);
  others.resize(others.size() - left_out);
  const std::string none = fmt::format("no file matches {} = \"{}\"; the folder", key, pattern);
  if (others.empty()) reject(directory, none + " is empty");
  reject(directory, key,
         fmt::format("{} has {}{}", none, fmt::join(others, ", "),
                     left_out > 0 ? fmt::format(" and {} more", left_out) : ""));
}

Splits<std::vector<path>> files_of(const path& directory, const TokenStreamOptions& options) {
  require_directory(directory, "must be a directory with token files");
  Splits<std::vector<path>> files{.train = matching(directory, "train", options.train),
                                  .test = matching(directory, "test", options.test)};
  for (const path& file : files.train)
    if (std::ranges::find(files.test, file) != files.test.end())
      reject(file, options.train == TokenStreamOptions().train ? "test" : "train",
             fmt::format("matches both train = \"{}\" and test = \"{}\"; must match only one of them", options.train,
                         options.test));
  return files;
}

TokenWindows windows_of(const std::vector<path>& files, const TokenStreamOptions& options) {
  std::vector<TokenFile> opened;
  for (const path& file : files) opened.emplace_back(file, options.type);
  TokenWindows windows(std::move(opened), options.context);
  constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
  if (windows.windows() > most)
    reject(files.front().parent_path(), "context",
           fmt::format("has {} windows; must be at most {}: `context` must be larger", windows.windows(), most));
  if (windows.windows() > 0) return windows;
  const TokenFile& longest = *std::ranges::max_element(windows.files(), {}, &TokenFile::size);
  const std::string tokens = fmt::format("has {} tokens{}, fewer than a window of context + 1 = {}", longest.size(),
                                         files.size() > 1 ? ", the most of its split" : "", options.context + 1);
  if (longest.size() <= 1) reject(longest.path(), tokens + "; `context` must be smaller, and the file longer");
  reject(longest.path(), "context", fmt::format("{}; `context` must be at most {}", tokens, longest.size() - 1));
}

// Adds a note if files are shorter than a window, because these are left out.
void note_short_files(std::span<const TokenFile> files, std::int64_t context, std::vector<std::string>& notes) {
  const auto is_short = [&](const TokenFile& file) { return file.size() <= context; };
  const auto first = std::ranges::find_if(files, is_short);
  if (first == files.end()) return;
  const auto count = std::ranges::count_if(files, is_short);
  notes.push_back(fmt::format(
      "{}: has {} tokens, fewer than a window of {}, and is left out{}", first->path().string(), first->size(),
      context + 1, count > 1 ? fmt::format("; so are {} more of the {} files", count - 1, files.size()) : ""));
}

// Returns the vocabulary's size. Throws KeyFault if a token is not smaller.
std::int64_t vocabulary_of(std::span<const TokenFile> files, const TokenStreamOptions& options) {
  const std::int64_t most = options.vocabulary.value_or(std::int64_t{largest_token} + 1);
  std::int64_t vocabulary = options.vocabulary.value_or(2);
  for (const TokenFile& file : files) {
    const std::int64_t largest = file.largest();
    vocabulary = std::max(vocabulary, largest + 1);
    if (largest < most) continue;
    const auto found = file.find_at_least(most);
    reject(file.path(), options.vocabulary ? "vocabulary" : "format",
           fmt::format("token {}, counted from 0, is {}; must be less than {}", found ? found->index : 0,
                       found ? found->token : largest,
                       options.vocabulary ? fmt::format("`vocabulary`, {}", most)
                                          : fmt::format("{}: does `format` fit the file?", most)));
  }
  return vocabulary;
}

struct Opened {
  DatasetSize size;
  Splits<TokenWindows> windows;
};

Opened opened(const path& directory, const TokenStreamOptions& options) {
  const Splits<std::vector<path>> files = files_of(directory, options);
  Opened result{.size = {}, .windows = {windows_of(files.train, options), windows_of(files.test, options)}};
  const auto& [train, test] = result.windows;
  const std::int64_t test_windows = test.windows();
  if (options.test_windows.value_or(0) > test_windows)
    reject(directory, "test_windows",
           fmt::format("its test files have {0} windows; `test_windows` must be at most {0}", test_windows));
  const std::int64_t width = options.context + 1;
  DatasetSize& size = result.size;
  size.train = train.windows();
  size.test = options.test_windows.value_or(test_windows);
  size.shape = {.width = width,
                .vocabulary = std::max(vocabulary_of(train.files(), options), vocabulary_of(test.files(), options))};
  size.is_mapped = true;
  size.draws_samples = options.random;
  size.shortest = width;
  note_short_files(train.files(), options.context, size.notes);
  note_short_files(test.files(), options.context, size.notes);
  return result;
}

}  // namespace

std::size_t bytes_of(TokenType type) { return type == TokenType::uint8 ? 1 : type == TokenType::uint16 ? 2 : 4; }

std::string token_file_header(TokenType type, std::int64_t tokens) {
  const auto form = std::ranges::find(header_forms, type, &HeaderForm::type);
  assert(form != header_forms.end() && tokens <= std::numeric_limits<std::int32_t>::max());
  std::array<std::int32_t, header_words> words{form->magic, form->version, static_cast<std::int32_t>(tokens)};
  return {reinterpret_cast<const char*>(words.data()), sizeof(words)};
}

TokenFile::TokenFile(const std::filesystem::path& file, std::optional<TokenType> type)
    : path_(file), mapped_(read_or_reject(file, [&] { return map_file(file); })) {
  const HeaderForm* const form = header_form(file, mapped_);
  if (form && type && *type != form->type)
    reject(file, "format",
           fmt::format("has llm.c's header of {} tokens; `format` is \"{}\", and must be \"auto\" or \"{}\"",
                       name_of(form->type), name_of(*type), name_of(form->type)));
  type_ = form ? form->type : type.value_or(TokenType::uint16);
  begin_ = form ? header_bytes : 0;
  const std::size_t bytes = mapped_.size - begin_;
  if (bytes % bytes_of(type_) != 0)
    reject(file, fmt::format("has {} bytes; must be a multiple of {}, the size of a {} token{}", bytes, bytes_of(type_),
                             name_of(type_),
                             type ? "" : "; a file without llm.c's header has uint16 tokens unless `format` is set"));
  if (!form && !type && look_like_uint32(mapped_.bytes.get(), bytes))
    reject(file, "format",
           "every second number is 0, as if its tokens were uint32; `format` must be \"uint32\", or \"uint16\" if they "
           "are not");
  size_ = static_cast<std::int64_t>(bytes / bytes_of(type_));
}

void TokenFile::append(std::int64_t begin, std::int64_t count, std::vector<std::int32_t>& out) const {
  assert(0 <= begin && 0 <= count && begin + count <= size_);
  const char* const bytes = mapped_.bytes.get() + begin_ + static_cast<std::size_t>(begin) * bytes_of(type_);
  with_type(type_, [&](auto type) { append_as<decltype(type)>(bytes, count, out); });
}

// Calls `function` with the index of a piece's first token and a span of the piece's tokens, until it returns false.
// Does not use the mapped memory, which would count as this process's.
template <typename Function>
void TokenFile::for_each_piece(const Function& function) const {
  constexpr std::int64_t most = 1 << 18;  // tokens
  with_type(type_, [&](auto type) {
    using Element = decltype(type);
    try {
      OwnFile file(path_);
      std::vector<char> header(begin_);
      file.read(header.data(), header.size());
      std::vector<Element> piece(static_cast<std::size_t>(std::min(most, size_)));
      for (std::int64_t begin = 0; begin < size_; begin += most) {
        throw_if_interrupted();
        const auto count = static_cast<std::size_t>(std::min(most, size_ - begin));
        const std::size_t bytes = count * sizeof(Element);
        if (file.read(reinterpret_cast<char*>(piece.data()), bytes) != bytes)
          throw std::runtime_error("became shorter while it was being read");
        if (!function(begin, std::span<const Element>(piece).first(count))) return;
      }
    } catch (const Interrupted&) {
      throw;
    } catch (const std::runtime_error& problem) {
      reject(path_, problem.what());
    }
  });
}

std::optional<TokenFile::Found> TokenFile::find_at_least(std::int64_t token) const {
  std::optional<Found> found;
  for_each_piece([&](std::int64_t begin, const auto& tokens) {
    const auto at = std::ranges::find_if(tokens, [&](auto one) { return std::int64_t{one} >= token; });
    if (at != tokens.end()) found = Found{.index = begin + (at - tokens.begin()), .token = *at};
    return !found;
  });
  return found;
}

std::int64_t TokenFile::largest() const {
  const std::string name = content_hash(fmt::format("tokens {} {}", name_of(type_), digest_cache().digest(path_)));
  const TextContents contents = vocabulary_cache().contents(name, [&] {
    std::int64_t largest = 0;
    for_each_piece([&](std::int64_t, const auto& tokens) {
      largest = std::max(largest, std::int64_t{std::ranges::max(tokens)});
      return true;
    });
    TextContents known;
    known.size.shape.vocabulary = largest + 1;
    return known;
  });
  return contents.size.shape.vocabulary - 1;
}

TokenWindows::TokenWindows(std::vector<TokenFile> files, std::int64_t context)
    : files_(std::move(files)), context_(context), windows_{0}, begins_{0} {
  for (const TokenFile& file : files_) {
    windows_.push_back(windows_.back() + (file.size() - 1) / context_);
    begins_.push_back(begins_.back() + std::max<std::int64_t>(file.size() - context_, 0));
  }
}

void TokenWindows::append_window(std::int64_t window, std::vector<std::int32_t>& out) const {
  assert(0 <= window && window < windows());
  const auto file = static_cast<std::size_t>(std::ranges::upper_bound(windows_, window) - windows_.begin() - 1);
  files_[file].append((window - windows_[file]) * context_, context_ + 1, out);
}

void TokenWindows::append_at(std::int64_t begin, std::vector<std::int32_t>& out) const {
  assert(0 <= begin && begin < begins());
  const auto file = static_cast<std::size_t>(std::ranges::upper_bound(begins_, begin) - begins_.begin() - 1);
  files_[file].append(begin - begins_[file], context_ + 1, out);
}

DirectoryFormat token_stream(const TokenStreamOptions& options) {
  DirectoryFormat format{.variant = fmt::format("tokens\n{}\n{}\n{} {} {} {} {}", options.train, options.test,
                                                options.type ? bytes_of(*options.type) : 0, options.context,
                                                options.vocabulary.value_or(0), options.random,
                                                options.test_windows.value_or(0))};
  format.size = [options](const path& directory) { return opened(directory, options).size; };
  format.hash = [options](const path& directory) {
    const Splits<std::vector<path>> files = files_of(directory, options);
    return content_hash(digest_of_files(files.train) + digest_of_files(files.test));
  };
  format.load = [options](const path& directory) {
    Opened data = opened(directory, options);
    return std::make_shared<const TokenStream>(std::move(data.size), std::move(data.windows));
  };
  return format;
}

}  // namespace syncopate
