#include "workers/delays/network.hpp"

namespace syncopate {
namespace {

class FixedNetwork final : public NetworkModel {
 public:
  explicit FixedNetwork(double latency_s) : latency_(from_seconds(latency_s)) {}
  Duration all_reduce(int, Bytes) const override { return latency_; }
  Duration all_gather(int, Bytes) const override { return latency_; }
  Duration message(Bytes) const override { return latency_; }

 private:
  Duration latency_;
};

class RingNetwork final : public NetworkModel {
 public:
  RingNetwork(double latency_s, double bandwidth_bytes_per_s)
      : latency_s_(latency_s), bandwidth_bytes_per_s_(bandwidth_bytes_per_s) {
    if (!(latency_s >= 0)) throw std::invalid_argument("a latency must be at least 0 s");
    if (!(bandwidth_bytes_per_s > 0)) throw std::invalid_argument("a bandwidth must be greater than 0 bytes/s");
  }

  // A reduce-scatter and an all-gather, each N - 1 rounds in which everyone passes on one Nth.
  Duration all_reduce(int workers, Bytes payload) const override {
    const double rounds = 2.0 * (workers - 1);
    return from_seconds(rounds * latency_s_ + rounds / workers * transfer_s(payload));
  }

  Duration all_gather(int workers, Bytes payload) const override {
    const double rounds = workers - 1;
    return from_seconds(rounds * latency_s_ + rounds / workers * transfer_s(payload));
  }

  Duration message(Bytes payload) const override { return from_seconds(latency_s_ + transfer_s(payload)); }

 private:
  double transfer_s(Bytes payload) const { return static_cast<double>(payload.value()) / bandwidth_bytes_per_s_; }

  double latency_s_;
  double bandwidth_bytes_per_s_;
};

}  // namespace

std::unique_ptr<NetworkModel> make_fixed_network(double latency_s) { return std::make_unique<FixedNetwork>(latency_s); }

std::unique_ptr<NetworkModel> make_ring_network(double latency_s, double bandwidth_bytes_per_s) {
  return std::make_unique<RingNetwork>(latency_s, bandwidth_bytes_per_s);
}

}  // namespace syncopate
