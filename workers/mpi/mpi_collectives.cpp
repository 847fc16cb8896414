#include "workers/mpi/mpi_collectives.hpp"

#include <fmt/format.h>

#include <cassert>
#include <string_view>

#include "workers/time/network.hpp"

namespace syncopate {

namespace {

using Kind = Collective::Kind;
using Announcement = MpiTransport::Announcement;

std::string describe(const Arrival& arrival) {
  if (!arrival.terms) return "has ended";
  return fmt::format("waits in {} at {}", describe(*arrival.terms), arrival.place);
}

// Returns an empty text if all members wait for the same collective, otherwise one line per member that says where it
// waits. `first`: rank of the first member.
std::string explain_mismatch(const std::vector<Arrival>& arrivals, int first) {
  const Arrival& front = arrivals.front();
  if (std::ranges::all_of(arrivals, [&](const Arrival& other) { return other.terms == front.terms; })) return {};
  std::vector<int> left;
  std::string states;
  for (int rank = first; const Arrival& arrival : arrivals) {
    if (!arrival.terms) left.push_back(rank);
    states += fmt::format("\n  worker {} {}", rank++, describe(arrival));
  }
  if (left.empty()) return "the workers wait for different collectives, so none can continue:" + states;
  const std::string who =
      left.size() == 1 ? fmt::format("worker {} has", left.front()) : fmt::format("workers {} have", rank_ranges(left));
  return who + " left, but the others wait in a collective that needs every worker:" + states;
}

// Explains why this worker cannot continue without a worker that will never arrive.
std::string explain_absence(const Arrival& own, Rank absent, const char* why) {
  return fmt::format("worker {} {}, and {} at {} needs it", absent.value, why, properties_of(own.terms->kind).name,
                     own.place);
}

// Returns this worker's weight in a weighted mean; nullopt if all workers have equal weights.
std::optional<double> share_of(const Arrival& own, const std::vector<Arrival>& arrivals) {
  double sum = 0;
  bool equal = true;
  for (const Arrival& arrival : arrivals) {
    sum += arrival.weight;
    equal = equal && arrival.weight == own.weight;
  }
  if (equal) return std::nullopt;
  return own.weight / sum;
}

// The age of the optimizer moments in the mean of all workers.
MomentAges age_of_mean(const Training& training, const std::vector<Arrival>& arrivals, bool is_weighted) {
  std::vector<MomentAges> ages;
  std::vector<double> weights;
  for (const Arrival& arrival : arrivals) {
    ages.push_back(arrival.ages);
    weights.push_back(arrival.weight);
  }
  return training.age_of_mean(ages, is_weighted ? std::span<const double>(weights) : std::span<const double>());
}

// A piece of a broadcast takes less than a millisecond to send, and is long enough to use any network's full bandwidth.
// Sums of at most this size use MPI's own all-reduce, which takes fewer consecutive messages than a ring.
constexpr std::size_t piece_bytes = std::size_t{1} << 20;
constexpr std::size_t pieces_at_once = 4;

std::size_t element_bytes(MPI_Datatype type) { return type == MPI_DOUBLE ? sizeof(double) : sizeof(float); }

// Limits the number of tags of simultaneous sums. MPI guarantees at least 2^15 tags.
constexpr std::int64_t most_under_way = 1024;

// Caches the zeros that this process sends in time-only collectives, for its next one of the same size. They stay
// zeros, because sums of zeros are zeros. Writing new ones each time would take time that no real run needs.
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

SpareZeros spare_zeros;

// A chunk takes less than a millisecond to send and add, and is long enough to use any network's full bandwidth.
constexpr std::size_t most_chunk_bytes = std::size_t{1} << 19;

std::byte* at(const RingSums::Values& values, std::size_t element) {
  return static_cast<std::byte*>(values.data) + element * element_bytes(values.type);
}

void add_to(const RingSums::Values& sum, const std::byte* summand) {
  if (sum.type == MPI_FLOAT)
    return add(static_cast<float*>(sum.data), reinterpret_cast<const float*>(summand), sum.count);
  double* const out = static_cast<double*>(sum.data);
  const auto* const in = reinterpret_cast<const double*>(summand);
  for (std::size_t i = 0; i < sum.count; ++i) out[i] += in[i];
}

}  // namespace

FlatVector zeros_of(Bytes bytes) {
  FlatVector values(static_cast<std::size_t>(bytes.value()) / sizeof(float));
  std::fill_n(values.data(), values.size(), 0.0f);
  return values;
}

// One rank's values in a collective: its contribution, in buffers that MPI reduces in place, and the result.
class MpiReduction {
 public:
  // After construction call write(). If the collective had ended before the checkpoint, its values come from the log
  // (CheckpointLog) or from `serialise` instead.
  MpiReduction(Training& training, Collective&& what, const MpiAgreed& agreed, const Members& members, Rank self)
      : training_(training),
        what_(std::move(what)),
        agreed_(agreed),
        size_(members.count),
        is_root_(static_cast<int>(members.place_of(self)) == what_.root.value),
        carried_(carried()) {
    if (gathers()) words_ = begins_ = std::vector<int>(members.size());
  }

