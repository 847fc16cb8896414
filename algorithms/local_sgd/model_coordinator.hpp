// The coordinator of dynamic averaging: whose models are averaged, and when all are.
// Source:  Kamp et al. 2018, "Efficient Decentralized Deep Learning by Dynamic Model Averaging".
#pragma once

#include <map>
#include <set>

#include "workers/server.hpp"

namespace syncopate {

// What it and the workers tell each other, as the first number of a message with a model.
enum class CoordinatorNews {
  answer,     // to the coordinator: as it asked
  violation,  // the model has left the reference's neighbourhood
  partial,    // from the coordinator: the mean of some
  reference,  // of all
};
constexpr double as_number(CoordinatorNews news) { return static_cast<double>(news); }

class ModelCoordinator {
 public:
  ModelCoordinator(Server& server, double threshold)
      : server_(server), threshold_(threshold), reference_(server.model()) {}

  void run();

 private:
  void take(const Message& message);
  void settle();
  void ask(Rank worker);
  void send(const ModelStatePtr& mean, CoordinatorNews news);
  Rank next_to_ask();
  ModelStatePtr mean_of(const std::map<Rank, ModelStatePtr>& models) const;

  Server& server_;
  double threshold_;
  ModelStatePtr reference_;
  std::map<Rank, ModelStatePtr> together_;  // the balancing set: they wait for a model
  std::set<Rank> asked_;                    // and have not answered
  std::map<Rank, ModelStatePtr> last_;      // of workers that have ended
  int violations_ = 0;                      // since the last average of all
  Step asked_so_far_{};
  Step latest_step_{};  // of any worker
};

}  // namespace syncopate
