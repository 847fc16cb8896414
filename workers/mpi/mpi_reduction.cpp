#include "workers/mpi/mpi_reduction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <stdexcept>
#include <utility>

#include "workers/mpi/value_layout.hpp"
#include "workers/training/course_log.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {

using Kind = Collective::Kind;

int mpi_count(std::size_t elements) {
  if (elements > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw std::length_error(fmt::format("{} values are more than one MPI call can move", elements));
  return static_cast<int>(elements);
}

FlatVector zeros_of(Bytes bytes) {
  FlatVector values(static_cast<std::size_t>(bytes.value()) / sizeof(float));
  std::fill_n(values.data(), values.size(), 0.0f);
  return values;
}

namespace {

// Parameters and buffers travel; everybody keeps moments of its own.
constexpr AveragePolicy broadcast_policy{.buffers = StatePolicy::average};

// Moved within a millisecond, and long enough for the bandwidth of any network: of a broadcast, and the longest that
// MPI sums by itself, with fewer messages one after another than a ring has.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t pieces_at_once = 4;

std::size_t element_bytes(MPI_Datatype type) { return type == MPI_DOUBLE ? sizeof(double) : sizeof(float); }

// Tags of sums that are under way at the same time; MPI has at least 2^15.
constexpr std::int64_t most_under_way = 1024;

// What time-only collectives of this process move, for the next one of that size: sums of zeros are zeros, so that no
// collective takes the time to write them, which nobody's model costs.
class SpareZeros {
 public:
  FlatVector take(Bytes bytes) {
    const auto found =
        std::ranges::find(spare_, static_cast<std::size_t>(bytes.value()) / sizeof(float), &FlatVector::size);
    if (found == spare_.end()) return zeros_of(bytes);
    FlatVector zeros = std::move(*found);
    spare_.erase(found);
    return zeros;
  }
  void put_back(FlatVector&& zeros) {
    if (zeros.empty()) return;
    if (spare_.size() == most_kept) spare_.erase(spare_.begin());
    spare_.push_back(std::move(zeros));
  }

 private:
  static constexpr std::size_t most_kept = 4;
  std::vector<FlatVector> spare_;
};

SpareZeros& spare_zeros() {
  static SpareZeros zeros;
  return zeros;
}

bool has_values(const Collective& what) { return what.kind != Kind::all_gather && what.kind != Kind::barrier; }

}  // namespace

MpiReduction::MpiReduction(Training& training, Collective&& what, const Agreed& agreed, MPI_Comm ranks,
                           std::int64_t number)
    : training_(training), what_(std::move(what)), agreed_(agreed), ranks_(ranks), number_(number) {
  int rank = 0;
  MPI_Comm_rank(ranks, &rank);
  MPI_Comm_size(ranks, &size_);
  is_root_ = rank == what_.root.value;
  carried_ = carried();
  numbers_ = what_.numbers;
  if (what_.kind == Kind::all_gather) numbers_.resize(what_.numbers.size() * static_cast<std::size_t>(size_));
  if (has_values(what_)) write();
  if ((what_.kind == Kind::all_reduce || what_.is_exchange()) && !numbers_.empty()) add(std::span(numbers_));
}

MpiReduction::~MpiReduction() {
  if (training_.time_only()) spare_zeros().put_back(std::move(values_));
}

MpiReduction::MpiReduction(Training& training, Collective&& what, const Agreed& agreed, const Ended& members)
    : training_(training),
      what_(std::move(what)),
      agreed_(agreed),
      size_(members.size),
      is_root_(members.is_root),
      carried_(carried()) {
  if (gathers() && !training_.time_only()) {
    words_.assign(static_cast<std::size_t>(size_), 0);
    begins_ = words_;
  }
}

void MpiReduction::keep(StateArchive& archive) {
  archive(values_, gathered_, words_, begins_, exact_, numbers_);
  if (archive.reads() && what_.kind == Kind::average && !training_.time_only()) add_slice();
}

// Of this rank, where somebody wants to know, and in the first slice alone.
std::vector<MicroBatch> MpiReduction::carried() const {
  if (training_.time_only()) return {};
  if (what_.kind == Kind::all_reduce && what_.slice.index == 0) return training_.travelling(what_.gradient);
  const bool is_passed_on = what_.is_exchange() && what_.kind != Kind::broadcast_packet;
  return is_passed_on ? what_.packet.carried : std::vector<MicroBatch>();
}

void MpiReduction::write() {
  const CourseLog::Away unnoted;  // when it comes to that is a matter of time, and nothing of it is kept
  if (training_.time_only()) {
    Collective without_numbers{
        .kind = what_.kind, .packet = what_.packet, .policy = what_.policy, .slice = what_.slice};
    values_ = spare_zeros().take(payload_of(without_numbers, training_));
    if (gathers()) return begin_gathering();
    return add(values_.span());
  }
  switch (what_.kind) {
    case Kind::all_reduce:
      if (agreed_.wide) return widen();
      values_ = FlatVector(training_.gradient_size());
      training_.write_values(what_.gradient, values_.data());
      return add_slice();
    case Kind::average:
      values_ = FlatVector(training_.averaged_size(what_.policy));
      training_.write_averaged(what_.model, what_.policy, values_.data());
      add_slice();
      if (agreed_.share) scale(*agreed_.share);
      return;
    case Kind::broadcast:
      values_ = FlatVector(training_.averaged_size(broadcast_policy));
      if (is_root_) training_.write_averaged(what_.model, broadcast_policy, values_.data());
      return add(values_.span());
    case Kind::sum_packets:
    case Kind::sum_first_packets:
    case Kind::gather_packets:
    case Kind::exchange_chunks:
    case Kind::sum_differences:
    case Kind::gather_differences:
      training_.executor().wait(what_.packet.words->producer);
      values_ = copy_of(what_.packet.words->value);  // its worker may still read its own
      return gathers() ? begin_gathering() : add(values_.span());
    case Kind::broadcast_packet:
      if (is_root_) training_.executor().wait(what_.packet.words->producer);
      values_ = is_root_ ? copy_of(what_.packet.words->value) : zeros_of(what_.packet.size);
      return add(values_.span());
    case Kind::partial_all_reduce:  // goes by letters
    case Kind::all_gather:
    case Kind::barrier:
      return;
  }
}

// Chunks are of one size. Behind the words of a packet each rank has as much else.
void MpiReduction::begin_gathering() {
  const std::size_t behind = values_.size() - static_cast<std::size_t>(what_.packet.size.value()) / sizeof(float);
  std::size_t all = 0;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank) {
    const std::size_t words = exchanges_chunks()
                                  ? values_.size() / static_cast<std::size_t>(size_)
                                  : static_cast<std::size_t>(agreed_.packets[rank].value()) / sizeof(float) + behind;
    words_.push_back(mpi_count(words));
    begins_.push_back(mpi_count(all));
    all += words;
  }
  gathered_ = FlatVector(all);
}