  ~MpiReduction() {
    if (training_.time_only()) spare_zeros.put_back(std::move(values_));
  }
  MpiReduction(const MpiReduction&) = delete;
  MpiReduction& operator=(const MpiReduction&) = delete;

  // Writes this rank's contribution. `ranks` contains the members in the same order on all ranks, and is used only for
  // their collectives. `number` counts these; several may be under way.
  void write(MPI_Comm ranks, std::int64_t number) {
    ranks_ = ranks;
    number_ = number;
    numbers_ = what_.numbers;
    if (what_.kind == Kind::all_gather)
      numbers_.resize(what_.numbers.size() * static_cast<std::size_t>(size_));
    else
      write_values();
    if ((what_.sums_gradients() || what_.is_exchange()) && !numbers_.empty()) add(std::span(numbers_));
  }

  // Blocks until all values have arrived.
  void run() {
    gather(true);
    for (const Part& part : parts_)
      if (broadcasts())
        MPI_Bcast(part.data, mpi_count(part.count), part.type, what_.root.value, ranks_);
      else
        MPI_Allreduce(MPI_IN_PLACE, part.data, mpi_count(part.count), part.type, MPI_SUM, ranks_);
  }

  // Starts without blocking; call `test` until it returns true. Values are sent in pieces, so that no call takes long.
  void begin() {
    gather(false);
    if (broadcasts()) return begin_broadcast();
    std::vector<Part> summed_by_ring;
    for (const Part& part : parts_)
      if (part.count * element_bytes(part.type) > piece_bytes)
        summed_by_ring.push_back(part);
      else
        MPI_Iallreduce(MPI_IN_PLACE, part.data, mpi_count(part.count), part.type, MPI_SUM, ranks_,
                       &requests_.emplace_back(MPI_REQUEST_NULL));
    const int first_tag = static_cast<int>(number_ % most_under_way) * RingSums::lanes;
    if (!summed_by_ring.empty()) sums_.emplace(summed_by_ring, ranks_, first_tag);
  }

  bool test() {
    const bool done = are_done(requests_);
    if (sums_) return sums_->test() && done;
    if (!done || begun_ == pieces_.size()) return done;
    requests_.clear();
    begin_pieces(begun_ + pieces_at_once);
    return false;
  }

  // Begins all remaining pieces of a broadcast. Call it when this rank does nothing else until the broadcast ends.
  void begin_rest() { begin_pieces(pieces_.size()); }

