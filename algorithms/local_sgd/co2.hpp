// CO2: local steps go on while the last round's average is under way, with a heavy-ball outer step along it.
// Source:  Sun et al. 2024, "CO2: Efficient Distributed Training with Full Communication-Computation Overlap", and its
//          authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.   Units: rate, momentum and gap without one.
// Cost:    as overlapped_outer.hpp, which has the program; delayed updates.
// Differs: m <- momentum m + (X - mean(y')) / gap;  X <- X - rate m;  all workers go on from X. Defaults are those of
//          the code: momentum 0.5, rate 1, a constant gap of 1, X that of now (`anchor = "outer-model"`), so that with
//          rate 1 and without momentum even and odd rounds are two trainings. `anchor = "round-start"` takes the X that
//          the averaged round began at, as delayed DiLoCo does. The paper divides by a staleness gap that it measures,
//          and clips the elements of the step. How it measures the gap is not established, and in the code the clip has
//          no effect: both are left out, and a constant gap only divides the rate. The code's sharding of m, and
//          averages within groups every few steps, are left out, too.
// Checks:  a recursion in double precision; without momentum, gap 1 and rate 1, each model is the average of the round
//          before the last; anchored at the round's start it equals delayed DiLoCo without momentum.
#pragma once

#include "algorithms/local_sgd/overlapped_outer.hpp"

namespace syncopate {

// m <- momentum m + (x - a) / gap;  x - rate m.
std::unique_ptr<const OuterOptimizer> make_heavy_ball(double rate, double momentum, double gap);

std::unique_ptr<Algorithm> make_co2(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
