// One participant's book: where its time goes, and what becomes of its micro-batches. All clusters enter both here and
// nowhere else, so that clock, account, spans, counts and rows say the same.
#pragma once

#include <cstdint>

#include "workers/cluster/account.hpp"
#include "workers/cluster/collective.hpp"
#include "workers/cluster/span_recorder.hpp"
#include "workers/cluster/step_row.hpp"
#include "workers/cluster/tally.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

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

  // Time passes after the end of the run, which no account is kept of.
  void pass_unbooked(Time end) {
    unbooked_ += end - now_;
    now_ = end;
  }

  // The last time that it met others: until then its clock was everybody's, since then it has run ahead.
  void meet() { met_at_ = now_; }
  Time met_at() const { return met_at_; }

  // Micro-batches have come to their end, in this time; a message has ended one.
  void compute(std::int64_t micro_batches, Duration time) { tally_.compute(micro_batches, time); }
  void cancel() { tally_.cancel(); }
  // Time was spent on a gradient that nobody will take.
  void lose(Duration time) {
    if (spans_) spans_->lose(self_, time);
    tally_.lose(time);
  }
  // A server keeps it.
  void keep(const Work& work) {
    if (spans_) spans_->keep(self_, work.time);
    tally_.keep(work);
  }
  // What the worker brings to a row of steps.csv.
  void contribute(const Contribution& part, StepRow& row) {
    if (spans_) spans_->keep(self_, part.compute_time);
    tally_.contribute(part);
    row.add(part);
  }
  // Planned, for a row that does not come any more.
  void drop(std::int64_t micro_batches) { tally_.drop(micro_batches); }

  // As time has passed: what was lost since counts as computed.
  const Account& account() const { return account_; }
  const Tally& tally() const { return tally_; }

  // The run has ended, and the worker has waited for that, or has run ahead of it with what came too late: the account
  // up to the end, with what was for nothing. `down_beyond`: of outages, after the end.
  Account account_at(Time end, Duration down_beyond, DecidedBy who) const;

  // On a wall clock the end is over by the time that it is known. Takes back what lies beyond it, from the spans too,
  // and says how much of that was compute, of micro-batches alone where spans tell them apart.
  Duration take_back(Time end);

  // But for whose it is, and the spans.
  template <typename Archive>
  void keep(Archive& archive) {
    archive(now_, met_at_, unbooked_, account_, tally_);
  }

 private:
  Time now_ = start_time;
  Time met_at_ = start_time;
  Duration unbooked_{};
  Account account_;
  SpanRecorder* spans_ = nullptr;
  Tally tally_;
  Rank self_{};
};

}  // namespace syncopate
