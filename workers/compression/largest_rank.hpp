// Whether PowerSGD can make anything of a model smaller, as far as its tensors are known before it is made.
#pragma once

#include <optional>
#include <span>

#include "workers/compression/options.hpp"
#include "workers/settings/settings.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// The largest rank with which factors of one of the matrices at least have fewer numbers than it by more than
// `least_rate`; it is never above a matrix's smaller dimension. 0: there is none.
int largest_rank(std::span<const ParameterTensor> tensors, double least_rate);

// A fault of `compression.rank` where it is above that. Nothing where no tensors are known: the run says it then.
void check_rank(Settings& method, const std::optional<CompressionOptions>& options,
                std::span<const ParameterTensor> tensors);

}  // namespace syncopate
