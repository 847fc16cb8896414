// How much memory a forward and a backward pass of a network takes beside its parameters and their gradient.
// Units:   bytes of so many samples in one batch, as this program evaluates them with LibTorch on a processor.
// Shapes:  by layer what it gives and what it keeps for the backward pass: of a convolution also its unfolded input
//          (k^2 C values per pixel), of attention its scores (places^2 per head). Sequences count as if each were as
//          long as the longest.
// Checks:  peaks of the program with and without a training (tests/experiments/memory_need_test.cpp).
#pragma once

#include <cstdint>
#include <optional>

#include "workers/models/network.hpp"

namespace syncopate {

// None for a module of the user's own, of which only running it would tell.
std::optional<std::int64_t> pass_bytes(const Network& network, std::int64_t samples);

}  // namespace syncopate
