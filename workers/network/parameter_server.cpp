#include "workers/network/parameter_server.hpp"

#include <algorithm>

namespace syncopate {
namespace {

class ParameterServerNetwork final : public NetworkModel {
 public:
  ParameterServerNetwork(int workers, const Link& server_link) : workers_(workers), link_(checked(server_link)) {}

  Duration collective(const CollectiveCall& call) const override { return length_of(route(call)); }
  Duration message(const MessageCall& call) const override { return length_of(route(call)); }
  bool has_shared_links() const override { return true; }

  Route route(const CollectiveCall& call) const override {
    const int members = call.members;
    if (members == 1) return {};
    const double vector_s = link_.transfer_s(call.payload);
    switch (call.operation) {
      case Operation::all_reduce:
      case Operation::all_to_all:
        return {hop(incoming(0), members * vector_s), hop(outgoing(0), members * vector_s)};
      case Operation::all_gather:
        return {hop(incoming(0), vector_s), hop(outgoing(0), members * vector_s)};
      case Operation::broadcast:
        return {hop(incoming(0), vector_s), hop(outgoing(0), (members - 1) * vector_s)};
    }
    return {};
  }

  Route route(const MessageCall& call) const override {
    const double transfer_s = link_.transfer_s(call.payload);
    const int from = call.from.value - workers_, to = call.to.value - workers_;  // numbers of servers, or negative
    if (from < 0 && to >= 0) return {hop(incoming(to), transfer_s)};
    if (from >= 0 && to < 0) return {hop(outgoing(from), transfer_s)};
    if (from < 0) return {hop(incoming(0), transfer_s), hop(outgoing(0), transfer_s)};
    return {hop(outgoing(from), transfer_s), hop(incoming(to), transfer_s)};
  }

 private:
  static int incoming(int server) { return 2 * server; }
  static int outgoing(int server) { return 2 * server + 1; }
  Hop hop(int link, double occupied_s) const {
    return {.link = link, .occupied = from_seconds(occupied_s), .latency = from_seconds(link_.latency_s)};
  }
  static Duration length_of(const Route& route) {
    Duration length{};
    for (const Hop& hop : route)
      for (const Duration part : {hop.occupied, hop.latency}) length = std::min(length + part, longest_duration);
    return length;
  }

  int workers_;
  Link link_;
};

}  // namespace

std::unique_ptr<NetworkModel> make_parameter_server_network(int workers, const Link& server_link) {
  return std::make_unique<ParameterServerNetwork>(workers, server_link);
}

}  // namespace syncopate
