// Checkpoint log: lets another process resume a run that trains a model.
//
// Programs of workers cannot be saved, but they behave the same again: virtual time does not depend on this machine. So
// a resumed run replays everything without arithmetic (the executor skips its tasks) up to the step that the other
// process had reached, and then restores all live values. Three things make the replay exact:
// - Numbers that programs get from the arithmetic (a loss, a distance) are logged and returned again in the same order.
// - Every value that tasks make (a Cell, a GradientSum) has a number, in the order in which the submitting thread makes
//   them. Which values are alive at a position depends only on the programs, once all tasks have run: equal numbers are
//   equal values. If other values are alive than before, the run is not resumed.
// - A program may ask whether a value that tasks may hold still exists only through `found`, which logs the answer.
//   Tasks hold copies of the ModelStates that they read (`held_by_task`), so that tasks do not keep a Memo's entry
//   alive.
//
// A position lies before a step of a model, never between the tasks of a step, which share objects that are not values.
// Only the submitting thread, which runs all programs, may call the members. Values may be destroyed on any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/gradient.hpp"

namespace syncopate {

struct GradientSum;

// Destination and source of a checkpoint's bytes. Both throw on failure.
class ByteSink {
 public:
  virtual ~ByteSink() = default;
  virtual void write(const void* data, std::size_t size) = 0;
};
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual void read(void* data, std::size_t size) = 0;
};

// Thrown when the replay differs from the run to resume; what() says where.
struct ReplayMismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes in memory: written at the end, read from `next` on.
class StoredBytes : public ByteSink, public ByteSource {
 public:
  StoredBytes() = default;
  explicit StoredBytes(const std::vector<std::int64_t>& words)
      : bytes(reinterpret_cast<const char*>(words.data()), sizeof(std::int64_t) * words.size()) {}

  void write(const void* data, std::size_t size) override { bytes.append(static_cast<const char*>(data), size); }
  void read(void* data, std::size_t size) override;
  ByteSink& sink() { return *this; }
  ByteSource& source() { return *this; }
  std::vector<std::int64_t> words() const;  // padded with zeros at the end
  bool is_through() const { return next == bytes.size(); }

  std::string bytes;
  std::size_t next = 0;
};

class CheckpointLog {
 public:
  CheckpointLog() = default;
  CheckpointLog(const CheckpointLog&) = delete;
  CheckpointLog& operator=(const CheckpointLog&) = delete;

  // Logs this thread's arithmetic while it lives, since many places that submit arithmetic do not know the run.
  class Scope {
   public:
    explicit Scope(CheckpointLog& log) { here_ = &log; }
    ~Scope() { here_ = nullptr; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };
  static CheckpointLog* here() { return here_; }  // null: none

  // Suspends logging while it lives: for temporary values, made at times that depend on this machine.
  class Suspended {
   public:
    Suspended() : log_(std::exchange(here_, nullptr)) {}
    ~Suspended() { here_ = log_; }
    Suspended(const Suspended&) = delete;
    Suspended& operator=(const Suspended&) = delete;

   private:
    CheckpointLog* log_;
  };

  // Whether the run is still being replayed, without arithmetic.
  bool replays() const { return follows_ || steps_ < replayed_until_; }
  static bool replays_here() { return here() && here()->replays(); }
  std::int64_t steps() const { return steps_; }  // steps taken by models: the position

  // Call it before each step of a model. Calls `at_position` at a replay's end, and `between_steps` outside; both may
  // throw.
  void before_step();
  std::function<void()> at_position;
  std::function<void()> between_steps;

  // `count` numbers for a program: the result of `compute`, or, in a replay, the logged result. `compute` submits no
  // tasks.
  template <typename Compute>
  std::vector<double> numbers_of(std::size_t count, const Compute& compute) {
    if (replays()) return replayed_numbers(count);
    std::vector<double> numbers = compute();
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    return numbers;
  }

  CellPtr new_cell();
  std::shared_ptr<GradientSum> new_sum();
  // For a memo of cells, whose hits (null: none) depend on the progress of tasks. Returns the logged hit in a replay.
  CellPtr found(CellPtr cell);

  // These write checkpoints. All submitted tasks must have run before values are written.
  void write_log(ByteSink& out) const { write_log(out, last_number_); }  // position, numbers
  void write_values(ByteSink& out) const { write_values(out, last_number_); }
  // Call it at the beginning: the run replays from here on.
  void replay(ByteSource& log);
  // Call it at the position. Throws ReplayMismatch if other values are alive.
  void read_values(ByteSource& in);

  // These work for a position between any two values: values made before it have numbers up to `last`.
  std::uint64_t last_number() const { return last_number_; }
  void write_log(ByteSink& out, std::uint64_t last) const;
  void write_values(ByteSink& out, std::uint64_t last) const;
  void follow(ByteSource& log);  // replays from here on, until end_replay
  void end_replay() { follows_ = false; }

