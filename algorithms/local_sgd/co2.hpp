// CO2: local steps continue while the last round's average is under way; then an outer step with heavy-ball momentum
// goes along this average.
// Source:  Sun et al. 2024, "CO2: Efficient Distributed Training with Full Communication-Computation Overlap", and its
//          authors' code.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32.   Units: rate, momentum and gap without one.
// Cost:    as overlapped_diloco.hpp, whose program CO2 uses with delayed updates.
// Differs: m <- momentum m + (x - mean(y)) / gap;  X <- X - rate m;  all workers continue from X. By default
//          (`anchor = "round-start"`) mean(y) is the mean of the models at the previous round's end, and x the X at
//          which that round began, so that all progress arrives, one round late. It is not confirmed that the paper
//          pairs x and y in this way: we have not read its text. Momentum 0.5, rate 1 and a constant gap of 1 are the
//          code's defaults. `rounds = "blocking"`, the default of the published code, waits for the mean of this
//          round's y: SlowMo without its division by the inner rate.
//          `anchor = "outer-model"` pairs the late mean(y) with the newest X, which occurs nowhere in the code; it was
//          the default before results version 6. With rate 1 and no momentum it is two separate trainings, of even and
//          odd rounds, so that half of the work is lost. The paper divides by a measured staleness gap, and clips the
//          elements of the step. Both are left out, since it is not established how the gap is measured, and the code's
//          clip has no effect; a constant gap only divides the rate. Also left out are the code's sharding of m and its
//          averages within groups, which its default options never use.
// Checks:  a recursion in double precision; with "round-start" and no momentum it equals delayed DiLoCo without
//          momentum, and with one worker, rounds of one step and rate 1 it is SGD along gradients that are one step
//          late; blocking rounds with rate 1 and no momentum are Local SGD; with "outer-model", rate 1 and no momentum
//          each model is the average of the round before the last.
#pragma once

#include "algorithms/local_sgd/overlapped_diloco.hpp"

namespace syncopate {

inline std::unique_ptr<Algorithm> make_co2(Settings& settings, const AlgorithmContext& context) {
  enum class Rounds { overlapped, blocking };
  RoundChoices choices{.period = read_sync_period(settings, context)};
  const double rate = settings.number({"rate", "Outer learning rate."}, Range::finite_positive(), 1.0);
  const double momentum =
      settings.number({"momentum", "Share of the last outer step that the next one keeps."}, Range::below_one(), 0.5);
  const double gap =
      settings.number({"gap", "The divisor of differences from the average."}, Range::finite_positive(), 1.0);
  const auto rounds =
      settings.choice({"rounds", "Whether the next round overlaps the average, or begins after it."},
                      {{"overlapped", Rounds::overlapped}, {"blocking", Rounds::blocking}}, Rounds::overlapped);
  choices.outer = make_heavy_ball(rate, momentum, gap);
  if (rounds == Rounds::overlapped)
    choices.late = make_delayed_rule(read_averaged(settings, "anchor"));
  else if (settings.has("anchor"))
    settings.fault("anchor",
                   "must be left out with rounds = \"blocking\": the anchor is the model that began the round");
  choices.policies = read_buffer_policies(settings, context);
  return std::make_unique<LocalRounds>(std::move(choices));
}

}  // namespace syncopate
