#include "workers/training/checkpoint_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "workers/base/process.hpp"
#include "workers/training/gradient_sum.hpp"

namespace syncopate {

namespace {

void serialise(StateArchive& archive, Cell& cell) { archive(cell.value); }

// Writes or reads the result of each chunk. Nested sums are not part of it: they are values with their own numbers.
void serialise(StateArchive& archive, GradientSum& sum) {
  std::uint64_t chunks = sum.chunks.size();
  archive(chunks);
  if (chunks != sum.chunks.size())
    throw ReplayMismatch(fmt::format("the replay has a gradient sum of {} chunks where the checkpoint has {}",
                                     sum.chunks.size(), chunks));
  for (GradientSum::Chunk& chunk : sum.chunks) {
    archive(chunk.result.loss_sum, chunk.result.buffers_sum);
    std::vector<GradientSegment> segments;
    if (!archive.reads()) segments = chunk.segments();
    archive.resize(segments);
    for (GradientSegment& segment : segments) {
      archive(segment.offset, segment.size);
      if (archive.reads()) {
        const auto values = std::make_shared<FlatVector>(segment.size);
        segment.data = values->data();
        segment.owner = values;
      }
      archive.bytes(const_cast<float*>(segment.data), segment.size * sizeof(float));  // only new values are written to
    }
    if (!archive.reads()) continue;
    chunk.result.segments = std::move(segments);
    chunk.kept = nullptr;
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
  if (replayed) throw_if_interrupted();  // tasks, which a replay skips, would have called this
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
  // The logged run found a value that only tasks held, and the replay skips tasks. The reverse cannot happen: values
  // that programs hold in the replay also existed in the logged run.
  if (cell) throw ReplayMismatch("the replay finds a value that the logged run did not find");
  return made<Cell>(static_cast<std::uint64_t>(then));
}

void CheckpointLog::write_log(ByteSink& out, std::uint64_t last) {
  StateArchive archive(out);
  archive(steps_, last, numbers_);
}

void CheckpointLog::replay(ByteSource& log) {
  StateArchive archive(log);
  archive(replayed_until_, numbers_then_, numbers_);
}

void CheckpointLog::follow(ByteSource& log) {
  replay(log);
  replayed_until_ = 0;
  follows_ = true;
}

void CheckpointLog::write_values(ByteSink& out, std::uint64_t last) const {
  StateArchive archive(out);
  const std::lock_guard lock(alive_->mutex);
  const auto end = alive_->by_number.upper_bound(last);
  auto count = static_cast<std::uint64_t>(std::distance(alive_->by_number.begin(), end));
  archive(count);
  for (auto next = alive_->by_number.begin(); next != end; ++next) {
    std::uint64_t number = next->first, type = next->second.index();
    archive(number, type);
    std::visit([&](auto* of) { serialise(archive, *of); }, next->second);
  }
}

void CheckpointLog::read_values(ByteSource& in) {
  if (last_number_ != numbers_then_)
    throw ReplayMismatch(
        fmt::format("the replay has created {} values, but the logged run {}", last_number_, numbers_then_));
  if (numbers_replayed_ != numbers_.size())
    throw ReplayMismatch(
        fmt::format("the replay has requested {} numbers, but the logged run {}", numbers_replayed_, numbers_.size()));
  StateArchive archive(in);
  const std::lock_guard lock(alive_->mutex);
  std::uint64_t alive = 0, held = 0, type = 0;
  archive(alive);
  if (alive != alive_->by_number.size())
    throw ReplayMismatch(
        fmt::format("the replay has {} live values, but the checkpoint {}", alive_->by_number.size(), alive));
  for (const auto& [number, value] : alive_->by_number) {
    archive(held, type);
    if (held != number)
      throw ReplayMismatch(fmt::format("the replay has value {} where the checkpoint has value {}", number, held));
    if (type != value.index())
      throw ReplayMismatch(fmt::format("value {} has another type than in the checkpoint", number));
    std::visit([&](auto* of) { serialise(archive, *of); }, value);
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
