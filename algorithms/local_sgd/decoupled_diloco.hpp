// Decoupled DiLoCo: workers (learners) take local steps and never wait. A server (syncer) processes one fragment of the
// model at a time. It takes the outer gradients of the first K workers, and of those that arrive within a grace window,
// merges them, steps with an outer optimizer, and sends the fragment to all, who replace their own by it.
// Source:  Douillard et al. 2026, "Decoupled DiLoCo" (arXiv 2604.21428), as others describe and implement it: neither
//          its text nor its authors' code was available.
// Shapes:  gradient, parameters, outer momentum: (P,) flat float32; fragments are equal slices. Steps are local ones.
// Cost:    per round a fragment and 24 bytes up from each worker that answers, a fragment and 24 bytes down to all.
// Differs: a worker answers at the end of a step, if a round is open and it has taken s >= `minimum_steps` since it got
//          the round's fragment: it sends that fragment with its counts. In the paper workers report counts after each
//          step, and the server pulls fragments. Rounds come one after another; the paper has up to tau under way.
//          Steps since a worker's answer are overwritten in that fragment; they count as lost once no fragment contains
//          them. Tokens are counted as micro-batches (outer_optimizer.hpp). Not established: the paper's outer rate,
//          momentum and gamma, which must be given; how its learners restart by their counters; how it treats a
//          fragment whose sender had missed one.
//          `anchor` is the server's last value (the paper's, the default) or the one that a worker began from (others'
//          implementation). They differ if late answers count in their fragment's next round (`late`, ours); by default
//          these are dropped. By two accounts the paper's defaults are K = 1, P = H = 24 and tau = 2, for 8 learners.
//          Here the default quorum is all workers, and the model is one fragment, without launch floor or grace window,
//          so that without any key the method is DiLoCo through a server; `overlap_steps` (tau) is 2. Embeddings have
//          the plain mean under the norm-preserving merge, as in the paper (outer_optimizer.hpp).
//          `local_steps` (H) spaces rounds by H / fragments times the slowest answer's step time, that implementation's
//          launch floor; without it a round begins at the end of the previous one. A worker whose step is longer than a
//          round has its only fragment overwritten each time, and contributes nothing. A local step's rate is that of
//          the mean step of all when the worker's newest fragment was sent, plus its own steps since. Inner moments
//          stay.
// Ends:    a quorum is never more than the workers left. A worker that is down is waited for if the quorum needs it,
// otherwise no longer than the grace window. When a budget of seconds is over, the others have left, and the open round
// waits for the rest: a worker that is down then, or far slower, extends the run (not with a budget of steps). A lost
// state includes the steps since the last answer: the worker waits for the server's newest model, continues from it,
// and asks which round is open. A worker whose data are used up leaves; its steps since its last answer are lost.
// Checks:  with all workers, equal batches and mean: DiLoCo; n local steps take the sum of their times, whatever K,
//          grace and network; without grace the first K answers count, with a long one all.
#pragma once

#include <algorithm>
#include <deque>
#include <limits>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/rounds.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The open round, as the server describes it in a message's numbers.
struct OpenRound {
  Step number{};                 // from 0
  Time begins = start_time;      // no answers before this time
  Time last_ended = start_time;  // end of the previous round

  std::vector<double> numbers() const;
  static OpenRound from(const std::vector<double>& numbers);
  Slice fragment(int fragments) const { return {static_cast<int>(number.value() % fragments), fragments}; }
};

struct FragmentAnswer {
  Rank from{};
  ModelStatePtr model{};  // or a difference; null in time-only runs
  BookedTime work{};      // the worker's steps since its last answer
  // Since it received the fragment:
  std::int64_t micro_batches = 0;  // k
  Step steps{};                    // s
  std::optional<double> sync_s{};  // how long the last new fragment took to reach it; none: no new fragment yet

  Message message(const OpenRound& round, Slice fragment) const;
  static FragmentAnswer from_message(const Message& message);
};

struct AnswerTotals {
  AnswerTotals(const std::vector<FragmentAnswer>& answers, int micro_batches_per_step);

  double slowest_step_s = 0;
  std::optional<double> slowest_sync_s{};
  std::int64_t micro_batches = 0;
};

// The fate of answers to a round that has ended.
enum class LateAnswers {
  drop,
  count,  // they count in the next round of their fragment
};

// An adaptive grace window: how long a server waits for further answers once it has a quorum, within the time that
// overlapped steps leave. Units: seconds; tau in steps.
// Source:  Douillard et al. 2026, Eq. 3, as quoted by others: xi_grace <= gamma max(0, tau xi_step - xi_quorum -
//          xi_sync).
// Differs: the averages are exponential; their factor is an option (1: only the newest values). 1/2, and a fixed window
//          until there are estimates, come from others' implementation; gamma is not established.
struct GraceOptions {
  double margin = 0;         // gamma, in [0, 1]
  double overlap_steps = 2;  // tau
  double averaging = 0.5;    // weight of the newest value in each average, in (0, 1]
  double initial_s = 0;      // until there are estimates
  double longest_s = std::numeric_limits<double>::infinity();
};

