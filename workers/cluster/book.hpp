// One participant's book: where its time goes, and what becomes of its micro-batches. Time passes nowhere else, so that
// clock, account and spans say the same; and what a worker adds to a row it adds to its own counts, too.
#pragma once

#include <cstdint>

#include "workers/cluster/account.hpp"
#include "workers/cluster/collective.hpp"
#include "workers/cluster/span_recorder.hpp"
#include "workers/cluster/step_row.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// What has become of a worker's micro-batches.
struct Tally {
  std::int64_t computed = 0;   // their gradients exist
  std::int64_t cancelled = 0;  // a message ended them
  std::int64_t kept = 0;       // they are in a model
  std::int64_t dropped = 0;    // planned, and never will be
  Duration kept_time{};        // with servers: what those took that the servers kept

  void count(const Contribution& part) {
    kept += part.kept;
    dropped += part.planned - part.kept;
  }
  // With servers, who alone know what they keep: all else that was begun.
  std::int64_t dropped_by_servers() const { return computed + cancelled - kept; }
};

class Book {
 public:
  Book() = default;
  // `spans`: null where none are asked for.
  Book(Rank self, Time begin, SpanRecorder* spans) : now_(begin), spans_(spans), self_(self) {}

  Time now() const { return now_; }

  // Time passes until `end`; none where that has gone by.
  void pass(Activity activity, Time end, const SpanLabel& label) {
    end = end > now_ ? end : now_;
    if (spans_) spans_->add(self_, activity, end, label.what, label.step, label.micro_batch);
    account_[activity] += end - now_;
    now_ = end;
  }

  // The last time that it met others: until then its clock was everybody's, since then it has run ahead.
  void meet() { met_at_ = now_; }
  Time met_at() const { return met_at_; }

  // Time that was spent on a gradient which nobody will take.
  void lose(Duration time) {
    if (spans_) spans_->lose(self_, time);
    account_[Activity::compute] -= time;
    account_[Activity::discarded] += time;
  }

  // What the worker brings to a row of steps.csv.
  void contribute(const Contribution& part, StepRow& row) {
    tally.count(part);
    row.add(part);
  }

  const Account& account() const { return account_; }
  // To correct what cannot be known while time passes: how the run's end cuts it.
  Account& account() { return account_; }
  SpanRecorder* spans() const { return spans_; }

 private:
  Time now_ = start_time;
  Time met_at_ = start_time;
  Account account_;
  SpanRecorder* spans_ = nullptr;

 public:
  Tally tally;

 private:
  Rank self_{};
};

}  // namespace syncopate
