#include "workers/network/jitter.hpp"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "workers/random/random.hpp"

namespace syncopate {
namespace {

Duration scaled(Duration cost, double factor) { return from_seconds(to_seconds(cost) * factor); }

class JitteryNetwork final : public NetworkModel {
 public:
  JitteryNetwork(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed)
      : network_(std::move(network)), jitter_(jitter), seed_(seed) {
    if (!(jitter >= 0) || std::isinf(jitter)) throw std::invalid_argument("a jitter must be at least 0 and finite");
  }

  Duration collective(const CollectiveCall& call) const override {
    return scaled(network_->collective(call), factor_of(call));
  }
  Duration message(const MessageCall& call) const override { return scaled(network_->message(call), factor_of(call)); }
  bool has_shared_links() const override { return network_->has_shared_links(); }
  Route route(const CollectiveCall& call) const override { return scaled_route(call); }
  Route route(const MessageCall& call) const override { return scaled_route(call); }
  bool varies() const override { return true; }

 private:
  enum Stream : std::uint8_t { of_collectives, of_messages };

  template <typename Call>
  Route scaled_route(const Call& call) const {
    Route route = network_->route(call);
    const double factor = factor_of(call);
    for (Hop& hop : route) {
      hop.occupied = scaled(hop.occupied, factor);
      hop.latency = scaled(hop.latency, factor);
    }
    return route;
  }

  double factor_of(const CollectiveCall& call) const {
    return factor(of_collectives, call.first, call.number, static_cast<std::uint32_t>(call.members));
  }
  double factor_of(const MessageCall& call) const { return factor(of_messages, call.from, call.number, 0); }
  double factor(Stream stream, Rank rank, std::optional<std::int64_t> number, std::uint32_t index) const {
    if (!number) return 1 + jitter_;
    const RandomStream random{
        .seed = seed_, .purpose = Purpose::network, .stream = stream, .worker = rank, .step = Step{*number}};
    return 1 - jitter_ * std::log(random.uniform(index));
  }

  std::unique_ptr<NetworkModel> network_;
  double jitter_;
  std::uint64_t seed_;
};

}  // namespace

std::unique_ptr<NetworkModel> with_jitter(std::unique_ptr<NetworkModel> network, double jitter, std::uint64_t seed) {
  return std::make_unique<JitteryNetwork>(std::move(network), jitter, seed);
}

}  // namespace syncopate
