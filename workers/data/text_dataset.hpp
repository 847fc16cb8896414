// Texts as a data set of tokens: words by number, between a first and a last token.
//
// The vocabulary is of the training texts alone; which texts are held out, a hash of each says (data/text.hpp). A
// sample's label is its text's category. Numbers below `special_tokens` are no words (data/text.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "workers/data/dataset.hpp"
#include "workers/data/text.hpp"

namespace syncopate {

struct TextOptions {
  double test_share = 0.1;     // of the texts, in (0, 1)
  std::int64_t words = 20000;  // most of the vocabulary
  std::int64_t least = 2;      // how often a word of it must be seen
};

// Where texts come from. Both throw DataFault.
struct TextSource {
  std::string variant;  // tells apart those who read equal files differently
  std::function<Corpus(const std::filesystem::path&)> read;
  std::function<std::string(const std::filesystem::path&)> hash;  // 16 hexadecimal digits of the files
};

// The source's variant with the options.
std::string text_variant(const TextSource& source, const TextOptions& options);

// Reads the text only if nothing of it is kept. Throws DataFault, also where the share leaves
// one of the splits empty, or where no word is frequent enough.
DatasetSize text_dataset_size(const TextSource& source, const TextOptions& options, const std::filesystem::path& path);

// Throws DataFault.
std::shared_ptr<const Dataset> load_text_dataset(const TextSource& source, const TextOptions& options,
                                                 const std::filesystem::path& path);

// The texts that can be a data set.
TextSource text_lines(bool labelled);  // of a file
TextSource wordnet_glosses();          // of a directory

// A data set of tokens, held in memory without padding.
// Sequences one after another, each with its label, or with one for each token.
class TokenSequences {
 public:
  void add(std::span<const std::int32_t> tokens, std::int64_t label);
  void add(std::span<const std::int32_t> tokens, std::span<const std::int32_t> token_labels);

  std::int64_t count() const { return std::ssize(labels_); }
  std::int64_t longest() const { return longest_; }
  std::int64_t shortest() const { return shortest_; }  // 0: there are none
  std::int32_t largest() const { return largest_; }    // token
  std::span<const std::int32_t> tokens(std::uint32_t sequence) const { return of(tokens_, sequence); }
  std::int64_t label(std::uint32_t sequence) const { return labels_[sequence]; }
  // None where sequences have one for all.
  std::span<const std::int32_t> token_labels(std::uint32_t sequence) const {
    return token_labels_.empty() ? std::span<const std::int32_t>() : of(token_labels_, sequence);
  }

 private:
  std::span<const std::int32_t> of(const std::vector<std::int32_t>& all, std::uint32_t sequence) const;

  std::vector<std::int32_t> tokens_;
  std::vector<std::size_t> ends_;  // in tokens_
  std::vector<std::int64_t> labels_;
  std::vector<std::int32_t> token_labels_;  // beside tokens_, or none
  std::int64_t longest_ = 0;
  std::int64_t shortest_ = 0;
  std::int32_t largest_ = -1;
};

// `size` must be that of the two.
std::shared_ptr<const Dataset> make_token_dataset(const DatasetSize& size, TokenSequences train, TokenSequences test);

// What reading a text shows, kept: how many sequences there are and how long, and its vocabulary. A command that trains
// nothing needs no more, and need not read the text.
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

// The user's, in its folder of files.hpp.
VocabularyCache& vocabulary_cache();

}  // namespace syncopate
