// Sums that are needed apart, evaluated together: those whose gradients are taken at one model share a forward and a
// backward pass (Objective::gradients_apart). What is particular to each is computed by who asks for it, when it does.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "workers/training/executor.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Which of the sums are evaluated in one pass, each in one of the lists, which have an order in which they may be
// submitted. By models and micro-batches alone, never by the order of the sums: the same set gives the same bits.
std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective);

// Submits the evaluation of the sums of one pass; of a single one as submit_chunks does. `submitted` is called with the
// place of each sum as soon as all its tasks are.
void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor, const std::function<void(std::size_t)>& submitted);

}  // namespace syncopate
