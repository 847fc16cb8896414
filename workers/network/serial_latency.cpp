#include "workers/network/serial_latency.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {
namespace {

class SerialLatency final : public NetworkModel {
 public:
  SerialLatency(std::unique_ptr<NetworkModel> network, double serial_s)
      : network_(std::move(network)), serial_(from_seconds(serial_s)) {}

  Duration collective(const CollectiveCall& call) const override { return plus_serial(network_->collective(call)); }
  Duration message(const MessageCall& call) const override { return network_->message(call); }
  bool has_shared_links() const override { return network_->has_shared_links(); }
  Route route(const CollectiveCall& call) const override {
    Route route = network_->route(call);
    if (!route.empty()) route.back().latency = plus_serial(route.back().latency);
    return route;
  }
  Route route(const MessageCall& call) const override { return network_->route(call); }
  bool varies() const override { return network_->varies(); }

 private:
  Duration plus_serial(Duration cost) const { return std::min(cost + serial_, longest_duration); }

  std::unique_ptr<NetworkModel> network_;
  Duration serial_;
};

}  // namespace

std::unique_ptr<NetworkModel> with_serial_latency(std::unique_ptr<NetworkModel> network, double serial_s) {
  return std::make_unique<SerialLatency>(std::move(network), serial_s);
}

}  // namespace syncopate
