// Whether a model has the tables whose rows are to be sent, as far as its tensors are known before it is made.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/compression/options.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// A matrix whose name contains one of these.
bool is_table(const std::vector<std::string>& names, const ParameterTensor& tensor);
bool has_table(const std::vector<std::string>& names, std::span<const ParameterTensor> tensors);

// "a", "b", in quotes.
std::string quoted(const std::vector<std::string>& names);

// What would be right where there is none, with the names that there are.
std::string must_name_a_matrix(std::span<const ParameterTensor> tensors);

// A fault of `compression.tables` where there is none. Nothing where no tensors are known: the run says it then.
void check_tables(Settings& method, const std::optional<CompressionOptions>& options,
                  std::span<const ParameterTensor> tensors);

}  // namespace syncopate
