#include "workers/network/two_level.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "workers/network/ring.hpp"
#include "workers/network/tree.hpp"

namespace syncopate {
namespace {

class TwoLevelNetwork final : public NetworkModel {
 public:
  TwoLevelNetwork(int workers, const TwoLevelOptions& options)
      : workers_(workers),
        group_size_(options.group_size),
        inside_(checked(options.inside)),
        between_(checked(options.between)),
        leaders_(options.leaders) {
    if (group_size_ < 1) throw std::invalid_argument("a server must have at least one worker");
  }

  Duration collective(const CollectiveCall& call) const override {
    const int last = call.first.value + call.members - 1;
    const int servers = server_of(Rank{last}) - server_of(call.first) + 1;
    const int members_of_fullest = fullest(call.first.value, last);
    const int rounds = doubling_rounds(members_of_fullest);
    if (call.operation == Operation::all_to_all) {
      const double one_way_s =
          rounds * inside_.latency_s + (members_of_fullest - 1.0) * inside_.transfer_s(call.payload);
      const Bytes of_leader{members_of_fullest * call.payload.value()};
      return from_seconds(2 * one_way_s + leaders_s(call.operation, servers, of_leader));
    }
    const double inside_s = tree_s(inside_, call.operation, members_of_fullest, call.payload);
    if (call.operation != Operation::all_gather)
      return from_seconds(inside_s + leaders_s(call.operation, servers, call.payload));
    const double share = static_cast<double>(members_of_fullest) / call.members;  // of what is gathered
    const double up_s =
        rounds * inside_.latency_s + (members_of_fullest - 1.0) / call.members * inside_.transfer_s(call.payload);
    const double down_s = rounds * inside_.message_s(call.payload);
    const Bytes gathered{std::llround(servers * share * static_cast<double>(call.payload.value()))};
    return from_seconds(up_s + leaders_s(call.operation, servers, gathered) + down_s);
  }

  Duration message(const MessageCall& call) const override {
    const Link& link = server_of(call.from, call.regions) == server_of(call.to, call.regions) ? inside_ : between_;
    return from_seconds(link.message_s(call.payload));
  }

 private:
  int server_of(Rank rank, int regions = 0) const {
    const int index = rank.value - workers_;  // of a server of parameters
    if (index < 0) return rank.value / group_size_;
    if (regions > 0 && index > 0) return (index - 1) * (workers_ / regions) / group_size_;
    return (workers_ - 1) / group_size_ + 1 + index;
  }

  // The most members on one server, of the ranks from `first` to `last`.
  int fullest(int first, int last) const {
    const int end_of_first = (first / group_size_ + 1) * group_size_;  // rank behind its server
    if (last < end_of_first) return last - first + 1;
    const int on_last = last % group_size_ + 1;
    const bool has_whole_between = last / group_size_ - first / group_size_ > 1;
    return has_whole_between ? group_size_ : std::max(end_of_first - first, on_last);
  }

  double leaders_s(Operation operation, int servers, Bytes payload) const {
    const bool tree = leaders_ == TwoLevelOptions::Between::tree;
    return (tree ? tree_s : ring_s)(between_, operation, servers, payload);
  }

  int workers_;
  int group_size_;
  Link inside_;
  Link between_;
  TwoLevelOptions::Between leaders_;
};

}  // namespace

std::unique_ptr<NetworkModel> make_two_level_network(int workers, const TwoLevelOptions& options) {
  return std::make_unique<TwoLevelNetwork>(workers, options);
}

}  // namespace syncopate
