// Gradient coding: synchronous SGD in which each worker computes several parts of a step's gradient, so that a server
// can form the gradient, or an estimate of it, without waiting for stragglers.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional, cyclic, ignore-stragglers); Bitar,
//          Wootters, El Rouayheb 2020, "Stochastic Gradient Coding for Straggler Mitigation in Distributed Learning"
//          (stochastic; as we understand it, not confirmed in its text).
// Shapes:  gradient, parameters: (P,) flat float32; cyclic: messages of P doubles.   Units: threshold in seconds.
// Cost:    per step N models down, up to N messages up; s + 1 parts of M micro-batches per worker (stochastic: d on
//          average).
// Differs: part p has the samples that worker p has in synchronous SGD, new ones in each step. A step with a fractional
//          code ends once each group has answered. Late work continues and is dropped on arrival; late = "cancel" stops
//          it. With `threshold_s` a step ends after that time, but not before its first message. A micro-batch of a
//          step counts as kept once, and its copies count as dropped; a message with copies counts no time as
//          discarded.
// Checks:  a fractional code equals synchronous SGD bit for bit, whichever workers straggle, and a cyclic code up to
//          rounding, for every set of s stragglers; without a code the mean is over the workers that have answered; the
//          sum G of the parts' gradients g_i is unbiased with a stochastic code, and with independent placement its
//          variance is p / (1 - p) [(1/d - 1/N) sum |g_i|^2 + |G|^2 / N].
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

// --- Codes: which parts of a step's gradient each worker computes, and how the sum is formed or estimated ---
// Source:  as above.
// Differs: cyclic weights for a set of s stragglers follow from one decomposition of the code by a system of s
//          equations, not by least squares over N - s messages; codes are drawn until one is well conditioned.
// Checks:  for every set of stragglers of small codes, or random sets, the weights count each part once.

// A code for N workers and N parts. B[i][p] is the weight of part p in worker i's message, and a[i] the weight of that
// message in the sum. A code is exact if sum_i a[i] B[i][p] = 1 for every p.
struct GradientCode {
  struct Part {
    int number;
    double weight = 1;
  };

  ByRank<std::vector<Part>> parts;  // by worker: the parts that it computes, with their weights in its message
  ByRank<int> group;                // by worker; all messages of a group are equal, so one of them suffices
  int groups = 0;
  int needed = 0;                    // number of messages from different groups that make a step
  bool exact = true;                 // fewer than `needed` messages give no sum; false: any number gives an estimate
  bool in_double_precision = false;  // for messages and their sum, in which terms with large weights cancel
  bool merges = true;                // whether several messages of a step may contain the same part
  // [message]: its weight in the sum, for messages of different groups in order of arrival.
  std::function<std::vector<double>(std::span<const Rank> arrived)> decode = [](std::span<const Rank> arrived) {
    return std::vector<double>(arrived.size(), 1.0);
  };
};

// Cyclic repetition, for any number of workers: worker i holds the parts i .. i + s (mod N), and any N - s messages
// give the sum. Draws up to 50 codes and checks largest_cyclic_weight for all sets of stragglers, or for 1000 random
// sets if there are very many. Returns none if no code meets this bound. `decode` throws RunFailure for a set that was
// not checked and is far beyond the bound.
std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed);

// The bound for (largest weight of a message) x (largest weight of a part). Terms may be this many times larger than
// their sum, because they cancel, and rounding errors grow by this factor. In double precision the errors then stay two
// digits below the rounding error of a float.
inline constexpr double largest_cyclic_weight = 1e7;

// Fractional repetition: N / (s + 1) groups of s + 1 workers, which all send the plain sum of the same s + 1 parts.
// s + 1 must divide N.
GradientCode fractional_repetition(int workers, int stragglers);

// No code: each worker computes its own part, and the sum of the first N - s messages is scaled by N / (N - s).
GradientCode ignore_stragglers(int workers, int stragglers);

enum class Placement {
  independent,  // each part's d workers are drawn separately: two parts share d^2 / N workers on average
  balanced,     // every worker holds d parts; the best of 100 draws: pairs of parts share workers most evenly
};

struct StochasticCodeOptions {
  int copies = 2;              // d
  double straggler_share = 0;  // p, below 1
  int needed = 1;              // messages that make a step; fewer if fewer can arrive
  Placement placement = Placement::independent;
  std::uint64_t seed = 1;
};

// Stochastic gradient coding: d workers hold each part, with the weight 1 / (d (1 - p)), so that the sum of the
// arriving messages is on average the full sum if each message is missing with probability p.
GradientCode stochastic_code(int workers, const StochasticCodeOptions& options);

// --- The method ---

class CodedSgd : public Algorithm {
 public:
  // threshold: counted from the sending of the models; only for codes that are not exact.
  CodedSgd(GradientCode code, LateWork late, Duration threshold = longest_duration)
      : code_(std::move(code)), late_(late), threshold_(threshold) {}

  void run(Worker& worker) const override;
  // Throws RunFailure if, because workers have left, an exact code can no longer give the sum.
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .publishes_stepped_models = true,
            .held = {.models = 0, .moments = 0},
            .exchanged_whole = "coded gradients must cancel exactly"};
  }

 private:
  bool cancels() const { return late_ == LateWork::cancel; }
  std::optional<Gradient> coded_gradient(Worker& worker) const;

  GradientCode code_;
  LateWork late_;
  Duration threshold_;
};

std::unique_ptr<Algorithm> make_coded_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
