// Gradient coding: synchronous SGD in which workers compute several parts of a step's gradient each, so that a server
// can form it, or an estimate of it, without waiting for stragglers.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional, cyclic, ignore-stragglers); Bitar,
//          Wootters, El Rouayheb 2020, "Stochastic Gradient Coding for Straggler Mitigation in Distributed Learning"
//          (stochastic; as we understand it, not confirmed in its text).
// Shapes:  gradient, parameters: (P,) flat float32; cyclic: messages of P doubles.   Units: threshold in seconds.
// Cost:    per step N models down, up to N messages up; s + 1 parts of M micro-batches per worker (stochastic: d on
//          average).
// Differs: part p is what worker p computes in synchronous SGD, new in each step. A fractional step ends once each
//          group has answered. Late work goes on and is dropped on arrival; late = "cancel" stops it. With
//          `threshold_s` a step ends then, but not before its first message. A micro-batch of a step is kept once; its
//          copies count as dropped, though the time that a message with some of them took is not discarded. Cyclic
//          weights for a set of stragglers come from one decomposition of the code, by a system of s equations, not by
//          least squares over N - s messages; codes are drawn until one is well enough conditioned.
// Checks:  fractional equals synchronous SGD bit for bit whoever straggles, cyclic up to rounding for every set of s
//          stragglers; without a code the mean is that of the workers that have answered; the stochastic sum is
//          unbiased, with independent placement of variance p / (1 - p) [(1/d - 1/N) sum |g_i|^2 + |G|^2 / N].
#pragma once

#include <functional>
#include <span>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// How the parts of a step's gradient are spread over workers with redundancy, and how their sum is formed from the
// messages of some. With N workers and as many parts, B[i][p] the weight of part p in worker i's message, and a[i] the
// weight of that message in the sum, a code is exact where sum_i a[i] B[i][p] = 1 for every p.
struct GradientCode {
  struct Part {
    int number;
    double weight = 1;
  };

  ByRank<std::vector<Part>> parts;  // of each worker: what it computes, with its weight in the message
  ByRank<int> group;                // of each worker: within a group all messages are equal, so one suffices
  int groups = 0;
  int needed = 0;                    // messages of different groups that make a step
  bool exact = true;                 // with fewer there is no sum; otherwise a step can do with what there is
  bool in_double_precision = false;  // messages and their sum, because large weights cancel
  bool merges = true;                // whether several messages that make a step may hold the same part
  // [message]: its weight in the sum, for messages of different groups in order of arrival.
  std::function<std::vector<double>(std::span<const Rank> arrived)> decode{};
};

// Cyclic repetition, for any number of workers: worker i holds the parts i .. i + s (mod N), and any N - s messages
// give the sum. None if no code of 50 has a weight below the bound, over all sets of stragglers or, if these are very
// many, 1000 at random. `decode` throws RunFailure for a set that was not among these and is far beyond the bound.
std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed);

// The bound: the largest weight of a message times the largest of a part, which is how much larger than the sum the
// terms may be whose difference it is. Rounding in double precision times this stays two digits below a float's.
inline constexpr double largest_cyclic_weight = 1e7;

// Fractional repetition: N / (s + 1) groups of s + 1 workers; all of a group send the plain sum of the same s + 1
// parts. s + 1 must divide N.
GradientCode fractional_repetition(int workers, int stragglers);

// No code: each worker computes its own part, and the sum of the first N - s is scaled by N / (N - s).
GradientCode ignore_stragglers(int workers, int stragglers);

enum class Placement {
  independent,  // each part's d workers are drawn on their own: two parts share d^2 / N workers on average
  balanced,     // every worker holds d parts, and pairs of parts share as evenly many workers as 100 draws give
};

struct StochasticCodeOptions {
  int copies = 2;              // d
  double straggler_share = 0;  // p, below 1
  int needed = 1;              // messages that make a step, or fewer where fewer can come
  Placement placement = Placement::independent;
  std::uint64_t seed = 1;
};

// Stochastic gradient coding: each part is held by d workers, weighted by 1 / (d (1 - p)), so that the sum of what
// arrives is the full sum on average where a message is missing with probability p.
GradientCode stochastic_code(int workers, const StochasticCodeOptions& options);

// The fate of a worker that is still computing when the next model comes.
enum class LateWork {
  finish,  // it goes on, and its message is dropped when it arrives
  cancel,  // it stops: every new model goes to all
};

class CodedSgd : public Algorithm {
 public:
  // threshold: from the sending of the models, where the code can do with fewer messages than it needs.
  CodedSgd(GradientCode code, LateWork late, Duration threshold = longest_duration)
      : code_(std::move(code)), late_(late), threshold_(threshold) {}

  void run(Worker& worker) const override;
  // Throws RunFailure when so many workers have left that an exact code has no sum any more.
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .exchanged_whole = "coded gradients must cancel exactly"}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("which answers come first depends on who is late from the step before");
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
