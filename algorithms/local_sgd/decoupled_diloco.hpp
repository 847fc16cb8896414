// Decoupled DiLoCo: workers (learners) take local steps and never wait. In each round a server (syncer) synchronises
// one fragment of the model. It merges the answers (outer gradients) of the first K workers, and those that arrive
// within a grace window after that. Then it takes an outer step, and sends the new fragment to all workers, which
// replace their own by it.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo" (arXiv 2604.21428), as others describe and implement it: neither
//          its text nor its authors' code was available.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32; fragments are equal slices. Steps are local ones.
// Cost:    per round a fragment and 24 bytes up from each worker that answers, a fragment and 24 bytes down to all.
// Differs: a worker answers at the end of a step, if a round is open and the worker has taken s >= `minimum_steps`
//          steps since it received the round's fragment: it sends that fragment with its counts. In the paper workers
//          report counts after each step, and the server pulls fragments. One round is open at a time; in the paper up
//          to tau rounds are. When a worker receives a new fragment, this overwrites the steps that it has taken since
//          its answer; they count as lost once no fragment contains them. Micro-batches are counted instead of tokens
//          (outer_optimizer.hpp). Not established: the paper's outer rate, momentum and gamma, which must be given; how
//          a worker that was down goes on; how a fragment counts if its sender has missed an earlier one. A worker's
//          fragment is subtracted from `anchor`: the server's last value (the paper's; the default), or the value that
//          the worker began from (others' implementation). These two differ if late answers count in their fragment's
//          next round (`late`, ours); by default late answers are dropped. By two accounts the paper's defaults for 8
//          learners are K = 1, 24 fragments, H = 24 and tau = 2. Here the default is a quorum of all workers, a model
//          of one fragment, no grace window, and rounds without pauses, so that without any key the method is DiLoCo
//          through a server; `overlap_steps` (tau) is 2. Embeddings have the plain mean under the norm-preserving
//          merge, as in the paper (outer_optimizer.hpp). With `local_steps` (H), as in others' implementation, rounds
//          begin at least (H / fragments) x (step time of the slowest answer) apart. Without it a round begins when the
//          previous one ends. If there is one fragment, and a worker's step is longer than a round, each new fragment
//          overwrites the step, and the worker contributes nothing. A local step's learning rate is as in
//          async_local_sgd.hpp, counted from the worker's newest fragment. Inner moments stay with their workers.
// Ends:    a quorum is never more than the workers left. The server waits for a worker that is down if the quorum needs
//          it, and otherwise no longer than the grace window. When a budget of seconds is used up, workers leave, and
//          the open round waits for those that have not left yet: one that is down then, or far slower, extends the
//          run. With a budget of steps this does not happen. A worker that loses its state loses its steps since its
//          last answer: it waits for the server's newest model, continues from it, and asks which round is open. A
//          worker whose data are used up leaves; its steps since its last answer are lost.
// Checks:  with a quorum of all workers, equal batches and merge = "mean" it is DiLoCo; n local steps take the sum of
//          their times, whatever K, grace window and network are; without a grace window the first K answers count, and
//          with a long window all.
#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The round that is open, as the server describes it in a message's numbers.
struct OpenRound {
  Step number{};                 // from 0
  Time begins = start_time;      // no answers before this time
  Time last_ended = start_time;  // end of the previous round

  std::vector<double> numbers() const {
    return {static_cast<double>(number.value()), to_seconds(begins), to_seconds(last_ended)};
  }
  static OpenRound from(const std::vector<double>& numbers) {
    return {.number = Step{static_cast<Step::Rep>(numbers[0])},
            .begins = Time{from_seconds(numbers[1])},
            .last_ended = Time{from_seconds(numbers[2])}};
  }
  Slice fragment(int fragments) const { return {static_cast<int>(number.value() % fragments), fragments}; }
};

struct FragmentAnswer {
  Rank from{};
  ModelStatePtr model{};           // the worker's model, or the base minus its model; null in time-only runs
  BookedTime work{};               // the worker's steps since its last answer
  std::int64_t micro_batches = 0;  // k, since the worker received the fragment
  Step steps{};                    // s, since then
  std::optional<double> sync_s{};  // from a round's end to the arrival of its fragment at the worker; none: not yet

  Message message(const OpenRound& round, Slice fragment) const {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    Message message = Message::of_difference(round.number, model, work);
    message.slice = fragment;
    message.numbers = {static_cast<double>(micro_batches), static_cast<double>(steps.value()), sync_s.value_or(none)};
    return message;
  }
  static FragmentAnswer from_message(const Message& message) {
    const std::vector<double>& numbers = message.numbers;
    return {.from = message.from,
            .model = message.model,
            .work = message.work(),
            .micro_batches = static_cast<std::int64_t>(numbers[0]),
            .steps = Step{static_cast<Step::Rep>(numbers[1])},
            .sync_s = std::isnan(numbers[2]) ? std::nullopt : std::optional(numbers[2])};
  }
};

struct AnswerTotals {
  AnswerTotals(const std::vector<FragmentAnswer>& answers, int micro_batches_per_step) {
    for (const FragmentAnswer& answer : answers) {
      const auto steps = static_cast<double>(answer.work.micro_batches) / micro_batches_per_step;
      slowest_step_s = std::max(slowest_step_s, to_seconds(answer.work.time) / steps);
      slowest_sync_s = std::max(slowest_sync_s, answer.sync_s);  // none is smaller than any value
      micro_batches += answer.work.micro_batches;
    }
  }

  double slowest_step_s = 0;
  std::optional<double> slowest_sync_s{};
  std::int64_t micro_batches = 0;
};

