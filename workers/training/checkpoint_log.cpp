#include "workers/training/checkpoint_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "workers/base/process.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

template <typename Number>
void put(ByteSink& out, Number number) {
  static_assert(std::is_arithmetic_v<Number>);
  out.write(&number, sizeof(number));
}

template <typename Number>
Number take(ByteSource& in) {
  static_assert(std::is_arithmetic_v<Number>);
  Number number{};
  in.read(&number, sizeof(number));
  return number;
}

void put_value(ByteSink& out, const Cell& cell) {
  put<std::uint64_t>(out, cell.value.size());
  out.write(cell.value.data(), cell.value.size() * sizeof(float));
}

void take_value(ByteSource& in, Cell& cell) {
  cell.value = FlatVector(take<std::uint64_t>(in));
  in.read(cell.value.data(), cell.value.size() * sizeof(float));
}

// Writes each chunk's result. Nested sums are written separately, as they are values with their own numbers.
void put_value(ByteSink& out, const GradientSum& sum) {
  put<std::uint64_t>(out, sum.chunks.size());
  for (const GradientSum::Chunk& chunk : sum.chunks) {
    put(out, chunk.result.loss_sum);
    put<std::uint64_t>(out, chunk.result.buffers_sum.size());
    out.write(chunk.result.buffers_sum.data(), chunk.result.buffers_sum.size() * sizeof(float));
    put<std::uint64_t>(out, chunk.segments().size());
    for (const GradientSegment& segment : chunk.segments()) {
      put<std::uint64_t>(out, segment.offset);
      put<std::uint64_t>(out, segment.size);
      out.write(segment.data, segment.size * sizeof(float));
    }
  }
}

void take_value(ByteSource& in, GradientSum& sum) {
  if (const auto chunks = take<std::uint64_t>(in); chunks != sum.chunks.size())
    throw ReplayMismatch(fmt::format("the replay has a gradient sum of {} chunks where the checkpoint has {}",
                                     sum.chunks.size(), chunks));
  for (GradientSum::Chunk& chunk : sum.chunks) {
    chunk.result.loss_sum = take<double>(in);
    chunk.result.buffers_sum.resize(take<std::uint64_t>(in));
    in.read(chunk.result.buffers_sum.data(), chunk.result.buffers_sum.size() * sizeof(float));
    chunk.result.segments.clear();
    chunk.kept = nullptr;
    for (auto left = take<std::uint64_t>(in); left > 0; --left) {
      GradientSegment segment;
      segment.offset = take<std::uint64_t>(in);
      segment.size = take<std::uint64_t>(in);
      auto owner = std::make_shared<FlatVector>(segment.size);
      in.read(owner->data(), segment.size * sizeof(float));
      segment.data = std::as_const(*owner).data();
      segment.owner = std::move(owner);
      chunk.result.segments.push_back(std::move(segment));
    }
  }
}

}  // namespace

void StoredBytes::read(void* data, std::size_t size) {
  if (bytes.size() - next < size) throw ReplayMismatch("its log is truncated");
  std::copy_n(bytes.data() + next, size, static_cast<char*>(data));
  next += size;
}