// The whole, or a slice of the parameters, the first one with all that follows them.
void MpiReduction::add_slice() {
  if (what_.slice.count == 1) return add(values_.span());
  const auto parameters = static_cast<std::int64_t>(training_.objective().parameters());
  const auto begin = static_cast<std::size_t>(what_.slice.begin(parameters));
  const auto end = static_cast<std::size_t>(what_.slice.end(parameters));
  add(values_.span().subspan(begin, end - begin));
  if (what_.slice.index == 0) add(values_.span().subspan(static_cast<std::size_t>(parameters)));
}

// In double precision, of which the values have the high and the low part.
void MpiReduction::widen() {
  what_.gradient.use_double_precision();
  const std::size_t parameters = training_.objective().parameters();
  values_ = FlatVector(training_.gradient_size(true));
  training_.write_values(what_.gradient, values_.data());
  exact_.resize(parameters);
  for (std::size_t i = 0; i < parameters; ++i) exact_[i] = joined(values_.data()[i], values_.data()[parameters + i]);
  add(std::span(exact_));
  add(values_.span().subspan(2 * parameters));
}

void MpiReduction::scale(double factor) {
  for (const Part& part : parts_) {
    if (part.type != MPI_FLOAT) continue;
    for (float& value : std::span(static_cast<float*>(part.data), part.count)) value *= static_cast<float>(factor);
  }
}

void MpiReduction::run() {
  if (what_.kind == Kind::all_gather) {
    const int count = mpi_count(what_.numbers.size());
    MPI_Allgather(what_.numbers.data(), count, MPI_DOUBLE, numbers_.data(), count, MPI_DOUBLE, ranks_);
  }
  if (!gathered_.empty()) {
    if (exchanges_chunks())
      MPI_Alltoall(values_.data(), words_.front(), MPI_UINT32_T, gathered_.data(), words_.front(), MPI_UINT32_T,
                   ranks_);
    else
      MPI_Allgatherv(values_.data(), mpi_count(values_.size()), MPI_UINT32_T, gathered_.data(), words_.data(),
                     begins_.data(), MPI_UINT32_T, ranks_);
  }
  for (const Part& part : parts_)
    if (broadcasts())
      MPI_Bcast(part.data, mpi_count(part.count), part.type, what_.root.value, ranks_);
    else
      MPI_Allreduce(MPI_IN_PLACE, part.data, mpi_count(part.count), part.type, MPI_SUM, ranks_);
}