enum class LateAnswers {
  drop,   // answers to a round that has ended are dropped
  count,  // they count in the next round of their fragment
};

// An adaptive grace window: how long a server waits for further answers once it has a quorum. It is a share gamma of
// the time that tau local steps (xi_step each) leave after the wait for the quorum (xi_quorum) and the messages
// (xi_sync).
// Units:   seconds; tau in steps.
// Source:  Douillard et al. 2026, Eq. 3, as others quote it: gamma max(0, tau xi_step - xi_quorum - xi_sync).
// Differs: xi are exponential averages; the weight of the newest value is an option. Its default, 1/2, and a fixed
//          window until all xi have been measured, are from others' implementation; gamma is not established.
struct GraceOptions {
  double margin = 0;         // gamma, in [0, 1]
  double overlap_steps = 2;  // tau
  double averaging = 0.5;    // weight of the newest value in each average, in (0, 1]
  double initial_s = 0;      // length of the window until all times have been measured
  double longest_s = std::numeric_limits<double>::infinity();
};

class GraceWindow {
 public:
  explicit GraceWindow(const GraceOptions& options) : options_(options) {}

  void record_step(double seconds) { update_average(seconds, step_s_); }      // xi_step: a local step
  void record_quorum(double seconds) { update_average(seconds, quorum_s_); }  // xi_quorum: round start to quorum
  void record_sync(double seconds) { update_average(seconds, sync_s_); }      // xi_sync: round end to workers' models

  std::optional<double> step_s() const { return step_s_; }
  double length_s() const {
    if (!step_s_ || !quorum_s_ || !sync_s_) return std::min(options_.initial_s, options_.longest_s);
    if (options_.margin == 0) return 0;  // avoids 0 x infinity if the spare time is infinite
    const double spare_s = options_.overlap_steps * *step_s_ - *quorum_s_ - *sync_s_;
    return std::min(options_.margin * std::max(0.0, spare_s), options_.longest_s);
  }

 private:
  // Not inlined, because GCC 12 would then warn that an empty average is read.
  [[gnu::noinline]] void update_average(double seconds, std::optional<double>& average) const {
    average = average ? (1 - options_.averaging) * *average + options_.averaging * seconds : seconds;
  }

  GraceOptions options_;
  std::optional<double> step_s_, quorum_s_, sync_s_;  // none: no value recorded yet
};

// Counts a worker's steps since it received each fragment, and the steps that it has not reported to the server.
class FragmentProgress {
 public:
  explicit FragmentProgress(int fragments) : since_(static_cast<std::size_t>(fragments)) {}

  int fragments() const { return static_cast<int>(since_.size()); }

  void add_step(const BookedTime& step) {
    for (Step& steps : since_) ++steps;
    unreported_.push_back(step);
  }

  // s, since the worker received the fragment.
  Step steps(int fragment) const { return since_[static_cast<std::size_t>(fragment)]; }

  // Returns the unreported steps, and counts them as reported.
  BookedTime report() { return take_oldest(unreported_.size()); }
  // Counts the fragment's steps from 0 again. Returns the lost steps: unreported ones that no fragment contains any
  // more.
  BookedTime receive(int fragment) {
    since_[static_cast<std::size_t>(fragment)] = {};
    const auto in_oldest = std::ranges::max(since_).value();
    return take_oldest(unreported_.size() - std::min(unreported_.size(), static_cast<std::size_t>(in_oldest)));
  }
  BookedTime receive_all() {
    std::ranges::fill(since_, Step{});
    return report();
  }

 private:
  BookedTime take_oldest(std::size_t steps) {
    BookedTime sum;
    for (; steps > 0; --steps) {
      sum.micro_batches += unreported_.front().micro_batches;
      sum.time += unreported_.front().time;
      unreported_.pop_front();
    }
    return sum;
  }

  std::vector<Step> since_;
  std::deque<BookedTime> unreported_;
};

struct DecoupledOptions {
  enum class Anchor {
    server,  // an outer gradient is the server's last value minus the worker's
    base,    // an outer gradient is the value that the worker began from minus the worker's
  };

  std::optional<int> quorum{};        // K; none: all workers
  Fragments fragments{1};             // P
  std::optional<Step> local_steps{};  // H; none: each round begins when the previous one ends
  Step minimum_steps{1};
  std::optional<GraceOptions> grace{};
  MergeRule merge = MergeRule::rda;
  Anchor anchor = Anchor::server;
  LateAnswers late = LateAnswers::drop;
  OuterOptimizer outer{};  // never empty

  bool workers_subtract() const { return anchor == Anchor::base; }
  double steps_per_round() const { return static_cast<double>(local_steps->value()) / fragments.count(); }
};

class DecoupledDiLoCo : public Algorithm {
 public:
  explicit DecoupledDiLoCo(const DecoupledOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .publishes_rounds = true,
            .takes_data_in_turn = true,
            .averaged_slices = options_.fragments.count(),
            .sends_gradients = options_.workers_subtract(),
            .rejects_gradients = options_.late == LateAnswers::drop,
            .held = {.models = 2},
            .exchanged_whole =
                "workers send whole fragments; with anchor = \"base\" they send differences, which can be compressed"};
  }

 private:
  // Returns the server's model after an outer step that changes only `fragment`.
  ModelStatePtr stepped(const Server& server, Slice fragment, const std::vector<FragmentAnswer>& answers,
                        FragmentMoments& moments) const;

  DecoupledOptions options_;
};

std::unique_ptr<Algorithm> make_decoupled_diloco(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
