// WAGMA-SGD: after each step a worker's model is averaged with those of its group, and the groups change. Nobody is
// waited for: the first of all workers to arrive at a round begins it, and who is late is in it with the model that it
// brought last. Every tau steps all wait for all, and average.
// Source:  Li et al. 2021, "Breaking (Global) Barriers in Parallel Stochastic Optimization With Wait-Avoiding Group
//          Averaging" (arXiv 2005.00124): the abstract; the authors' code, Shigangli/WAGMA-SGD.
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    per round and worker a model up and a mean with one number down; at the end a model up.
// Differs: the paper's algorithm could not be read. Where a worker's own model comes late, an older one of it is in the
//          group's sum W. `divisor`: "paper" (our understanding, not established; the default, since those in time then
//          end up with the mean) takes W / S in time and (W + own) / (S + 1) late; "released", as the code does, always
//          (W + own) / (S + 1), so that an own model in time counts twice. `order`: "step-first" (the default, with
//          which one group of all in time is Local SGD with H = 1; not established) averages what a step has come to;
//          "average-first", as the code does, averages and then steps along a gradient taken before, with weight
//          decay and the norms of layer-wise optimizers at the average. The code's
//          communication threads, which answer while a worker computes, are one server here that holds everybody's
//          newest model: 2 P floats per worker and round, where recursive doubling in a group sends log2(S) P and a
//          ring 2 (S - 1) / S P; where links are shared, all of them pass that server's one link, and its times are
//          those of this stand-in. In time is who has come when the server begins the round, at the same instant or
//          before. A round is one of the whole model, in the code one of each tensor. Which of the sums that it has
//          missed a late worker gets is not established; here that of the round that it comes to. Groups are by digits
//          of base S; where log2 S does not divide log2 N, the code's leave some workers apart until a global round.
//          The code has S = 8 of 64 workers, and a global round after every 10 others (global_every = 11, the default).
//          Who has left is in no group and is not waited for; it is in the last mean if its budget was used up, and not
//          its data alone. Who is alone in its group keeps its model. A worker that is down is in its groups with its
//          last model, and the next global round waits for it. One that loses its state asks the server for the last
//          global mean, or the first model, and begins its step and its momentum anew; else momentum stays with its
//          worker.
// Checks:  one group of all in time is Local SGD with H = 1, and so are global rounds alone; equal models stay as they
//          are with either divisor; all have met after log_S N rounds; hand-worked timelines and a recursion in double
//          precision.
#pragma once

#include <vector>

#include "algorithms/gossip/gossip.hpp"
#include "algorithms/method/algorithm.hpp"
#include "workers/base/units.hpp"

namespace syncopate {

struct WagmaOptions {
  enum class Divisor { paper, released };
  enum class Order { step_first, average_first };
  int group_size = 2;     // S
  Step global_every{11};  // tau; 0: never
  Divisor divisor = Divisor::paper;
  Order order = Order::step_first;
  OwnModels evaluated = OwnModels::mean;
};

class WagmaSgd : public Algorithm {
 public:
  explicit WagmaSgd(const WagmaOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .exchanged_whole =
                "groups that change average whole models, and there is no model that all share to differ from"};
  }
  Forecast forecast(const PredictionInput& input) const override;
  std::optional<Communicated> communication(const CommunicationInput& input) const override;

 private:
  WagmaOptions options_;
};

std::unique_ptr<Algorithm> make_wagma_sgd(Settings& settings, const AlgorithmContext& context);

// Groups of S workers that change from round to round: their members are the ranks which differ in one digit of base S,
// the digits taking turns. With N and S powers of two these are the groups of a butterfly.
// Cost:    none; no list is kept.
// Checks:  where N is a power of S each round divides the workers, and all have met, directly or through others, once
//          all digits have had their turn; masks of the butterfly; for any S that divides N nobody is left apart.
class RotatingGroups {
 public:
  // `size` divides the number of workers. Where that is no power of `size`, the last turn is that of ranks which are
  // N / S apart.
  RotatingGroups(int workers, int size);

  // After so many rounds the groups are those of the first again.
  int turns() const { return static_cast<int>(strides_.size()); }
  // The group's lowest rank, by which groups of a round are told apart; rounds are counted from 1.
  Rank group_of(Rank worker, Step round) const;
  std::vector<Rank> members(Rank group, Step round) const;

 private:
  int stride(Step round) const { return strides_[static_cast<std::size_t>((round.value() - 1) % turns())]; }

  int size_;
  std::vector<int> strides_;  // between a group's members, of each turn
};

}  // namespace syncopate