std::vector<std::int64_t> StoredBytes::words() const {
  std::vector<std::int64_t> words((bytes.size() + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  bytes.copy(reinterpret_cast<char*>(words.data()), bytes.size());
  return words;
}

void CheckpointLog::before_step() {
  const bool replayed = replays();
  if (replayed) throw_if_interrupted();  // skipped tasks would have thrown this
  ++steps_;
  if (replayed && !follows_) {
    if (steps_ < replayed_until_) return;
    if (at_position) at_position();
  }
  if (between_steps) between_steps();
}

std::vector<double> CheckpointLog::replayed_numbers(std::size_t count) {
  if (numbers_.size() - numbers_replayed_ < count)
    throw ReplayMismatch(fmt::format("the replay requests more than the {} logged numbers", numbers_.size()));
  const auto begin = numbers_.begin() + static_cast<std::ptrdiff_t>(numbers_replayed_);
  numbers_replayed_ += count;
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

template <typename Made>
void CheckpointLog::Forget::operator()(Made* value) const {
  {
    const std::lock_guard lock(alive->mutex);
    alive->by_number.erase(number);
  }
  delete value;  // without the lock, because this may destroy other values, too
}

template <typename Made>
std::shared_ptr<Made> CheckpointLog::made(std::uint64_t number) {
  std::shared_ptr<Made> value(new Made, Forget{alive_, number});
  const std::lock_guard lock(alive_->mutex);
  alive_->by_number.emplace(number, value.get());
  return value;
}

CellPtr CheckpointLog::new_cell() { return made<Cell>(++last_number_); }
std::shared_ptr<GradientSum> CheckpointLog::new_sum() { return made<GradientSum>(++last_number_); }

CellPtr CheckpointLog::found(CellPtr cell) {
  const auto number_of = [](const CellPtr& of) {
    const auto* const known = of ? std::get_deleter<Forget>(of) : nullptr;
    return known ? known->number : 0;
  };
  const double now = static_cast<double>(number_of(cell));
  const double then = numbers_of(1, [&] { return std::vector<double>{now}; }).front();
  if (then == now) return cell;
  // The logged run found a value that only tasks held, and these are skipped now. The reverse cannot happen, because
  // values that programs hold now also existed in the logged run.
  if (cell) throw ReplayMismatch("the replay finds a value that the logged run did not find");
  return made<Cell>(static_cast<std::uint64_t>(then));
}

void CheckpointLog::write_log(ByteSink& out, std::uint64_t last) const {
  put(out, steps_);
  put(out, last);
  put<std::uint64_t>(out, numbers_.size());
  out.write(numbers_.data(), numbers_.size() * sizeof(double));
}

void CheckpointLog::replay(ByteSource& log) {
  replayed_until_ = take<std::int64_t>(log);
  numbers_then_ = take<std::uint64_t>(log);
  numbers_.resize(take<std::uint64_t>(log));
  log.read(numbers_.data(), numbers_.size() * sizeof(double));
}

void CheckpointLog::follow(ByteSource& log) {
  replay(log);
  replayed_until_ = 0;
  follows_ = true;
}

void CheckpointLog::write_values(ByteSink& out, std::uint64_t last) const {
  const std::lock_guard lock(alive_->mutex);
  const auto end = alive_->by_number.upper_bound(last);
  put<std::uint64_t>(out, static_cast<std::uint64_t>(std::distance(alive_->by_number.begin(), end)));
  for (auto next = alive_->by_number.begin(); next != end; ++next) {
    const auto& [number, value] = *next;
    put(out, number);
    put<std::uint64_t>(out, value.index());
    std::visit([&](const auto* of) { put_value(out, *of); }, value);
  }
}

void CheckpointLog::read_values(ByteSource& in) {
  if (last_number_ != numbers_then_)
    throw ReplayMismatch(
        fmt::format("the replay has created {} values, but the logged run {}", last_number_, numbers_then_));
  if (numbers_replayed_ != numbers_.size())
    throw ReplayMismatch(
        fmt::format("the replay has requested {} numbers, but the logged run {}", numbers_replayed_, numbers_.size()));
  const std::lock_guard lock(alive_->mutex);
  if (const auto alive = take<std::uint64_t>(in); alive != alive_->by_number.size())
    throw ReplayMismatch(
        fmt::format("the replay has {} live values, but the checkpoint {}", alive_->by_number.size(), alive));
  for (const auto& [number, value] : alive_->by_number) {
    if (const auto held = take<std::uint64_t>(in); held != number)
      throw ReplayMismatch(fmt::format("the replay has value {} where the checkpoint has value {}", number, held));
    if (take<std::uint64_t>(in) != value.index())
      throw ReplayMismatch(fmt::format("value {} has another type than in the checkpoint", number));
    std::visit([&](auto* of) { take_value(in, *of); }, value);
  }
}

CellPtr new_cell() {
  CheckpointLog* const log = CheckpointLog::here();
  return log ? log->new_cell() : std::make_shared<Cell>();
}

std::shared_ptr<GradientSum> new_sum() {
  CheckpointLog* const log = CheckpointLog::here();
  return log ? log->new_sum() : std::make_shared<GradientSum>();
}

ModelStatePtr held_by_task(const ModelStatePtr& state) {
  return state ? std::make_shared<const ModelState>(*state) : nullptr;
}

}  // namespace syncopate
