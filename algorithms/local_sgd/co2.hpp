// CO2: local steps go on while the last round's average is under way, with a heavy-ball outer step along it.
// Source:  Sun et al. 2024, "CO2: Efficient Distributed Training with Full Communication-Computation Overlap", and its
//          authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.   Units: rate, momentum and gap without one.
// Cost:    as overlapped_outer.hpp, which has the program; delayed updates.
// Differs: m <- momentum m + (x - mean(y)) / gap;  X <- X - rate m;  all workers go on from X. By default (`anchor =
//          "round-start"`) mean(y) is that of the previous round, and x is the X that this same round began at, so that
//          all progress arrives, one round late. That the paper pairs the two in this way is not confirmed: its text
//          was not read here. Momentum 0.5, rate 1 and a constant gap of 1 are the code's defaults. `rounds =
//          "blocking"`: what the published code runs with its default options. It waits for the mean of this round's y
//          before it steps, and overlaps nothing. That is SlowMo without its division by the inner rate. `anchor =
//          "outer-model"` pairs the late mean(y) with the newest X, which occurs nowhere in the code; it was the
//          default before results version 6. With rate 1 and without momentum it is two separate trainings, of the even
//          and of the odd rounds, so that half of the work is lost. The paper divides by a staleness gap that it
//          measures, and clips the elements of the step. How it measures the gap is not established, and in the code
//          the clip has no effect: both are left out, and a constant gap only divides the rate. The code's sharding of
//          m is left out, too, and its averages within groups, which its default options never reach.
// Checks:  a recursion in double precision; anchored at the round's start it equals delayed DiLoCo without momentum,
//          and with rounds of one step by one worker, rate 1 and no momentum it is SGD by gradients one step late;
//          blocking rounds with rate 1 and no momentum are Local SGD; with anchor = "outer-model", rate 1 and no
//          momentum each model is the average of the round before the last.
#pragma once

#include "algorithms/local_sgd/overlapped_outer.hpp"

namespace syncopate {

// m <- momentum m + (x - a) / gap;  x - rate m.
std::unique_ptr<const OuterOptimizer> make_heavy_ball(double rate, double momentum, double gap);

std::unique_ptr<Algorithm> make_co2(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