void MpiReduction::begin() {
  const auto next = [this]() -> MPI_Request* { return &requests_.emplace_back(MPI_REQUEST_NULL); };
  if (what_.kind == Kind::all_gather) {
    const int count = mpi_count(what_.numbers.size());
    MPI_Iallgather(what_.numbers.data(), count, MPI_DOUBLE, numbers_.data(), count, MPI_DOUBLE, ranks_, next());
  }
  if (!gathered_.empty()) {
    if (exchanges_chunks())
      MPI_Ialltoall(values_.data(), words_.front(), MPI_UINT32_T, gathered_.data(), words_.front(), MPI_UINT32_T,
                    ranks_, next());
    else
      MPI_Iallgatherv(values_.data(), mpi_count(values_.size()), MPI_UINT32_T, gathered_.data(), words_.data(),
                      begins_.data(), MPI_UINT32_T, ranks_, next());
  }
  if (broadcasts()) return begin_broadcast();
  std::vector<Part> summed_by_ring;
  for (const Part& part : parts_)
    if (part.count * element_bytes(part.type) > piece_bytes)
      summed_by_ring.push_back(part);
    else
      MPI_Iallreduce(MPI_IN_PLACE, part.data, mpi_count(part.count), part.type, MPI_SUM, ranks_, next());
  const int first_tag = static_cast<int>(number_ % most_under_way) * RingSums::lanes;
  if (!summed_by_ring.empty()) sums_.emplace(summed_by_ring, ranks_, first_tag);
}

void MpiReduction::begin_broadcast() {
  for (const Part& part : parts_) {
    const std::size_t bytes = element_bytes(part.type), most = piece_bytes / bytes;
    for (std::size_t first = 0; first < part.count; first += most)
      pieces_.push_back({static_cast<char*>(part.data) + first * bytes, std::min(most, part.count - first), part.type});
  }
  begin_pieces(pieces_at_once);
}

void MpiReduction::begin_pieces(std::size_t end) {
  for (end = std::min(pieces_.size(), end); begun_ < end; ++begun_) {
    const Part& piece = pieces_[begun_];
    MPI_Ibcast(piece.data, mpi_count(piece.count), piece.type, what_.root.value, ranks_,
               &requests_.emplace_back(MPI_REQUEST_NULL));
  }
}

bool MpiReduction::test() {
  int done = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
  if (sums_) return sums_->test() && done != 0;
  if (done == 0 || begun_ == pieces_.size()) return done != 0;
  requests_.clear();
  begin_pieces(begun_ + pieces_at_once);
  return false;
}

CollectiveResult MpiReduction::result() {
  CollectiveResult result;
  if (what_.kind == Kind::all_reduce) result.gradient = sum();
  if (what_.kind == Kind::average) result.model = mean();
  if (what_.is_exchange()) {
    result.gradient = Gradient(nullptr, agreed_.micro_batches);
    result.packets = packets();
  }
  if (what_.kind == Kind::broadcast)
    result.model = is_root_ || training_.time_only()
                       ? std::move(what_.model)
                       : training_.from_averaged(what_.model, broadcast_policy, values_.data());
  if (!numbers_.empty()) result.numbers = std::make_shared<const std::vector<double>>(std::move(numbers_));
  return result;
}

Gradient MpiReduction::sum() {
  const std::size_t parameters = exact_.size();
  for (std::size_t i = 0; i < parameters; ++i) split(exact_[i], values_.data()[i], values_.data()[parameters + i]);
  Gradient total = training_.time_only() ? Gradient(nullptr, agreed_.micro_batches)
                                         : training_.gradient_from(std::move(values_), agreed_.micro_batches, {},
                                                                   agreed_.wide, std::move(carried_));
  if (agreed_.wide) total.use_double_precision();
  total.mark_reduced();
  return total;
}

// What has flowed into the others' packets is theirs to tell.
SharedPackets MpiReduction::packets() {
  if (training_.time_only()) return nullptr;
  std::vector<Packet> packets;
  const auto add_packet = [&](FlatVector&& words, std::vector<MicroBatch> carried) {
    auto cell = new_cell();
    cell->value = std::move(words);
    packets.push_back({.words = std::move(cell), .size = what_.packet.size, .carried = std::move(carried)});
  };
  if (!gathers()) {
    add_packet(std::move(values_), std::move(carried_));
    return std::make_shared<const std::vector<Packet>>(std::move(packets));
  }
  for (std::size_t rank = 0; rank < words_.size(); ++rank) {
    FlatVector words(static_cast<std::size_t>(words_[rank]));
    std::ranges::copy(gathered_.span().subspan(static_cast<std::size_t>(begins_[rank]), words.size()), words.data());
    add_packet(std::move(words), rank == 0 ? std::move(carried_) : std::vector<MicroBatch>());
  }
  return std::make_shared<const std::vector<Packet>>(std::move(packets));
}

ModelStatePtr MpiReduction::mean() {
  if (training_.time_only()) return nullptr;
  if (!agreed_.share) scale(1.0f / static_cast<float>(size_));
  return training_.from_averaged(what_.model, what_.policy, values_.data(), agreed_.ages);
}

}  // namespace syncopate
