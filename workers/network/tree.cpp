#include "workers/network/tree.hpp"

#include <bit>

namespace syncopate {
namespace {

class TreeNetwork final : public NetworkModel {
 public:
  explicit TreeNetwork(const Link& link) : link_(checked(link)) {}
  Duration collective(const CollectiveCall& call) const override {
    return from_seconds(tree_s(link_, call.operation, call.members, call.payload));
  }
  Duration message(const MessageCall& call) const override { return from_seconds(link_.message_s(call.payload)); }

 private:
  Link link_;
};

}  // namespace

double tree_s(const Link& link, Operation operation, int members, Bytes payload) {
  const int rounds = doubling_rounds(members);
  const double down_s = rounds * link.message_s(payload);
  switch (operation) {
    case Operation::all_reduce:
      return 2 * down_s;
    case Operation::all_gather:
      return rounds * link.latency_s + (members - 1.0) / members * link.transfer_s(payload) + down_s;
    case Operation::broadcast:
      return down_s;
    case Operation::all_to_all: {
      std::int64_t passed_on = 0;  // parts, each as often as it is
      for (unsigned way = 1; way < static_cast<unsigned>(members); ++way) passed_on += std::popcount(way);
      return rounds * link.latency_s + static_cast<double>(passed_on) / members * link.transfer_s(payload);
    }
  }
  throw std::logic_error("unknown collective");
}

std::unique_ptr<NetworkModel> make_tree_network(double latency_s, double bandwidth_bytes_per_s) {
  return std::make_unique<TreeNetwork>(Link{latency_s, bandwidth_bytes_per_s});
}

}  // namespace syncopate
