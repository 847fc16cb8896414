// PowerSGD with one factor per step: at even steps all workers' M Q, with Q the last step's made orthogonal, and all
// step along (M Q) Q^T; at odd steps all workers' M^T P, with P likewise, and all step along P (M^T P)^T.
// Source:  the package of Vogels, Karimireddy, Jaggi 2019, "PowerSGD".
// Shapes:  M (n, m); P (n, r); Q (m, r).
// Cost:    one all-reduce: of 4 r n bytes per matrix at even steps, 4 r m at odd ones: half of both factors on average.
//          Each worker makes a factor orthogonal, and so does whoever adds up; what is sent whole goes along.
// Differs: steps are even by their number in the run. Which factor the package begins with is not established; here it
//          is P, along a Q that is drawn. Its 100 first steps without compression are not here. As in power_sgd.hpp, a
//          column of zeros is drawn anew.
// Checks:  a recursion in double precision; telescoping; of square matrices full rank is exact.
#pragma once

#include <vector>

#include "workers/compression/power_sgd.hpp"

namespace syncopate {

class PowerSgdInTurn : public PowerSgd {
 public:
  PowerSgdInTurn(const CompressionOptions& options, const std::vector<Part>& parts, std::uint64_t seed)
      : PowerSgd(options, parts, seed) {}

  std::vector<Exchange> exchanges(Step step) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  bool follows_common() const override { return true; }
  void decode(const Received& received, std::span<float> sum) const override;
  void correct(const Received& received, std::span<float> p) const override;

 private:
  static bool sends_left(Step step) { return step.value() % 2 == 0; }
  // The factor that this step goes by, where it stands in the packet that it was sent with.
  std::vector<float> other_factor(Step step, const float* common) const;
  // Where the factor that is sent and what is whole begin in a packet.
  std::size_t place_of(const Factored& matrix, Step step) const {
    return sends_left(step) ? matrix.left : matrix.right;
  }
  void add_products(const Received& received, float factor, std::span<float> to) const;
  // Calls use(part, where it begins in a packet).
  template <typename Use>
  void for_whole(Step step, const Use& use) const;
};

}  // namespace syncopate