  const MpiAgreed& agreed() const { return agreed_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void set_numbers(std::vector<double> numbers) { numbers_ = std::move(numbers); }

  // Call it once, after the end.
  CollectiveResult result() {
    CollectiveResult result;
    if (what_.sums_gradients()) result.gradient = sum();
    if (what_.known.micro_batches() > 0) (result.gradient += what_.known).mark_reduced();
    if (what_.kind == Kind::average) result.model = mean();
    if (what_.is_exchange()) {
      result.gradient = Gradient(nullptr, agreed_.micro_batches);
      result.packets = packets();
    }
    if (!numbers_.empty()) result.numbers = std::make_shared<const std::vector<double>>(std::move(numbers_));
    return result;
  }

  // Archives the values of a collective that has ended.
  void serialise(StateArchive& archive) {
    archive(values_, gathered_, words_, begins_, exact_, numbers_);
    if (archive.reads() && what_.kind == Kind::average && !training_.time_only()) add_slice();
  }

 private:
  using Part = RingSums::Values;

  void write_values() {
    // It runs at times that no replay repeats, and the log does not need it.
    const CheckpointLog::Scope unnoted(nullptr);
    if (training_.time_only()) {
      Collective without_numbers{
          .kind = what_.kind, .packet = what_.packet, .policy = what_.policy, .slice = what_.slice};
      values_ = spare_zeros.take(payload_of(without_numbers, training_));
      if (gathers()) return begin_gathering();
      return add(values_.span());
    }
    if (what_.is_exchange()) {
      const bool has_packet = !broadcasts() || is_root_;
      if (has_packet) training_.executor().wait(what_.packet.words->producer);
      // A copy, because this rank's worker may still read the packet.
      values_ = has_packet ? copy_of(what_.packet.words->value) : zeros_of(what_.packet.size);
      return gathers() ? begin_gathering() : add(values_.span());
    }
    if (what_.kind == Kind::average) {
      values_ = FlatVector(training_.averaged_size(what_.policy));
      training_.write_averaged(what_.model, what_.policy, values_.data());
      add_slice();
      if (agreed_.share) scale(*agreed_.share);
      return;
    }
    if (agreed_.wide) return widen();
    values_ = FlatVector(training_.gradient_size());
    training_.write_values(what_.gradient, values_.data());
    add_slice();
  }

  // This rank's micro-batches, if a caller needs to know them. With slices, only the first slice reports them.
  std::vector<MicroBatch> carried() const {
    if (training_.time_only()) return {};
    if (what_.sums_gradients() && what_.slice.index == 0) return training_.travelling(what_.gradient);
    const bool is_passed_on = what_.is_exchange() && what_.kind != Kind::broadcast_packet;
    return is_passed_on ? what_.packet.carried : std::vector<MicroBatch>();
  }

  void begin_pieces(std::size_t end) {
    for (end = std::min(pieces_.size(), end); begun_ < end; ++begun_) {
      const Part& piece = pieces_[begun_];
      MPI_Ibcast(piece.data, mpi_count(piece.count), piece.type, what_.root.value, ranks_,
                 &requests_.emplace_back(MPI_REQUEST_NULL));
    }
  }

  void add(std::span<float> values) { parts_.push_back({values.data(), values.size(), MPI_FLOAT}); }
  void add(std::span<double> values) { parts_.push_back({values.data(), values.size(), MPI_DOUBLE}); }
  // Adds all values to the sum, or only a slice of the parameters. The first slice has all values after the parameters.
  void add_slice() {
    if (what_.slice.count == 1) return add(values_.span());
    const std::size_t parameters = training_.objective().parameters();
    add(values_.span().first(what_.slice.end(parameters)).subspan(what_.slice.begin(parameters)));
    if (what_.slice.index == 0) add(values_.span().subspan(parameters));
  }

  // All chunks have the same size. Packets have different sizes, but equally much data behind their words.
  void begin_gathering() {
    const std::size_t behind = values_.size() - static_cast<std::size_t>(what_.packet.size.value()) / sizeof(float);
    std::size_t all = 0;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_); ++rank) {
      const std::size_t words = exchanges_chunks()
                                    ? values_.size() / static_cast<std::size_t>(size_)
                                    : static_cast<std::size_t>(agreed_.packets[rank].value()) / sizeof(float) + behind;
      words_[rank] = mpi_count(words);
      begins_[rank] = mpi_count(all);
      all += words;
    }
    gathered_ = FlatVector(all);
  }

  void gather(bool blocks) {
    const auto call = [&](auto blocking, auto beginning, auto... arguments) {
      if (blocks)
        blocking(arguments...);
      else
        beginning(arguments..., &requests_.emplace_back(MPI_REQUEST_NULL));
    };
    if (what_.kind == Kind::all_gather) {
      const int count = mpi_count(what_.numbers.size());
      call(MPI_Allgather, MPI_Iallgather, what_.numbers.data(), count, MPI_DOUBLE, numbers_.data(), count, MPI_DOUBLE,
           ranks_);
    }
    if (gathered_.empty()) return;
    if (exchanges_chunks())
      call(MPI_Alltoall, MPI_Ialltoall, values_.data(), words_.front(), MPI_UINT32_T, gathered_.data(), words_.front(),
           MPI_UINT32_T, ranks_);
    else
      call(MPI_Allgatherv, MPI_Iallgatherv, values_.data(), mpi_count(values_.size()), MPI_UINT32_T, gathered_.data(),
           words_.data(), begins_.data(), MPI_UINT32_T, ranks_);
  }

