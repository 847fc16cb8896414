// What reading a text shows, kept: how many sequences there are and how long, and its vocabulary. A command that trains
// nothing needs no more, and need not read the text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "workers/datasets/dataset.hpp"

namespace syncopate {

struct TextContents {
  DatasetSize size;  // without marks and notes
  std::vector<std::string> words;
  std::int64_t left_out = 0;  // lines without a word
};

// Thread-safe, and safe beside other processes with the same directory.
class VocabularyCache {
 public:
  // Kept in a file each in `directory`, and in this process alone where that is empty. A file that is damaged, or
  // cannot be read or written, costs time and nothing else.
  explicit VocabularyCache(std::filesystem::path directory);

  // What `build` gives, or gave for the same name: hexadecimal digits that stand for all that decides it.
  TextContents contents(const std::string& name, const std::function<TextContents()>& build);

 private:
  std::filesystem::path directory_;
  std::mutex mutex_;
  std::map<std::string, TextContents> known_;
};

// The user's, in its folder of users_cache.hpp.
VocabularyCache& vocabulary_cache();

}  // namespace syncopate
