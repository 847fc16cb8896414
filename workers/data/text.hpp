// WordNet's definitions, with its lexicographer files as 45 categories: a real text of natural lengths. Debian's
// package wordnet-base has the files.
// Source:  Fellbaum (ed.) 1998, "WordNet: an electronic lexical database"; formats: wndb(5WN), lexnames(5WN).
#pragma once

#include <array>
#include <filesystem>

#include "workers/text/corpus.hpp"

namespace syncopate {

// The files that hold the definitions, in the order in which they are read.
inline constexpr std::array wordnet_files = {"data.noun", "data.verb", "data.adj", "data.adv"};

// Texts are the glosses, examples included, without the blanks around them. Throws DataFault, which names the file and
// the line.
Corpus read_wordnet_glosses(const std::filesystem::path& directory);

// The first directory that exists: wordnet in the directory that SYNCOPATE_DATA names, then share/wordnet of /usr/local
// and /usr. Throws DataFault if there is none.
std::filesystem::path find_wordnet();

}  // namespace syncopate