  void begin_broadcast() {
    for (const Part& part : parts_) {
      const std::size_t most = piece_bytes / element_bytes(part.type);
      for (std::size_t first = 0; first < part.count; first += most)
        pieces_.push_back({at(part, first), std::min(most, part.count - first), part.type});
    }
    begin_pieces(pieces_at_once);
  }

  bool gathers() const { return what_.gathers_packets() || what_.kind == Collective::Kind::exchange_chunks; }
  bool broadcasts() const { return what_.kind == Kind::broadcast_packet; }
  bool exchanges_chunks() const { return what_.kind == Collective::Kind::exchange_chunks; }
  // Prepares a sum in double precision, for which `values_` holds the high and the low parts of each value.
  void widen() {
    what_.gradient.use_double_precision();
    const std::size_t parameters = training_.objective().parameters();
    values_ = FlatVector(training_.gradient_size(true));
    training_.write_values(what_.gradient, values_.data());
    exact_.resize(parameters);
    for (std::size_t i = 0; i < parameters; ++i) exact_[i] = joined(values_.data()[i], values_.data()[parameters + i]);
    add(std::span(exact_));
    add(values_.span().subspan(2 * parameters));
  }

  Gradient sum() {
    const std::size_t parameters = exact_.size();
    for (std::size_t i = 0; i < parameters; ++i) split(exact_[i], values_.data()[i], values_.data()[parameters + i]);
    Gradient total = training_.time_only() ? Gradient(nullptr, agreed_.micro_batches)
                                           : training_.gradient_from(std::move(values_), agreed_.micro_batches, {},
                                                                     agreed_.wide, std::move(carried_));
    if (agreed_.wide) total.use_double_precision();
    total.mark_reduced();
    return total;
  }

  void scale(double factor) {
    for (const Part& part : parts_) {
      if (part.type != MPI_FLOAT) continue;
      for (float& value : std::span(static_cast<float*>(part.data), part.count)) value *= static_cast<float>(factor);
    }
  }

  ModelStatePtr mean() {
    if (training_.time_only()) return nullptr;
    if (!agreed_.share) scale(1.0f / static_cast<float>(size_));
    return training_.from_averaged(what_.model, what_.policy, values_.data(), agreed_.ages);
  }

  // This rank knows the micro-batches in its own packet; the other ranks report the micro-batches in theirs.
  SharedPackets packets() {
    if (training_.time_only()) return nullptr;
    std::vector<Packet> packets;
    const auto add_packet = [&](FlatVector&& words, std::vector<MicroBatch> carried) {
      auto cell = new_cell();
      cell->value = std::move(words);
      packets.push_back({.words = std::move(cell), .size = what_.packet.size, .carried = std::move(carried)});
    };
    if (!gathers()) add_packet(std::move(values_), std::move(carried_));
    for (std::size_t rank = 0; rank < words_.size(); ++rank) {
      FlatVector words(static_cast<std::size_t>(words_[rank]));
      std::ranges::copy(gathered_.span().subspan(static_cast<std::size_t>(begins_[rank]), words.size()), words.data());
      add_packet(std::move(words), rank == 0 ? std::move(carried_) : std::vector<MicroBatch>());
    }
    return std::make_shared<const std::vector<Packet>>(std::move(packets));
  }

  Training& training_;
  Collective what_;
  MpiAgreed agreed_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  std::int64_t number_ = 0;
  int size_;
  bool is_root_;
  FlatVector values_;
  std::vector<MicroBatch> carried_;  // micro-batches in this rank's contribution, if a caller needs to know them
  FlatVector gathered_;              // packets or chunks of all ranks
  std::vector<int> words_;           // number of words in gathered_, by rank
  std::vector<int> begins_;          // begin of each rank's words in gathered_
  std::vector<double> exact_;        // double-precision sum
  std::vector<double> numbers_;      // summed, or gathered from all ranks
  std::vector<Part> parts_;          // buffers to reduce
  std::optional<RingSums> sums_;     // sums of the long buffers, unless the collective blocks
  std::vector<Part> pieces_;         // pieces of a broadcast, which begin one after another
  std::size_t begun_ = 0;            // number of pieces begun
  std::vector<MPI_Request> requests_;
};

