#include "algorithms/local_sgd/co2.hpp"

#include <utility>
#include <vector>

#include "algorithms/local_sgd/outer_local_sgd.hpp"

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
  enum class Rounds { overlapped, blocking };
  constexpr Range finite{.low = 0, .low_open = true, .high_open = true};
  auto period = read_sync_period(settings, context);
  const double rate = settings.number({"rate", "How far an outer step goes."}, finite, 1.0);
  const double momentum = settings.number({"momentum", "Share of the last outer step that the next one keeps."},
                                          Range{.low = 0, .high = 1, .high_open = true}, 0.5);
  const double gap = settings.number({"gap", "What differences from the average are divided by."}, finite, 1.0);
  const auto rounds =
      settings.choice({"rounds", "Whether the next round goes on while the average is under way, or waits for it."},
                      {{"overlapped", Rounds::overlapped}, {"blocking", Rounds::blocking}}, Rounds::overlapped);
  if (rounds == Rounds::blocking) {
    if (settings.has("anchor"))
      settings.fault("anchor", "must not be given with rounds = \"blocking\": differences begin where the round began");
    return std::make_unique<OuterLocalSgd>(std::move(period), make_heavy_ball(rate, momentum, gap),
                                           read_overlapped_policies(settings, context));
  }
  OverlappedOuterOptions options{.update = OverlappedOuterOptions::Update::delayed};
  options.averaged = settings.choice(
      {"anchor", "Where these differences begin: where the averaged round began, or the newest outer model."},
      {{"round-start", Averaged::differences}, {"outer-model", Averaged::models}}, Averaged::differences);
  return std::make_unique<OverlappedOuter>(std::move(period), make_heavy_ball(rate, momentum, gap), options,
                                           read_overlapped_policies(settings, context));
}

}  // namespace syncopate
