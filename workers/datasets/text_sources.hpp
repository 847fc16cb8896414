// The texts that can be a data set.
#pragma once

#include "workers/datasets/text_dataset.hpp"

namespace syncopate {

TextSource text_lines(bool labelled);  // of a file
TextSource wordnet_glosses();          // of a directory

}  // namespace syncopate
