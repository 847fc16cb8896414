// Sums of gradients whose micro-batches several processes evaluate: which of them does, and how all come to the sum.
#pragma once

#include <memory>

#include "workers/training/divided_work.hpp"
#include "workers/training/executor.hpp"
#include "workers/training/gradient_sum.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Says of each chunk who evaluates it, and where the sum is then. A chunk is evaluated where its model is; at a model
// that is everywhere by the process of its workers, if all of the sum are one process's, and else by all in turn.
// Sums in it are submitted, and brought everywhere where each process has a part.
void place_chunks(GradientSum& sum, const std::shared_ptr<const Objective>& objective, Executor& executor,
                  DividedWork& divided);

// Submits the sum, and returns what can be read at all of `places`: itself, or its values, exchanged once. They are
// the same to the bit on all processes, but differ by rounding from what is read of the sum itself.
std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided);

// What a nested chunk is read from: its sum, or where a process has but a part of it, its values.
const GradientSum& values_of(const GradientSum::Chunk& nested);

}  // namespace syncopate
