// Texts as a data set of tokens: words by number, between a first and a last token.
//
// The vocabulary is of the training texts alone; which texts are held out, a hash of each says (text/corpus.hpp). A
// sample's label is its text's category. Numbers below `special_tokens` are no words (text/vocabulary.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "workers/datasets/dataset.hpp"
#include "workers/text/corpus.hpp"

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

// Reads the text only if nothing of it is kept (vocabulary_cache.hpp). Throws DataFault, also where the share leaves
// one of the splits empty, or where no word is frequent enough.
DatasetSize text_dataset_size(const TextSource& source, const TextOptions& options, const std::filesystem::path& path);

// Throws DataFault.
std::shared_ptr<const Dataset> load_text_dataset(const TextSource& source, const TextOptions& options,
                                                 const std::filesystem::path& path);

}  // namespace syncopate
