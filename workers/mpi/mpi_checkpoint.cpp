#include "workers/mpi/mpi_checkpoint.hpp"

#include <algorithm>
#include <limits>

#include "workers/mpi/mpi_cluster.hpp"

namespace syncopate {

namespace {

constexpr int call_tag = 1;
constexpr std::int64_t look_every_ns = 1'000'000;

}  // namespace

void MpiCheckpoints::look() {
  if (!store_ || monotonic_ns() < next_look_ns_) return;
  next_look_ns_ = monotonic_ns() + look_every_ns;
  if (const auto number = called_for()) stop(*number);
}

// Rank 0 calls for none once it has said that nothing will come from it: others leave after that.
std::optional<std::int64_t> MpiCheckpoints::called_for() {
  const MPI_Comm ranks = stage_.communicators.checkpoints();
  if (stage_.self != Rank{0}) {
    int is_called = 0;
    MPI_Iprobe(0, call_tag, ranks, &is_called, MPI_STATUS_IGNORE);
    if (!is_called) return std::nullopt;
    MPI_Recv(&number_, 1, MPI_INT64_T, 0, call_tag, ranks, MPI_STATUS_IGNORE);
    return number_;
  }
  if (stage_.ending == MpiStage::Ending::closed) return std::nullopt;
  const auto number = store_->due();
  if (!number) return std::nullopt;
  number_ = *number;
  for (int rank = 1; rank < stage_.participants(); ++rank)
    MPI_Isend(&number_, 1, MPI_INT64_T, rank, call_tag, ranks, &calls_.emplace_back(MPI_REQUEST_NULL));
  return number;
}

void MpiCheckpoints::stop(std::int64_t number) {
  const Standstill standstill = stand_still();
  const std::int64_t begin_ns = monotonic_ns();
  wait_politely(stage_.communicators.cores_suffice(), [&] {
    drive();
    return has_all(standstill);
  });
  gather<std::int64_t>({0}, MPI_INT64_T, true);  // what the others still lack may need this rank
  MPI_Waitall(static_cast<int>(calls_.size()), calls_.data(), MPI_STATUSES_IGNORE);
  calls_.clear();

  const RankStore::Written written = store_->write(number, [&](ByteSink& out) { write_(out, standstill.at); });
  const std::vector<std::uint64_t> own = {written.digest ? 1U : 0U, written.digest.value_or(0),
                                          static_cast<std::uint64_t>(monotonic_ns() - begin_ns)};
  const std::vector<std::uint64_t> all = gather(own, MPI_UINT64_T, false);
  std::uint64_t longest_ns = 0;
  std::vector<std::optional<std::uint64_t>> digests;
  for (std::size_t part = 0; part < all.size(); part += own.size()) {
    digests.push_back(all[part] ? std::optional(all[part + 1]) : std::nullopt);
    longest_ns = std::max(longest_ns, all[part + 2]);
  }
  // By as much on all: from when the last one had stopped until the last one had written.
  stage_.clock.stood_still(static_cast<std::int64_t>(longest_ns));
  if (store_->written(number, digests)) throw LeftAtCheckpoint();
}

MpiCheckpoints::Standstill MpiCheckpoints::stand_still() {
  std::vector<std::int64_t> own = {
      stage_.now().time_since_epoch().count(),
      stage_.is_worker() ? collectives_.started() : std::numeric_limits<std::int64_t>::max()};
  const auto head = static_cast<std::ptrdiff_t>(own.size());
  own.insert(own.end(), stage_.post.sent_to().begin(), stage_.post.sent_to().end());
  const std::vector<std::int64_t> all = gather(own, MPI_INT64_T, true);
  Standstill standstill{.collectives = own[1]};
  for (auto part = all.begin(); part != all.end(); part += std::ssize(own)) {
    standstill.at = std::max(standstill.at, Time{Duration{part[0]}});
    standstill.collectives = std::min(standstill.collectives, part[1]);
    standstill.sent.push_back(part[head + stage_.self.value]);
  }
  return standstill;
}

bool MpiCheckpoints::has_all(const Standstill& standstill) {
  return std::ranges::equal(stage_.post.received_from(), standstill.sent) && stage_.post.has_nothing_half_way() &&
         collectives_.have_ended(standstill.collectives);
}

void MpiCheckpoints::drive() {
  stage_.post.progress();
  collectives_.drive();
}

template <typename Number>
std::vector<Number> MpiCheckpoints::gather(const std::vector<Number>& own, MPI_Datatype type, bool drives) {
  std::vector<Number> all(own.size() * static_cast<std::size_t>(stage_.participants()));
  const int count = static_cast<int>(own.size());
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), count, type, all.data(), count, type, stage_.communicators.checkpoints(), &request);
  wait_politely(stage_.communicators.cores_suffice(), [&] {
    if (drives) drive();
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  return all;
}

void MpiCourse::Source::read(void* data, std::size_t size) {
  if (course.calls_.size() - course.next_ < size) throw AnotherCourse("its course is cut off");
  std::copy_n(course.calls_.data() + course.next_, size, static_cast<char*>(data));
  course.next_ += size;
}

void MpiCourse::tell_rows() {
  while (!is_through() && next() == Call::row) {
    ++next_;
    StepRow row;
    StateArchive archive(static_cast<ByteSource&>(source_));
    archive(row);
    if (observer_) observer_->on_row(row);
  }
}

bool MpiCourse::replays(Call call) {
  if (!replays_) return false;
  tell_rows();
  if (!is_through()) return true;
  if (call != position_.call) throw AnotherCourse("it comes to another call than the one at which it had stopped");
  at_end();
  replays_ = false;
  has_just_gone_on_ = true;
  return false;
}

void MpiCourse::take(Call call) {
  if (next() != call) throw AnotherCourse("it makes another call than it had made");
  ++next_;
}

bool MpiCourse::enter(Call call) {
  if (!is_kept()) return true;
  if (std::exchange(has_just_gone_on_, false)) return !position_.is_inside;
  position_ = {.call = call, .is_inside = false, .values = log_->last_number()};
  return true;
}

void MpiCourse::write(ByteSink& out) {
  log_->write_course(out, position_.values);
  StateArchive archive(out);
  archive(position_, calls_);
}

void MpiCourse::follow(ByteSource& in) {
  log_->follow(in);
  StateArchive archive(in);
  archive(position_, calls_);
  next_ = 0;
  replays_ = true;
}

}  // namespace syncopate
