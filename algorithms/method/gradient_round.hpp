// GradientRound: the gradients that a server accepts for its next step, the workers that sent them (the givers), and
// the step along the gradients' mean. The method's serve() decides which gradients count, when the round ends, and
// which workers begin the next one.
// Shapes:  gradient: (P,) flat float32.
// Checks:  the methods that use it.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The work of a worker that is still computing when the next model arrives.
enum class LateWork {
  finish,  // it continues, and its gradient is dropped on arrival
  cancel,  // it stops: every new model goes to all workers
};

inline LateWork read_late_work(Settings& settings) {
  return settings.choice({"late", "Whether late work finishes, and is dropped on arrival, or is cancelled."},
                         {{"finish", LateWork::finish}, {"cancel", LateWork::cancel}}, LateWork::finish);
}

// A worker's program: it computes one gradient at each model that it receives.
inline void send_gradient_per_model(Worker& worker, LateWork late, Samples samples = Samples::of_step) {
  const Deadline deadline = late == LateWork::cancel ? Deadline::until_message() : Deadline();
  while (worker.receive_model())
    if (auto gradient = worker.compute_step_gradient(deadline, samples)) worker.send_gradient(*std::move(gradient));
}

// A method whose server uses only gradients of its newest model. Its serve() decides when a step ends.
class FreshGradients : public Algorithm {
 public:
  // A worker computes gradients at each model until the next one arrives.
  void run(Worker& worker) const override {
    while (worker.receive_model())
      while (auto gradient = worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn))
        worker.send_gradient(*std::move(gradient));
  }

  Traits traits() const override {
    return {.servers = 1,
            .steps_along_fresh_mean = true,
            .sends_gradients = true,
            .rejects_gradients = true,
            .held = {.models = 0, .moments = 0}};
  }
};

class GradientRound {
 public:
  explicit GradientRound(Server& server) : server_(server) {}

  // Adds the gradient with this weight (above 0) if the server accepts it. Returns whether it did.
  bool take(const Message& message, const AcceptOptions& options = any_gradient, double weight = 1) {
    if (!server_.accept(message, options)) return false;
    if (givers_.empty()) first_weight_ = weight;
    const double relative = weight / first_weight_;
    sum_ += relative == 1 ? message.gradient : message.gradient * relative;
    relative_weights_ += relative;
    givers_.push_back(message.from);
    return true;
  }

  int gradients() const { return static_cast<int>(givers_.size()); }
  std::span<const Rank> givers() const { return givers_; }  // one per gradient, in order of arrival

  // Takes one step along the weighted mean of the gradients (at least one), publishes the model and begins the next
  // round. The learning rate is multiplied by `rate_factor` and the gradients' mean weight, also for weight decay and
  // adaptive optimizers. For plain SGD the step is rate x (sum of weight x gradient) / (number of gradients), as if
  // each gradient had a separate rate.
  void step(double rate_factor = 1) {
    server_.descend(std::exchange(sum_, {}) / (relative_weights_ * server_.micro_batches()),
                    {.rate_factor = rate_factor, .weight = first_weight_ * (relative_weights_ / gradients())});
    relative_weights_ = 0;
    givers_.clear();
    server_.publish();
  }

 private:
  Server& server_;
  Gradient sum_;                 // sum of gradient x (weight / first weight); the factor is exactly 1 for equal weights
  double first_weight_ = 1;      // weight of the round's first gradient
  double relative_weights_ = 0;  // sum of weight / first weight
  std::vector<Rank> givers_;
};

// One worker's gradients at the models of a round, for methods that weigh workers equally, whatever number of
// gradients each has sent.
struct MeanOfWorker {
  Gradient sum;
  std::int64_t count = 0;

  // Each gradient is computed once, and the sum is one vector, however many gradients it has.
  void add(const Server& server, const Gradient& gradient) {
    sum += gradient;
    sum = server.shared(sum);
    ++count;
  }
};

// (1 / N) sum over workers of their means, which divide by the micro-batches of a step. Workers without a gradient,
// which have left, are left out.
inline Gradient mean_of_means(const ByRank<MeanOfWorker>& means, int micro_batches) {
  Gradient sum;
  std::int64_t present = 0;
  for (const Rank worker : Ranks(means.size())) {
    if (means[worker].count == 0) continue;
    sum += means[worker].sum / static_cast<double>(means[worker].count * micro_batches);
    ++present;
  }
  return std::move(sum) / static_cast<double>(present);
}

}  // namespace syncopate