StartedCollective MpiCollectives::start(Collective&& what, const Contribution& contribution, const Place& place,
                                        bool blocks) {
  if (!state_.is_worker()) throw RunFailure("a server cannot take part in a collective");
  StartedCollective started = started_before(std::move(what), contribution.step);
  MpiCollectiveGroup& group = group_of(started);
  MpiCollective& collective = group.open.back();
  if (!is_group(group)) state_.collectives_of_all = group.started;
  collective.own = arrival_at(collective.what, contribution, place);
  collective.own.blocks = blocks;
  collective.arrivals.assign(group.members.size(), collective.own);
  for (const Rank member : group.members.ranks())
    if (member != state_.self) collective.awaited.push_back(member);
  state_.transport.send(frames_of(group), group.members.ranks(), bytes_of(collective.own));
  if (!blocks) {
    advance_all();
    state_.clock.book(Activity::communicate, {place.operation});
  }
  return started;
}

MpiCollectiveGroup& MpiCollectives::group_of(const StartedCollective& started) {
  if (!started.group) return all_;
  return groups_.try_emplace(*started.group, MpiCollectiveGroup{.members = *started.group}).first->second;
}

Arrival MpiCollectives::arrival_at(const Collective& what, const Contribution& contribution, const Place& place) {
  state_.clock.book(Activity::compute);
  Arrival own{.time = state_.clock.booked(),
              .terms = what.terms(),
              .wide = what.gradient.wide(),
              .weight = what.weight,
              .ages = what.model ? ages_of(*what.model) : MomentAges(),
              .micro_batches = what.gradient.micro_batches(),
              .part = contribution,
              .packet_bytes = what.packet.size,
              .message_bytes = state_.sent_bytes,
              .partial_kept = state_.kept_in_partial_sums};
  own.part.compute_time = {};
  const std::string_view path = place.at.file_name();
  const std::string text = fmt::format("{}:{}", path.substr(path.rfind('/') + 1), place.at.line());
  text.copy(own.place, sizeof(own.place) - 1);
  return own;
}

void MpiCollectives::advance(MpiCollectiveGroup& group) {
  for (MpiCollective& collective : group.open) {
    if (collective.has_ended) continue;
    if (!collective.is_complete) {
      gather_arrivals(group, collective);
      collective.is_complete = collective.awaited.empty();
      if (!collective.is_complete) return;
      conclude_arrivals(group, collective);
      if (!collective.blocks && collective.reduction) collective.reduction->begin();
    }
    if (collective.blocks) return;  // the members run the reduction in `finish`
    if (!collective.reduction || collective.reduction->test()) end_collective(group, collective);
  }
}

// Frames of one sender arrive in order. So if a member has announced its end and no frame of it is here, it never came.
void MpiCollectives::gather_arrivals(MpiCollectiveGroup& group, MpiCollective& collective) {
  std::erase_if(collective.awaited, [&](Rank member) {
    if (const auto frame = state_.transport.take(frames_of(group), member)) {
      collective.arrivals[group.members.place_of(member)] = read_bytes<Arrival>(frame->contents);
      return true;
    }
    const bool has_left = state_.transport.has_announced(Announcement::ended, member);
    if (!is_group(group)) {
      if (has_left) collective.arrivals[group.members.place_of(member)] = {};
      return has_left;
    }
    if (has_left) throw RunFailure(explain_absence(collective.own, member, "has left"));
    if (state_.transport.has_announced(Announcement::lost, member))
      throw RunFailure(explain_absence(collective.own, member, "is in a micro-batch that never ends"));
    return false;
  });
}

