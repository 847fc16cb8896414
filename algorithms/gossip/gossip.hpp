// Shared by methods without a centre: messages of models, workers that stop before others, what is evaluated, and how
// a worker goes on that loses its state. Such a worker takes up the model that another one sent it last, before the
// first message the first model of all, with fresh moments. (A sender that logs its last message could send it again;
// no time is charged, as with a lost average.) None of its steps count as dropped: their effect is in the models that
// it has sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Traits::exchanged_whole of these methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models, and no source of this project says how";

class Gossip {
 public:
  explicit Gossip(Worker& worker, IndividualModels evaluated = IndividualModels::mean)
      : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // The next message of another worker; nothing once it has stopped.
  ReceivedMessage receive_from(Rank from, Worker::CalledFrom at = Worker::CalledFrom::current());
  // The messages so far, in the order of arrival, of workers that have not stopped.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::CalledFrom at = Worker::CalledFrom::current());
  // As far as is known here. Nobody sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // The mean by these weights, with their sum.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // Each worker calls it after each step, which it reports: this is its model now, of that weight among all. After the
  // last step `stop` follows.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // steps alone make nothing that another worker has
    if (worker_.budget_left()) worker_.publish(WorkerModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // for a message of this worker, though all have done their last step
  };
  // Ends this worker's training. All send their models to worker 0, which publishes their weighted mean: for the result
  // alone, so that none takes a transfer on the clock (Message::Kind::last_model). Until it has them all it has not
  // left, so it tells `listeners`, who may wait for its next message. Workers that leave because their own data are
  // used up are not in the mean; if worker 0 is one, there is none.
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
  std::weak_ptr<const ModelState> others_newest_;  // which the worker holds, where it may lose its state
  std::map<Rank, Message> last_;                   // of workers that have stopped
};

// Reads the key `evaluated`: "average" (default) or "own".
IndividualModels read_individual_models(Settings& settings);

}  // namespace syncopate
