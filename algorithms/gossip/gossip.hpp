// Gossip: the common part of methods without a server: messages with models, workers that stop before others,
// evaluation, and recovery of a worker that loses its state. That worker continues with fresh moments from the last
// model that another worker has sent it, or from the initial model. This is as if the sender repeated its last message
// from a log, but takes no time. None of the worker's steps count as dropped, because the models that it has sent
// contain them.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Traits::exchanged_whole of the gossip methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models, and no source of this project says how";

class Gossip {
 public:
  explicit Gossip(Worker& worker, IndividualModels evaluated = IndividualModels::mean)
      : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // Waits for the next message of another worker. Returns null once that worker has stopped.
  ReceivedMessage receive_from(Rank from, Worker::CalledFrom at = Worker::CalledFrom::current());
  // Returns the messages that have arrived since the last call, in order of arrival, except those of workers that stop.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::CalledFrom at = Worker::CalledFrom::current());
  // Whether this worker knows that the other one has stopped; true for itself, since no worker sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // Returns the weighted mean of the terms, and the sum of their weights.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // Call after each step; after the last step call `stop`, too. Reports the step, and publishes the worker's model with
  // its weight in the mean of all models.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // not this worker's model, which nobody could send back to it
    if (worker_.budget_left()) worker_.publish(WorkerModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // whether others may wait for this worker even after all workers' last steps
  };
  // Ends this worker's training. All workers send their models to worker 0, which publishes their weighted mean. This
  // is for evaluation only, so these messages take no time on the clock (Message::Kind::last_model). Worker 0 leaves
  // only when it has all models, so before that it notifies `listeners`, which may wait for its next message. Workers
  // that leave because their own data are used up are not in the mean. If worker 0 does, no mean is published.
  void stop(std::span<const Rank> listeners, const Ending& how, Worker::CalledFrom at = Worker::CalledFrom::current());

 private:
  ReceivedMessage unless_last(ReceivedMessage message);
  void declare_newest(const ModelStatePtr& others) {
    worker_.declare_newest(others);
    others_newest_ = others;
  }
  void publish_mean(Message own, Worker::CalledFrom at);

  Worker& worker_;
  IndividualModels evaluated_;
  std::weak_ptr<const ModelState> others_newest_;  // kept alive by worker_, if outages can erase its state
  std::map<Rank, Message> last_;                   // by worker that has stopped: its last message
};

// Reads the key `evaluated`: "average" (default) or "own".
IndividualModels read_individual_models(Settings& settings);

}  // namespace syncopate