// Determines the agreed values from all arrivals. All members process a group's collectives in the same order.
void MpiCollectives::conclude_arrivals(MpiCollectiveGroup& group, MpiCollective& collective) {
  const auto& arrivals = collective.arrivals;
  const auto& [first, count] = group.members;
  if (const std::string mismatch = explain_mismatch(arrivals, first.value); !mismatch.empty())
    throw RunFailure(mismatch);
  MpiAgreed agreed{.share = share_of(collective.own, arrivals)};
  if (collective.what.kind == Kind::average)
    agreed.ages = age_of_mean(state_.options.training, arrivals, agreed.share.has_value());
  collective.blocks = true;
  StepRow& row = collective.row;
  Bytes message_bytes{};
  state_.clock.book().contribute(collective.own.part, row);
  for (const Rank member : group.members.ranks()) {
    const Arrival& arrival = arrivals[group.members.place_of(member)];
    agreed.micro_batches += arrival.micro_batches;
    agreed.wide |= arrival.wide;
    collective.blocks = collective.blocks && arrival.blocks;
    message_bytes += arrival.message_bytes;
    if (collective.what.gathers_packets()) agreed.packets.push_back(arrival.packet_bytes);
    if (member != state_.self) row.add(arrival.part);
  }

  Collective& what = collective.what;
  Collective all{.kind = what.kind, .packet = what.packet, .policy = what.policy, .slice = what.slice};
  for (const Bytes& packet : agreed.packets) all.all_packets += packet;
  all.numbers.resize(what.numbers.size() * (what.kind == Kind::all_gather ? arrivals.size() : 1));
  const Bytes moved = collective_bytes({.operation = properties_of(what.kind).operation,
                                        .members = count,
                                        .payload = payload_of(all, state_.options.training, count)});
  collective.agreement.time = std::ranges::max_element(arrivals, {}, &Arrival::time)->time;
  if (is_group(group)) {
    // Workers outside the group do not know of its bytes, so its first member counts them as its own.
    if (state_.self == first) ++state_.collectives, state_.sent_bytes += moved;
  } else {
    if (state_.self == Rank{0}) ++state_.collectives;
    state_.collective_bytes += moved;
    state_.kept_in_collectives += row.kept;
    collective.agreement.micro_batches = state_.kept_in_collectives + arrivals.front().partial_kept;
    collective.agreement.bytes = state_.collective_bytes + message_bytes;
  }
  if (what.kind == Kind::barrier) return;
  const MPI_Comm ranks =
      is_group(group) ? state_.communicators.group(first.value, count) : state_.communicators.workers();
  collective.reduction =
      std::make_shared<MpiReduction>(state_.options.training, std::move(what), agreed, group.members, state_.self);
  collective.reduction->write(ranks, collective.number);
}

void MpiCollectives::end_collective(const MpiCollectiveGroup& group, MpiCollective& collective) {
  collective.has_ended = true;
  if (is_group(group) || state_.self != Rank{0}) return;
  const Kind kind = collective.own.terms->kind;
  std::vector<GradientArrival>* const recorded = arrivals_of(state_.options.record);
  if (recorded && StepRows::is_row(kind, collective.row)) {
    const Time begin = state_.rows.begin();  // end of the previous row
    for (const Rank worker : state_.workers()) {
      const Time at = collective.arrivals[static_cast<std::size_t>(worker.value)].time;
      recorded->push_back({begin, collective.row.step, worker, at - begin});
    }
  }
  state_.rows.close(kind, collective.row, state_.now(), collective.agreement.bytes);
}

CollectiveResult MpiCollectives::finish(StartedCollective&& started, const Place& place) {
  MpiCollectiveGroup& group = group_of(started);
  const auto found = std::ranges::find(group.open, started.number, &MpiCollective::number);
  MpiCollective& collective = *found;
  state_.clock.enter();
  waiting_.wait({.place = &place}, [&] {
    if (!collective.is_complete && !is_group(group)) fail_for_lost(collective);
    return collective.is_complete;
  });
  state_.clock.book_until(Activity::wait, std::min(collective.agreement.time, state_.now()), {place.operation});
  if (collective.blocks && !collective.has_ended) {
    if (collective.reduction) collective.reduction->run();
    state_.clock.book(Activity::communicate, {place.operation});
    end_collective(group, collective);
  }
  if (collective.is_moving()) collective.reduction->begin_rest();
  waiting_.wait_for_values([&] { return collective.has_ended; });
  state_.clock.book(Activity::communicate, {place.operation});
  state_.clock.book().meet();
  last_finished_ = {.agreed = {}, .numbers = {}, .agreement = collective.agreement};
  CollectiveResult result;
  if (collective.reduction) {
    last_finished_.agreed = collective.reduction->agreed();
    last_finished_.numbers = collective.reduction->numbers();
    result = collective.reduction->result();
  }
  result.agreement = collective.agreement;
  group.open.erase(found);
  return result;
}

