#include "algorithms/local_sgd/co2.hpp"

#include <vector>

namespace syncopate {
namespace {

class HeavyBall final : public OuterOptimizer {
 public:
  HeavyBall(double rate, double momentum, double gap) : rate_(rate), momentum_(momentum), gap_(gap) {}

  ModelStatePtr step(const Participant& worker, const OuterStep& at, ModelStatePtr& momentum) const override {
    std::vector<WeightedState> sum = {{1 / gap_, at.last}, {-1 / gap_, at.average}};
    if (momentum) sum.push_back({momentum_, momentum});
    momentum = worker.combine(sum, at.average);
    return worker.combine({{1, at.last}, {-rate_, momentum}}, at.average);
  }

 private:
  double rate_;
  double momentum_;
  double gap_;
};

}  // namespace

std::unique_ptr<const OuterOptimizer> make_heavy_ball(double rate, double momentum, double gap) {
  return std::make_unique<HeavyBall>(rate, momentum, gap);
}

std::unique_ptr<Algorithm> make_co2(Settings& settings, const AlgorithmContext& context) {
  using Averaged = OverlappedOuterOptions::Averaged;
  constexpr Range finite{.low = 0, .low_open = true, .high_open = true};
  auto period = read_sync_period(settings, context);
  const double rate = settings.number({"rate", "How far an outer step goes."}, finite, 1.0);
  const double momentum = settings.number({"momentum", "Share of the last outer step that the next one keeps."},
                                          Range{.low = 0, .high = 1, .high_open = true}, 0.5);
  const double gap = settings.number({"gap", "What differences from the late average are divided by."}, finite, 1.0);
  OverlappedOuterOptions options{.update = OverlappedOuterOptions::Update::delayed};
  options.averaged = settings.choice(
      {"anchor", "Where these differences begin: the newest outer model, or where the averaged round began."},
      {{"outer-model", Averaged::models}, {"round-start", Averaged::differences}}, Averaged::models);
  return std::make_unique<OverlappedOuter>(std::move(period), make_heavy_ball(rate, momentum, gap), options,
                                           read_overlapped_policies(settings));
}

}  // namespace syncopate
