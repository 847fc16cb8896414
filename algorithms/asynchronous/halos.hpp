// HALoS: asynchronous Local SGD in regions. A worker takes the model of its region's local server, takes H local steps
// and sends the difference; the local server steps along it and hands out its newest model at once. At the K-th
// difference since it last merged it sends what they have come to, U = (its model after the merge) - (its model), to
// the global server, and goes on. That one steps along U and answers with its model Theta; when it comes, the local
// server merges: its model becomes (1 - alpha) of itself + alpha Theta. Nobody waits for anybody.
// Source:  Kim et al. 2025, HALoS (ICML 2025, arXiv 2506.04531); the algorithm by the authors' published code
//          (utnslab/halos).
// Shapes:  gradient, parameters, difference, U: (P,) flat float32.
// Cost:    in a region 2 P floats per round of a worker; between regions 2 P floats per K rounds or more of a region.
//          A local server holds its model, the one after the merge, and what its rule keeps. Workers' differences may
//          be compressed; U is sent in full, since its residual would be the local server's, and neither the paper nor
//          the code has one.
// Differs: rules: any of server_update.hpp for each level. Published is delayed Nesterov at both; its rate here is n
//          times theirs. Their n for larger models than the examples' is not established, nor what their proof asks
//          for. As published, what a local server takes in after U has left and before it merges is in its model and in
//          no U, and no second U leaves before the merge.
//          DyLU: by the fastest worker of the region, since a local server knows no others; their simulation is told
//          all speeds. Workers' moments, lost states (the local server's newest model is taken) and schedules are
//          those of async_local_sgd.hpp. A local server's step is of the work that it knows of: its own region's, or
//          the global server's count if that was more, and its region's since.
//          Budget: the global server ends the run. With each U it learns how much has been computed in the region
//          since the last one, in a U or not; the last U may bring more than was left. What local servers have taken
//          in since their last U counts as kept, and is in no global model. So a run may compute more than its budget,
//          by K differences of each region and those under way. K x H may be as much as the whole budget, since one
//          region may be the only fast one; where R regions are alike, such a run computes R times its budget, and K
//          is to be small beside (budget / R) / H. Local servers hear of the end once the last answers
//          have come; that is the end of the run. Under a budget of seconds each server ends by its own clock.
//          Who leaves: the others go on. When all workers of a region have left, its server waits for the answer that
//          is due, sends a last U of whatever has come since, and ends; when all regions have, the global server ends.
//          Clock: the network model's, where their simulation has bandwidth alone, and neither latency nor links that
//          are shared. Under "two-level" a local server stands in the group of its region's first worker (so
//          group_size is to be a region's), and so with `racks`; the global one stands by itself. Other networks, and
//          MPI, know of no places.
// Checks:  one region with alpha = 0, or with alpha = 1, K = 1 and a plain global step of rate 1, is asynchronous
//          Local SGD; a recursion in double precision; steps per second against synchronous SGD: (slowest step) x
//          mean(1 / step), 5.24 for the paper's 16 speeds.
#pragma once

#include <memory>
#include <optional>

#include "algorithms/asynchronous/difference_rounds.hpp"
#include "algorithms/asynchronous/server_update.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct HalosOptions {
  int regions = 1;  // of as many workers each
  DifferenceRounds rounds{};
  std::shared_ptr<const ServerUpdate> local_update{};   // null: the plain step of rate 1
  std::shared_ptr<const ServerUpdate> global_update{};  // likewise
  int merge_every = 1;                                  // K
  double mixing = 1;                                    // alpha
};

class Halos : public Algorithm {
 public:
  explicit Halos(const HalosOptions& options);

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = Servers::of_regions(options_.regions),
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .sends_gradients = true};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  void serve_workers(Server& server) const;
  void serve_regions(Server& server) const;

  HalosOptions options_;
};

std::unique_ptr<Algorithm> make_halos(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