bool MpiCollectives::has_ended(const StartedCollective& started) {
  waiting_.progress();
  return std::ranges::find(group_of(started).open, started.number, &MpiCollective::number)->has_ended;
}

// A worker may have entered this collective before it was lost, so its number of entered collectives is compared.
void MpiCollectives::fail_for_lost(const MpiCollective& collective) const {
  const std::int64_t needed = collective.number + 1;
  for (const Rank worker : state_.workers())
    if (state_.transport.announced(Announcement::lost, worker).value_or(needed) < needed)
      throw RunFailure(explain_absence(collective.own, worker, "is in a micro-batch that never ends"));
}

// Lost workers do not block this: they also end, once all other workers have ended.
void MpiCollectives::wait_for_all_ends() {
  waiting_.wait_for_others([&] { return !are_under_way(); });
  const int workers = state_.options.workers;
  waiting_.wait({}, [&] { return state_.transport.count_announced(Announcement::ended, 0, workers) == workers - 1; });
}

void MpiCollectives::drive() {
  advance_all();
  drive(all_);
  for (auto& [members, group] : groups_) drive(group);
}

// Ranks that have not stopped yet wait in this collective, or will enter its wait, so it ends for all of them.
void MpiCollectives::drive(MpiCollectiveGroup& group) {
  for (MpiCollective& collective : group.open) {
    if (collective.has_ended || !collective.is_complete || !collective.blocks) continue;
    if (collective.reduction) collective.reduction->run();
    end_collective(group, collective);
    return advance(group);
  }
}

StartedCollective MpiCollectives::started_before(Collective&& what, Step step) {
  if (what.is_exchange() && !state_.options.training.time_only()) state_.options.training.begin_held();
  StartedCollective started(what.kind, std::nullopt, 0, step);
  if (what.group_size) started.group = members_of(what, state_.self, state_.options.workers);
  MpiCollectiveGroup& group = group_of(started);
  started.number = group.started++;
  group.open.push_back({.number = started.number, .what = std::move(what)});
  return started;
}

CollectiveResult MpiCollectives::finished_before(StartedCollective&& started, Finished outcome) {
  MpiCollectiveGroup& group = group_of(started);
  const auto found = std::ranges::find(group.open, started.number, &MpiCollective::number);
  if (found == group.open.end()) throw ReplayMismatch("it finishes a collective that it has not started");
  CollectiveResult result;
  Collective& what = found->what;
  if (what.kind != Collective::Kind::barrier) {
    MpiReduction reduction(state_.options.training, std::move(what), outcome.agreed, group.members, state_.self);
    reduction.set_numbers(std::move(outcome.numbers));
    result = reduction.result();
  }
  result.agreement = outcome.agreement;
  group.open.erase(found);
  return result;
}

void MpiCollectives::serialise(StateArchive& archive) {
  serialise(all_, archive);
  std::uint64_t groups = groups_.size();
  archive(groups);
  if (groups != groups_.size()) throw ReplayMismatch("its workers have met in other groups");
  for (auto& [members, group] : groups_) {
    Members same = members;
    archive(same);
    if (same != members) throw ReplayMismatch("its workers have met in other groups");
    serialise(group, archive);
  }
}

void MpiCollectives::serialise(MpiCollectiveGroup& group, StateArchive& archive) {
  std::uint64_t open = group.open.size();
  archive(group.started, open);
  if (open != group.open.size()) throw ReplayMismatch("it has other collectives under way");
  for (MpiCollective& collective : group.open) serialise(group, collective, archive);
}

void MpiCollectives::serialise(const MpiCollectiveGroup& group, MpiCollective& collective, StateArchive& archive) {
  const std::int64_t number = collective.number;
  archive(collective.number, collective.own, collective.arrivals, collective.awaited, collective.is_complete,
          collective.blocks, collective.has_ended, collective.agreement, collective.row);
  if (collective.number != number) throw ReplayMismatch("it has other collectives under way");
  bool has_values = collective.reduction != nullptr;
  archive(has_values);
  if (!has_values) return;
  MpiAgreed agreed = archive.reads() ? MpiAgreed() : collective.reduction->agreed();
  archive(agreed);
  if (archive.reads()) {
    collective.reduction = std::make_shared<MpiReduction>(state_.options.training, std::move(collective.what), agreed,
                                                          group.members, state_.self);
  }
  collective.reduction->serialise(archive);
}