  std::size_t live_values() const {
    const std::lock_guard lock(alive_->mutex);
    return alive_->by_number.size();
  }

 private:
  using Value = std::variant<Cell*, GradientSum*>;
  // Shared with the values, some of which outlive the log.
  struct Alive {
    mutable std::mutex mutex;
    std::map<std::uint64_t, Value> by_number;
  };
  // Deletes a value and removes it from the log. std::get_deleter finds it from an owner's pointer.
  struct Forget {
    std::shared_ptr<Alive> alive;
    std::uint64_t number;
    template <typename Made>
    void operator()(Made* value) const;
  };

  template <typename Made>
  std::shared_ptr<Made> made(std::uint64_t number);
  std::vector<double> replayed_numbers(std::size_t count);

  std::shared_ptr<Alive> alive_ = std::make_shared<Alive>();
  std::uint64_t last_number_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t replayed_until_ = 0;
  bool follows_ = false;
  std::uint64_t numbers_then_ = 0;  // last_number_ at the position
  std::vector<double> numbers_;
  std::size_t numbers_replayed_ = 0;

  static inline constinit thread_local CheckpointLog* here_ = nullptr;
};

// The number that `compute` returns, logged if this thread has a log.
template <typename Compute>
double logged_number(const Compute& compute) {
  CheckpointLog* const log = CheckpointLog::here();
  return log ? log->numbers_of(1, [&] { return std::vector<double>{compute()}; }).front() : compute();
}

// An empty cell or sum, to be filled by a task.
CellPtr new_cell();
std::shared_ptr<GradientSum> new_sum();

// The same values in another object, for a task to hold.
ModelStatePtr held_by_task(const ModelStatePtr& state);

// Writes the state of an object, or reads it back. The object's `serialise(StateArchive&)` names its members for both
// directions. The bytes on disk are those in memory, so only this machine and build can read them.
class StateArchive;

template <typename Value>
concept Serialisable = requires(Value& value, StateArchive& archive) {
  value.serialise(archive);
};
template <typename Values>
concept OneBlock = requires(Values& values) {
  values.data();
};

class StateArchive {
 public:
  explicit StateArchive(ByteSink& out) : out_(&out) {}
  explicit StateArchive(ByteSource& in) : in_(&in) {}

  bool reads() const { return in_ != nullptr; }

  // Archives all values in this order. Reading replaces their former values.
  template <typename... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }

 private:
  template <typename Value>
  void one(Value& value) {
    if constexpr (Serialisable<Value>)
      value.serialise(*this);
    else
      plain(value);
  }
  template <typename Value>
  void plain(Value& value) {
    static_assert(std::is_trivially_copyable_v<Value> && !std::is_pointer_v<Value>);
    bytes(&value, sizeof(value));
  }
  template <typename Value>
  void plain(std::vector<Value>& values) {
    resize(values);
    elements(values);
  }
  template <typename Value>
  void plain(std::deque<Value>& values) {
    resize(values);
    elements(values);
  }
  template <typename Value>
  void plain(ByRank<Value>& values) {
    std::uint64_t size = values.size();
    one(size);
    if (reads() && size != static_cast<std::uint64_t>(values.size())) values = ByRank<Value>(static_cast<int>(size));
    for (auto&& value : values) one(value);
  }
  template <typename Value>
  void plain(std::optional<Value>& value) {
    bool is_there = value.has_value();
    one(is_there);
    if (reads()) value = is_there ? std::optional<Value>(std::in_place) : std::nullopt;
    if (is_there) one(*value);
  }
  template <typename Key, typename Value>
  void plain(std::map<Key, Value>& values) {
    std::uint64_t size = values.size();
    one(size);
    if (!reads()) {
      for (auto& [key, value] : values) {
        Key copy = key;
        (*this)(copy, value);
      }
      return;
    }
    values.clear();
    for (; size > 0; --size) {
      Key key{};
      one(key);
      one(values[key]);
    }
  }
  void plain(std::string& text) {
    resize(text);
    elements(text);
  }
  void plain(FlatVector& values) {
    std::uint64_t size = values.size();
    one(size);
    if (reads()) values = FlatVector(size);
    bytes(values.data(), size * sizeof(float));
  }

  template <typename Values>
  void resize(Values& values) {
    std::uint64_t size = values.size();
    one(size);
    if (!reads()) return;
    values.clear();
    values.resize(size);
  }
  template <typename Values>
  void elements(Values& values) {
    using Value = typename Values::value_type;
    if constexpr (OneBlock<Values> && std::is_trivially_copyable_v<Value> && !Serialisable<Value>)
      bytes(values.data(), values.size() * sizeof(Value));
    else
      for (Value& value : values) one(value);
  }
  void bytes(void* data, std::size_t size) {
    if (size == 0) return;
    if (out_)
      out_->write(data, size);
    else
      in_->read(data, size);
  }

  ByteSink* out_ = nullptr;
  ByteSource* in_ = nullptr;
};

}  // namespace syncopate
