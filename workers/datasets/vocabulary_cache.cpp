#include "workers/datasets/vocabulary_cache.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "workers/files/content_hash.hpp"
#include "workers/files/own_file.hpp"
#include "workers/files/users_cache.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view format = "syncopate-vocabulary-3";

// The first line is a digest of the rest: what is damaged is nothing.
std::string text_of(const TextContents& contents) {
  const DatasetSize& size = contents.size;
  std::string rest =
      fmt::format("{} {} {} {} {} {} {} {} {}\n", format, size.train, size.test, size.classes, size.shape.width,
                  size.shortest, size.shape.vocabulary, contents.left_out, contents.words.size());
  for (const std::string& word : contents.words) rest += word + "\n";
  return content_hash(rest) + "\n" + rest;
}

std::optional<TextContents> read(const fs::path& file) {
  std::istringstream text;
  try {
    text.str(read_file(file).value_or(""));
  } catch (const std::runtime_error&) {  // nothing of ours: it is built once more
    return {};
  }
  std::string digest, word;
  std::size_t words = 0;
  TextContents contents;
  DatasetSize& size = contents.size;
  text >> digest >> word >> size.train >> size.test >> size.classes >> size.shape.width >> size.shortest >>
      size.shape.vocabulary >> contents.left_out >> words;
  while (contents.words.size() < words && text >> word) contents.words.push_back(word);
  return text_of(contents) == text.str() ? std::optional(std::move(contents)) : std::nullopt;
}

// Aside and then renamed: whoever reads meanwhile has all of it or nothing.
void write(const fs::path& file, const std::string& text) {
  std::error_code ignored;
  fs::create_directories(file.parent_path(), ignored);
  std::string aside = file.string() + ".XXXXXX";
  const int number = mkstemp(aside.data());
  if (number < 0) return;
  close(number);
  std::ofstream out(aside, std::ios::binary);
  out << text;
  out.close();
  if (out) fs::rename(aside, file, ignored);
  if (!out || ignored) fs::remove(aside, ignored);
}

}  // namespace

VocabularyCache::VocabularyCache(fs::path directory) : directory_(std::move(directory)) {}

TextContents VocabularyCache::contents(const std::string& name, const std::function<TextContents()>& build) {
  const std::lock_guard lock(mutex_);
  if (const auto found = known_.find(name); found != known_.end()) return found->second;
  const fs::path file = directory_.empty() ? fs::path() : directory_ / name;
  auto contents = file.empty() ? std::nullopt : read(file);
  if (!contents) {
    contents = build();
    if (!file.empty()) write(file, text_of(*contents));
  }
  return known_.emplace(name, *std::move(contents)).first->second;
}

VocabularyCache& vocabulary_cache() {
  static VocabularyCache cache(users_cache().empty() ? fs::path() : users_cache() / "vocabularies");
  return cache;
}

}  // namespace syncopate