RingSums::RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag)
    : ranks_(ranks), first_tag_(first_tag), rank_(rank_in(ranks)), size_(ranks_of(ranks)) {
  if (size_ == 1) return;
  std::size_t lane = 0;
  for (const Values& all : values) {
    const std::size_t most = static_cast<std::size_t>(size_) * most_chunk_bytes / element_bytes(all.type);
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
    if (!are_done(lane.requests)) return false;
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
    lane.received.resize(received.count * element_bytes(received.type));
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

// The n-th of `size_` chunks of a piece, which consists of whole elements. All ranks know the piece's length.
RingSums::Values RingSums::chunk(const Values& piece, int number) const {
  const auto place = static_cast<std::size_t>((number % size_ + size_) % size_), of = static_cast<std::size_t>(size_);
  const std::size_t begin = piece.count * place / of, end = piece.count * (place + 1) / of;
  return {at(piece, begin), end - begin, piece.type};
}

// The number of the chunk to send: first the rank's own, then chunks that it has added to, then complete ones.
int RingSums::chunk_sent(int step) const { return is_adding(step) ? rank_ - step : rank_ + size_ - step; }

ValueLayout layout_of(const Training& training, bool wide) {
  if (training.time_only()) return {};
  return {.parameters = training.objective().parameters(), .buffers = training.objective().buffers(), .wide = wide};
}

FlatVector cut(const FlatVector& whole, const ValueLayout& layout, const Slice& slice) {
  assert(whole.size() == layout.size());
  const std::size_t begin = slice.begin(layout.parameters), size = slice.end(layout.parameters) - begin;
  const std::size_t buffers = slice.index == 0 ? layout.buffers : 0;
  FlatVector part(layout.parts() * size + buffers);
  float* out = part.data();
  for (std::size_t i = 0; i < layout.parts(); ++i)
    out = std::copy_n(whole.data() + i * layout.parameters + begin, size, out);
  std::copy_n(whole.data() + layout.parts() * layout.parameters, buffers, out);
  return part;
}

FlatVector spread(const FlatVector& part, const ValueLayout& layout, const Slice& slice) {
  const std::size_t begin = slice.begin(layout.parameters), size = slice.end(layout.parameters) - begin;
  const std::size_t buffers = slice.index == 0 ? layout.buffers : 0;
  assert(part.size() == layout.parts() * size + buffers);
  FlatVector whole = zeros_of(Bytes{static_cast<Bytes::Rep>(sizeof(float) * layout.size())});
  for (std::size_t i = 0; i < layout.parts(); ++i)
    std::copy_n(part.data() + i * size, size, whole.data() + i * layout.parameters + begin);
  std::copy_n(part.data() + layout.parts() * size, buffers, whole.data() + layout.parts() * layout.parameters);
  return whole;
}

FlatVector widened(const FlatVector& narrow, const ValueLayout& layout) {
  assert(narrow.size() == layout.size() && !layout.wide);
  FlatVector wide(layout.size() + layout.parameters);
  float* out = std::copy_n(narrow.data(), layout.parameters, wide.data());
  out = std::fill_n(out, layout.parameters, 0.0f);
  std::copy_n(narrow.data() + layout.parameters, layout.buffers, out);
  return wide;
}

FlatVector copy_of(const FlatVector& values) {
  FlatVector copy(values.size());
  std::copy_n(values.data(), values.size(), copy.data());
  return copy;
}

void add_values(FlatVector& total, const FlatVector& values, const ValueLayout& layout) {
  assert(total.size() == layout.size() && values.size() == layout.size());
  const std::size_t p = layout.parameters;
  float* const sum = total.data();
  const float* const more = values.data();
  if (layout.wide)
    for (std::size_t i = 0; i < p; ++i)
      split(joined(sum[i], sum[p + i]) + joined(more[i], more[p + i]), sum[i], sum[p + i]);
  const std::size_t wide = layout.wide ? 2 * p : 0;
  add(sum + wide, more + wide, layout.size() - wide);
}

}  // namespace syncopate
