#include "workers/cluster/tally.hpp"

namespace syncopate {

Tally& Tally::operator+=(const Tally& other) {
  Numbers sum = numbers();
  const Numbers more = other.numbers();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  return *this = of(sum);
}

Tally::Numbers Tally::numbers() const {
  return {computed_, cancelled_, kept_, dropped_, kept_time_.count(), computed_time_.count(), lost_time_.count()};
}

Tally Tally::of(const Numbers& numbers) {
  Tally tally;
  tally.computed_ = numbers[0];
  tally.cancelled_ = numbers[1];
  tally.kept_ = numbers[2];
  tally.dropped_ = numbers[3];
  tally.kept_time_ = Duration{numbers[4]};
  tally.computed_time_ = Duration{numbers[5]};
  tally.lost_time_ = Duration{numbers[6]};
  return tally;
}

}  // namespace syncopate
