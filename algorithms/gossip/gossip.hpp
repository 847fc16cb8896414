// What methods without a centre share: workers that send each other models, some of which stop before others, and what
// is evaluated of them.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "workers/worker.hpp"

namespace syncopate {

class Gossip {
 public:
  explicit Gossip(Worker& worker) : worker_(worker) {}

  // The next message of another worker; nothing once it has stopped.
  ReceivedMessage receive_from(Rank from, Worker::Here at = Worker::Here::current());
  // What has come by now, in the order of arrival, of workers that have not stopped.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::Here at = Worker::Here::current());
  // As far as is known here. Nobody sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // The mean by these weights, with their sum.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // Publishes worker 0's own model, unless it has done its last step: then stop follows.
  void publish_own();

  // The end of this worker's training. All send their models to worker 0, which publishes their mean, weighted by
  // `weight`. Until it has them all it has not left, so it tells `listeners`, who may wait for its next message.
  // Workers that leave because their own data are used up are not in the mean; if worker 0 is one, there is none.
  void stop(std::span<const Rank> listeners, double weight = 1, Worker::Here at = Worker::Here::current());

 private:
  ReceivedMessage unless_last(ReceivedMessage message);
  void publish_mean(Message own, Worker::Here at);

  Worker& worker_;
  std::map<Rank, Message> last_;  // of workers that have stopped
};

}  // namespace syncopate
