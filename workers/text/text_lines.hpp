// A text of one's own: a UTF-8 file with one sequence a line, alone or behind a label and a tab.
#pragma once

#include <filesystem>

#include "workers/text/corpus.hpp"

namespace syncopate {

// Labels are words, numbered in the order of their bytes. Lines without any word are passed over,
// and counted where they are not empty. Throws DataFault,
// which names the file and the line.
Corpus read_text_lines(const std::filesystem::path& file, bool labelled);

}  // namespace syncopate
