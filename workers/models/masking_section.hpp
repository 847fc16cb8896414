// The keys by which a masked language model's table says what is hidden: masked_share, most_masked, masking,
// mask_copies.
#pragma once

#include <string_view>

#include "workers/datasets/masking.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// `is_asked_for`: something is hidden at all; else each key that is given is a fault. `by`: what asks for it, such as
// "the task \"masked-lm\"".
MaskingOptions read_masking(Settings& table, bool is_asked_for, std::string_view by);

}  // namespace syncopate
