// Checkpoint log: with it another process can resume an interrupted run that trains a model.
//
// The workers' programs cannot be saved, but they can be run again: they are deterministic, because virtual time does
// not depend on the machine. A resumed run therefore replays the whole run without arithmetic (the executor skips its
// tasks) up to the step of the checkpoint. It then restores all live values. Three things make the replay exact:
// - Numbers that programs get from the arithmetic (a loss, a distance) are logged. The replay returns them in the same
//   order.
// - Every value that tasks compute (a Cell, a GradientSum) has a number, in the order in which the submitting thread
//   creates them. Equal numbers mean equal values. Once all tasks have run, the set of live values at a position
//   depends only on the programs. If it differs from the logged set, the run is not resumed.
// - Whether a value still exists may depend on tasks that hold it. A program may ask for this only through `found`,
//   which logs the answer. Tasks hold copies of the ModelStates that they read (`held_by_task`), so that they do not
//   keep an entry of a Memo alive.
//
// A position is a point before an optimizer step of a model. It is never between the tasks of a step, because these
// share objects that are not logged values. Only the submitting thread, which runs all programs, may call the members.
// Values may be destroyed on any thread.
#pragma once

#include <cstdint>
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

// The destination and the source of a checkpoint's bytes. Both throw on failure.
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

// Thrown if the replay differs from the logged run. what() says how.
struct ReplayMismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Bytes in memory. Writing appends; reading starts at `next`.
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

  // While a Scope exists, this thread's arithmetic is logged in `log`. Scope(nullptr) suspends logging, for temporary
  // values that are created at times which depend on this machine. The log is thread-local, because many functions that
  // submit arithmetic do not know the run.
  class Scope {
   public:
    explicit Scope(CheckpointLog* log) : before_(std::exchange(here_, log)) {}
    ~Scope() { here_ = before_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    CheckpointLog* before_;
  };
  static CheckpointLog* here() { return here_; }  // null: nothing is logged

  // Whether the run is still being replayed, so that no arithmetic is done.
  bool replays() const { return follows_ || steps_ < replayed_until_; }
  static bool replays_here() { return here() && here()->replays(); }
  std::int64_t steps() const { return steps_; }  // optimizer steps taken by all models: the position

  // Call this before each step of a model. Calls `at_position` when the replay reaches its end, and `between_steps` at
  // every step that replay() has not skipped. Both may throw.
  void before_step();
  std::function<void()> at_position;
  std::function<void()> between_steps;

  // Returns `count` numbers for a program: in a replay the logged ones, otherwise the result of `compute`, which must
  // not submit tasks.
  template <typename Compute>
  std::vector<double> numbers_of(std::size_t count, const Compute& compute) {
    if (replays()) return replayed_numbers(count);
    std::vector<double> numbers = compute();
    numbers_.insert(numbers_.end(), numbers.begin(), numbers.end());
    return numbers;
  }

  CellPtr new_cell();
  std::shared_ptr<GradientSum> new_sum();
  // Logs the result of a memo look-up (null: not found), which may depend on the progress of tasks. In a replay,
  // returns the logged result.
  CellPtr found(CellPtr cell);

  std::uint64_t last_number() const { return last_number_; }  // of the values created so far

  // The functions below write and read checkpoints. All submitted tasks must have run before values are written. Values
  // created before the position have numbers up to `last`.
  void write_log(ByteSink& out, std::uint64_t last);  // position and numbers
  void write_values(ByteSink& out, std::uint64_t last) const;
  // Call this at the beginning of the run, which is then replayed.
  void replay(ByteSource& log);
  // Call this at the position. Throws ReplayMismatch if other values are alive than those in the checkpoint.
  void read_values(ByteSource& in);

  void follow(ByteSource& log);  // replays from here until end_replay()
  void end_replay() { follows_ = false; }

 private:
  using Value = std::variant<Cell*, GradientSum*>;
  // Shared with the values' deleters, because some values outlive the log.
  struct Alive {
    std::mutex mutex;
    std::map<std::uint64_t, Value> by_number;
  };
  // The deleter of a value: removes it from the log and deletes it. std::get_deleter finds it from a shared pointer.
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

// Returns the `count` numbers that `compute` returns, through the log if this thread has one.
template <typename Compute>
std::vector<double> logged_numbers(std::size_t count, const Compute& compute) {
  CheckpointLog* const log = CheckpointLog::here();
  return log ? log->numbers_of(count, compute) : compute();
}

// Create an empty cell or sum, to be filled by a task.
CellPtr new_cell();
std::shared_ptr<GradientSum> new_sum();

// Returns a copy of the state that shares its values, for a task to hold.
ModelStatePtr held_by_task(const ModelStatePtr& state);

// Serialises or restores an object, whose `serialise(StateArchive&)` lists its members for both directions. Bytes are
// written as in memory, so only the same build on the same kind of machine can read them.
class StateArchive;

template <typename Value>
concept Serialisable = requires(Value& value, StateArchive& archive) {
  value.serialise(archive);
};
template <typename Values>
concept Sequence = requires(Values& values) {
  values.resize(0);
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

  // Writes or reads all values in this order. Reading replaces their old values.
  template <typename... Values>
  void operator()(Values&... values) {
    (one(values), ...);
  }

  // Writes or reads only the number of elements. Reading replaces the old elements by new ones.
  template <typename Values>
  void resize(Values& values) {
    std::uint64_t size = values.size();
    one(size);
    if (!reads()) return;
    values.clear();
    values.resize(size);
  }
  // Writes or reads bytes without their number.
  void bytes(void* data, std::size_t size) {
    if (size == 0) return;
    if (out_)
      out_->write(data, size);
    else
      in_->read(data, size);
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
  template <Sequence Values>
  void plain(Values& values) {
    using Value = typename Values::value_type;
    resize(values);
    if constexpr (OneBlock<Values> && std::is_trivially_copyable_v<Value> && !Serialisable<Value>)
      bytes(values.data(), values.size() * sizeof(Value));
    else
      for (Value& value : values) one(value);
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
  void plain(FlatVector& values) {
    std::uint64_t size = values.size();
    one(size);
    if (reads()) values = FlatVector(size);
    bytes(values.data(), size * sizeof(float));
  }

  ByteSink* out_ = nullptr;
  ByteSource* in_ = nullptr;
};

}  // namespace syncopate
