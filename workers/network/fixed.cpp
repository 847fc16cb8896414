#include "workers/network/fixed.hpp"

#include "workers/delays/limits.hpp"

namespace syncopate {
namespace {

class FixedNetwork final : public NetworkModel {
 public:
  explicit FixedNetwork(double latency_s) : latency_(from_seconds(latency_s)) {}
  Duration collective(const CollectiveCall&) const override { return latency_; }
  Duration message(const MessageCall&) const override { return latency_; }

 private:
  Duration latency_;
};

}  // namespace

std::unique_ptr<NetworkModel> make_fixed_network(double latency_s) { return std::make_unique<FixedNetwork>(latency_s); }

std::unique_ptr<NetworkModel> read_fixed_network(Settings& settings) {
  return make_fixed_network(settings.number({"latency_s", "What each collective and each message takes.", "s"},
                                            Range::between(0, longest_delay)));
}

}  // namespace syncopate
