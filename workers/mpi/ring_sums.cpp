#include "workers/mpi/ring_sums.hpp"

#include <algorithm>

#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {
namespace {

// Moved and added within a millisecond, and long enough for the bandwidth of any network.
constexpr std::size_t most_chunk_bytes = std::size_t{1} << 19;

std::size_t bytes_of(MPI_Datatype type) { return type == MPI_DOUBLE ? sizeof(double) : sizeof(float); }

std::byte* at(const RingSums::Values& values, std::size_t element) {
  return static_cast<std::byte*>(values.data) + element * bytes_of(values.type);
}

void add_to(const RingSums::Values& sum, const std::byte* summand) {
  if (sum.type == MPI_FLOAT)
    return add(static_cast<float*>(sum.data), reinterpret_cast<const float*>(summand), sum.count);
  double* const out = static_cast<double*>(sum.data);
  const auto* const in = reinterpret_cast<const double*>(summand);
  for (std::size_t i = 0; i < sum.count; ++i) out[i] += in[i];
}

}  // namespace

RingSums::RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag)
    : ranks_(ranks), first_tag_(first_tag) {
  MPI_Comm_rank(ranks, &rank_);
  MPI_Comm_size(ranks, &size_);
  if (size_ == 1) return;
  std::size_t lane = 0;
  for (const Values& all : values) {
    const std::size_t most = static_cast<std::size_t>(size_) * most_chunk_bytes / bytes_of(all.type);
    for (std::size_t first = 0; first < all.count; first += most, ++lane)
      waiting_[lane % lanes].push_back({at(all, first), std::min(most, all.count - first), all.type});
  }
}

bool RingSums::test() {
  bool all_over = true;
  for (Lane& lane : lanes_) all_over = is_over(lane) && all_over;
  return all_over;
}

bool RingSums::is_over(Lane& lane) {
  if (lane.step >= 0) {
    int done = 0;
    MPI_Testall(2, lane.requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) return false;
    end_step(lane);
  }
  if (lane.step < 0) {
    auto& waiting = waiting_[static_cast<std::size_t>(&lane - lanes_.data())];
    if (waiting.empty()) return true;
    lane.piece = waiting.front();
    waiting.pop_front();
    lane.step = 0;
  }
  begin_step(lane);
  return false;
}

void RingSums::begin_step(Lane& lane) {
  const Values sent = chunk(lane.piece, chunk_sent(lane.step));
  Values received = chunk(lane.piece, chunk_received(lane.step));
  if (is_adding(lane.step)) {
    lane.received.resize(received.count * bytes_of(received.type));
    received.data = lane.received.data();
  }
  MPI_Irecv(received.data, static_cast<int>(received.count), received.type, (rank_ + size_ - 1) % size_, tag_of(lane),
            ranks_, &lane.requests[0]);
  MPI_Isend(sent.data, static_cast<int>(sent.count), sent.type, (rank_ + 1) % size_, tag_of(lane), ranks_,
            &lane.requests[1]);
}

void RingSums::end_step(Lane& lane) {
  if (is_adding(lane.step)) add_to(chunk(lane.piece, chunk_received(lane.step)), lane.received.data());
  if (++lane.step == 2 * (size_ - 1)) lane.step = -1;
}

// Whole ones after another, of a piece that all ranks know the length of.
RingSums::Values RingSums::chunk(const Values& piece, int number) const {
  const auto place = static_cast<std::size_t>((number % size_ + size_) % size_), of = static_cast<std::size_t>(size_);
  const std::size_t begin = piece.count * place / of, end = piece.count * (place + 1) / of;
  return {at(piece, begin), end - begin, piece.type};
}

// First its own, and then what it has added to; at last what is complete.
int RingSums::chunk_sent(int step) const { return is_adding(step) ? rank_ - step : rank_ + size_ - step; }

}  // namespace syncopate
