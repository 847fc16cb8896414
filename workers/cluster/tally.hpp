// What has become of a worker's micro-batches: their number, and the time that they took.
#pragma once

#include <array>
#include <cstdint>

#include "workers/cluster/collective.hpp"
#include "workers/cluster/work.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// Who decides which of a run's gradients are kept.
enum class DecidedBy { workers, servers };

class Tally {
 public:
  // Their gradients exist; a message has ended one.
  void compute(std::int64_t micro_batches, Duration time) {
    computed_ += micro_batches;
    computed_time_ += time;
  }
  void cancel() { ++cancelled_; }
  // They are in a model, or planned and never will be.
  void contribute(const Contribution& part) {
    kept_ += part.kept;
    dropped_ += part.dropped();
    kept_time_ += part.compute_time;
  }
  void keep(const Work& work) {
    kept_ += work.micro_batches;
    kept_time_ += work.time;
  }
  void drop(std::int64_t micro_batches) { dropped_ += micro_batches; }
  // Time that was for nothing.
  void lose(Duration time) { lost_time_ += time; }

  std::int64_t kept() const { return kept_; }
  Duration kept_time() const { return kept_time_; }
  // Servers alone know what they keep: all else that was begun is dropped, and for nothing.
  std::int64_t dropped(DecidedBy who) const {
    return who == DecidedBy::servers ? computed_ + cancelled_ - kept_ : dropped_;
  }
  Duration lost_time(DecidedBy who) const {
    return who == DecidedBy::servers ? computed_time_ - kept_time_ : lost_time_;
  }

  // Several may each know a part.
  Tally& operator+=(const Tally& other);
  using Numbers = std::array<std::int64_t, 7>;
  Numbers numbers() const;
  static Tally of(const Numbers& numbers);

 private:
  std::int64_t computed_ = 0;
  std::int64_t cancelled_ = 0;
  std::int64_t kept_ = 0;
  std::int64_t dropped_ = 0;
  Duration kept_time_{};
  Duration computed_time_{};
  Duration lost_time_{};
};

}  // namespace syncopate