class GraceWindow {
 public:
  explicit GraceWindow(const GraceOptions& options) : options_(options) {}

  void record_step(double seconds) { update_average(seconds, step_s_); }  // xi_step: a local step
  void record_quorum(double seconds) {
    update_average(seconds, quorum_s_);
  }  // xi_quorum: from a round's start to its quorum
  void record_sync(double seconds) {
    update_average(seconds, sync_s_);
  }  // xi_sync: from a round's end to workers' models

  std::optional<double> step_s() const { return step_s_; }
  double length_s() const;

 private:
  // Not inlined: otherwise GCC 12 warns that an empty average is read.
  [[gnu::noinline]] void update_average(double seconds, std::optional<double>& average) const;

  GraceOptions options_;
  std::optional<double> step_s_, quorum_s_, sync_s_;  // none: no value recorded yet
};

// Counts a worker's own steps while fragments of its model are replaced: the steps since it received each fragment, and
// which steps it has not reported to the server.
class FragmentProgress {
 public:
  explicit FragmentProgress(int fragments) : since_(static_cast<std::size_t>(fragments)) {}

  int fragments() const { return static_cast<int>(since_.size()); }

  void add_step(const BookedTime& step) {
    for (Since& fragment : since_) {
      ++fragment.steps;
      fragment.micro_batches += step.micro_batches;
    }
    unreported_.push_back(step);
  }

  Step steps(int fragment) const { return of(fragment).steps; }  // s, since the worker received it
  std::int64_t micro_batches(int fragment) const { return of(fragment).micro_batches; }  // k

  // The steps not reported before.
  BookedTime report() { return take_oldest(unreported_.size()); }
  // Replaces the fragment. Returns the lost steps: unreported ones that no fragment contains any more.
  BookedTime receive(int fragment) {
    since_[static_cast<std::size_t>(fragment)] = {};
    const auto in_oldest = std::ranges::max(since_, {}, &Since::steps).steps.value();
    return take_oldest(unreported_.size() - std::min(unreported_.size(), static_cast<std::size_t>(in_oldest)));
  }
  // Replaces all fragments.
  BookedTime receive_all() {
    std::ranges::fill(since_, Since{});
    return report();
  }

 private:
  struct Since {
    Step steps{};
    std::int64_t micro_batches = 0;
  };

  const Since& of(int fragment) const { return since_[static_cast<std::size_t>(fragment)]; }
  BookedTime take_oldest(std::size_t steps) {
    BookedTime sum;
    for (; steps > 0; --steps) {
      sum.micro_batches += unreported_.front().micro_batches;
      sum.time += unreported_.front().time;
      unreported_.pop_front();
    }
    return sum;
  }

  std::vector<Since> since_;
  std::deque<BookedTime> unreported_;
};

struct DecoupledOptions {
  enum class Anchor {
    server,  // outer gradients are the server's last value minus the worker's
    base,    // the value the worker began from minus its current one
  };

  std::optional<int> quorum{};        // K; none: all
  Fragments fragments{1};             // P
  std::optional<Step> local_steps{};  // H; none: rounds follow each other without a pause
  Step minimum_steps{1};
  std::optional<GraceOptions> grace{};
  MergeRule merge = MergeRule::rda;
  Anchor anchor = Anchor::server;
  LateAnswers late = LateAnswers::drop;
  std::shared_ptr<const OuterOptimizer> outer{};  // never null

  bool workers_subtract() const { return anchor == Anchor::base; }
  double steps_per_round() const { return static_cast<double>(local_steps->value()) / fragments.count(); }
};

class DecoupledDiLoCo : public Algorithm {
 public:
  explicit DecoupledDiLoCo(const DecoupledOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {
        .servers = 1,
        .publishes_rounds = true,
        .takes_data_in_turn = true,
        .averaged_slices = options_.fragments.count(),
        .sends_gradients = options_.workers_subtract(),
        .rejects_gradients = options_.late == LateAnswers::drop,
        .held = {.models = 2},
        .exchanged_whole = "workers send whole fragments; with anchor = \"base\" they send differences, which can be"};
  }

 private:
  // The server's model after an outer step on one fragment.
  ModelStatePtr stepped(const Server& server, Slice fragment, const std::vector<FragmentAnswer>& answers,
                        ModelStatePtr& momentum) const;

  DecoupledOptions options_;
};

std::unique_ptr<Algorithm> make_decoupled_diloco(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
