#include "workers/network/ring.hpp"

namespace syncopate {
namespace {

class RingNetwork final : public NetworkModel {
 public:
  explicit RingNetwork(const Link& link) : link_(checked(link)) {}
  Duration collective(const CollectiveCall& call) const override {
    return from_seconds(ring_s(link_, call.operation, call.members, call.payload));
  }
  Duration message(const MessageCall& call) const override { return from_seconds(link_.message_s(call.payload)); }

 private:
  Link link_;
};

}  // namespace

double ring_s(const Link& link, Operation operation, int members, Bytes payload) {
  if (operation == Operation::broadcast) return doubling_rounds(members) * link.message_s(payload);
  const double rounds = (operation == Operation::all_reduce ? 2.0 : 1.0) * (members - 1);
  return rounds * link.latency_s + rounds / members * link.transfer_s(payload);
}

std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s) {
  return std::make_unique<RingNetwork>(Link{latency_s, bandwidth_bytes_per_s});
}

}  // namespace syncopate
