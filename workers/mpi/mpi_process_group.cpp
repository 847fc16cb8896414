#include "workers/mpi/mpi_process_group.hpp"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "workers/mpi/mpi_messages.hpp"
#include "workers/mpi/mpi_waiting.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

constexpr int tag_of_end = 0;
// The first character of a failure's text: the process failed by itself, or by a failure of another process.
const std::string own = "o", outcome = "t";
// Exchanges end in nearly the order of their starts, so each look is at this many, beginning with the first open one.
constexpr int looked_for_at_once = 64;
constexpr std::chrono::milliseconds look_at_interrupts{50};

constexpr std::int64_t longest_pause_ns = 500'000;

class MpiProcessGroup : public ProcessGroup {
 public:
  explicit MpiProcessGroup(const MpiSession& session)
      : session_(session), ends_(static_cast<std::size_t>(session.size())) {
    for (MPI_Comm& communicator : communicators_) MPI_Comm_dup(session.communicator(), &communicator);
    int* bound = nullptr;
    int is_known = 0;
    MPI_Comm_get_attr(session.communicator(), MPI_TAG_UB, static_cast<void*>(&bound), &is_known);
    if (is_known) highest_tag_ = *bound;
  }

  ~MpiProcessGroup() override {
    {
      const std::lock_guard lock(mutex_);
      is_left_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    for (MPI_Comm& communicator : communicators_) MPI_Comm_free(&communicator);
  }

  MpiProcessGroup(const MpiProcessGroup&) = delete;
  MpiProcessGroup& operator=(const MpiProcessGroup&) = delete;

  int self() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  void open(std::function<void(std::exception_ptr)> on_failure) override {
    {
      const std::lock_guard lock(calling_);
      is_forgotten_ = false;
      on_failure_ = std::move(on_failure);
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  }

  void begin(Exchange&& exchange) override {
    const std::lock_guard lock(mutex_);
    handed_in_.push_back(std::move(exchange));
    changed_.notify_one();
  }

  void settle() override {
    std::unique_lock lock(mutex_);
    is_settling_ = true;
    changed_.notify_one();
    while (is_settling_) {
      settled_.wait_for(lock, look_at_interrupts, [this] { return !is_settling_; });
      throw_if_interrupted();
    }
  }

  void forget() override {
    const std::lock_guard lock(calling_);
    is_forgotten_ = true;
    on_failure_ = nullptr;
  }

  // The serving thread ends with the run, so that the main thread may use MPI after it.
  std::string close(const std::string& failure) override {
    {
      const std::lock_guard lock(mutex_);
      own_failure_ = failure;
      is_closing_ = true;
    }
    changed_.notify_one();
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    thread_.join();
    throw_if_interrupted();
    std::string result = failure_of_all();
    is_closing_ = has_sent_end_ = has_failed_ = false;
    handed_in_.clear();
    awaited_.clear();
    std::ranges::fill(ends_, std::nullopt);
    ++runs_;
    return result;
  }

 private:
  struct Receiving {
    std::shared_ptr<FlatVector> values;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Awaited {
    ProcessSet missing;                              // processes whose payload has not arrived
    std::map<int, Receiving> from{};                 // by process
    std::function<void(std::vector<Payload>)> done;  // gets the result; null: no longer needed

    bool is_received() {
      return missing.empty() && std::ranges::all_of(from, [](auto& one) { return is_done(one.second.request); });
    }
  };

  void serve() {
    std::int64_t last_ns = monotonic_ns();
    while (!finish_closing()) {
      if (interrupted()) return fail(std::make_exception_ptr(Interrupted()));
      {
        const std::lock_guard lock(mutex_);
        if (is_left_) return;
      }
      bool has_come = take_handed_in();
      has_come |= receive_what_has_come();
      has_come |= sends_.release();
      has_come |= take_any(tag_of_end);
      has_come |= settle_if_idle();
      look_for_lost();
      if (has_anybody_failed()) drain();
      const std::int64_t now = monotonic_ns();
      if (has_come)
        last_ns = now;
      else
        sleep_until_monotonic(now + polite_pause_ns(now - last_ns, longest_pause_ns));
    }
  }

  // Blocks until an exchange is handed in, if no message can arrive.
  bool take_handed_in() {
    std::vector<Exchange> taken;
    {
      std::unique_lock lock(mutex_);
      if (is_idle() && !has_sent_end_)
        changed_.wait_for(lock, look_at_interrupts,
                          [this] { return !handed_in_.empty() || is_settling_ || is_closing_ || is_left_; });
      taken.swap(handed_in_);
    }
    for (Exchange& exchange : taken) start(std::move(exchange));
    return !taken.empty();
  }

  void start(Exchange&& exchange) {
    const ProcessSet self_alone = ProcessSet::only(self());
    const bool gives = exchange.from.has(self()), takes = exchange.to.has(self());
    const ProcessSet sources = takes ? exchange.from.without(self_alone) : ProcessSet::none();
    const ProcessSet receivers = gives ? exchange.to.without(self_alone) : ProcessSet::none();
    std::function<void()> when_sent;
    if (sources.empty())
      when_sent = [this, done = std::move(exchange.done)] { call_back([&] { done({}); }); };
    else
      awaited_.emplace(exchange.number, Awaited{.missing = sources, .done = std::move(exchange.done)});
    if (receivers.empty()) {
      if (when_sent) when_sent();
      return;
    }
    const Payload& mine = exchange.mine;
    sends_.send(mine.owner, mine.data, mine.bytes / sizeof(float), MPI_FLOAT, others_in(receivers),
                tag_of(exchange.number), communicator(), std::move(when_sent));
  }

  bool receive_what_has_come() {
    bool has_come = false;
    auto next = awaited_.begin();
    for (int looked_for = 0; looked_for < looked_for_at_once && next != awaited_.end(); ++looked_for) {
      const auto entry = next++;
      auto& [number, awaited] = *entry;
      for (int process = 0; process < size(); ++process)
        if (awaited.missing.has(process)) has_come |= look_for(number, awaited, process);
      if (!awaited.is_received()) continue;
      std::vector<Payload> payloads;
      for (const auto& [process, one] : awaited.from)
        payloads.push_back(
            {.owner = one.values, .data = one.values->data(), .bytes = one.values->size() * sizeof(float)});
      if (awaited.done) call_back([&, &done = awaited.done] { done(std::move(payloads)); });
      awaited_.erase(entry);
      has_come = true;
    }
    return has_come;
  }

  bool look_for(std::uint64_t number, Awaited& awaited, int process) {
    const auto message = find_message(process, tag_of(number), communicator());
    if (!message) return false;
    const auto values = std::make_shared<FlatVector>(size_of(*message, MPI_FLOAT));
    Receiving& receiving = awaited.from[process] = {.values = values};
    MPI_Irecv(values->data(), mpi_count(values->size()), MPI_FLOAT, process, tag_of(number), communicator(),
              &receiving.request);
    awaited.missing = awaited.missing.without(ProcessSet::only(process));
    return true;
  }

  // Takes a message with this tag, if one has arrived. Stores the ends of processes and drops all other messages.
  bool take_any(int tag) {
    const auto message = find_message(MPI_ANY_SOURCE, tag, communicator());
    if (!message) return false;
    const std::vector<std::byte> bytes = take_message(*message, communicator());
    if (message->MPI_TAG == tag_of_end)
      ends_[static_cast<std::size_t>(message->MPI_SOURCE)] =
          end_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    return true;
  }

  bool has_anybody_failed() const {
    return has_failed_ || std::ranges::any_of(ends_, [](const auto& end) { return end && !end->failure.empty(); });
  }
  bool is_idle() const { return awaited_.empty() && sends_.empty(); }
  // Returns whether it has let a settle() return.
  bool settle_if_idle() {
    const std::lock_guard lock(mutex_);
    if (!is_settling_ || !((handed_in_.empty() && is_idle()) || has_anybody_failed())) return false;
    is_settling_ = false;
    settled_.notify_one();
    return true;
  }

  // Messages of one process arrive in order. So a message that has not arrived before its process's end never arrives.
  void look_for_lost() {
    if (has_failed_ || awaited_.empty()) return;
    auto& [number, awaited] = *awaited_.begin();
    for (int process = 0; process < size(); ++process) {
      const auto& end = ends_[static_cast<std::size_t>(process)];
      if (!end || !awaited.missing.has(process) || look_for(number, awaited, process)) continue;
      std::string why = end->failure;
      if (why.empty()) why = fmt::format("process {} has ended the run, but the others have not", process);
      if (end->is_own) why = fmt::format("process {}: {}", process, why);
      return fail(std::make_exception_ptr(RunFailure(why)));
    }
  }

  // After a failure this process needs no more messages, but must receive them, because their senders wait for that.
  void drain() {
    if (!has_sent_end_) return;
    for (auto& [number, awaited] : awaited_) awaited.missing = ProcessSet::none(), awaited.done = nullptr;
    while (take_any(MPI_ANY_TAG)) continue;
  }

  // Announces this process's end once no exchange is left to start. Returns whether all processes have ended.
  bool finish_closing() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      if (!is_closing_ || !handed_in_.empty()) return false;
      if (!own_failure_.empty()) text = (has_failed_ ? outcome : own) + own_failure_;
    }
    if (!std::exchange(has_sent_end_, true)) {
      ends_[static_cast<std::size_t>(self())] = end_of(text);
      const auto sent = std::make_shared<const std::string>(std::move(text));
      sends_.send(sent, sent->data(), sent->size(), MPI_CHAR, others_in(ProcessSet::first(size())), tag_of_end,
                  communicator());
    }
    const bool have_all_ended = std::ranges::all_of(ends_, [](const auto& end) { return end.has_value(); });
    if (have_all_ended && has_anybody_failed()) drain();  // all messages sent before these ends have arrived
    return have_all_ended && is_idle();
  }

  void call_back(const std::function<void()>& what) {
    const std::lock_guard lock(calling_);
    if (!is_forgotten_) what();
  }
  void fail(std::exception_ptr why) {
    has_failed_ = true;
    const std::lock_guard lock(calling_);
    if (!is_forgotten_ && on_failure_) on_failure_(std::move(why));
  }

  int tag_of(std::uint64_t number) const {
    return 1 + static_cast<int>(number % static_cast<std::uint64_t>(highest_tag_));
  }
  MPI_Comm communicator() const { return communicators_[runs_ % 2]; }
  std::vector<Rank> others_in(ProcessSet processes) const {
    std::vector<Rank> others;
    for (int process = 0; process < size(); ++process)
      if (process != self() && processes.has(process)) others.emplace_back(process);
    return others;
  }

  // Returns the failure of the first process that failed by itself, naming the process unless all failed alike.
  std::string failure_of_all() const {
    for (std::size_t process = 0; process < ends_.size(); ++process) {
      const End& why = *ends_[process];
      if (why.failure.empty() || !why.is_own) continue;
      const bool is_of_all = std::ranges::all_of(ends_, [&](const auto& end) { return end == why; });
      return is_of_all ? why.failure : fmt::format("process {}: {}", process, why.failure);
    }
    return {};
  }

  const MpiSession& session_;
  // Runs alternate between the two, so that a run does not receive leftover messages of a failed previous run.
  MPI_Comm communicators_[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  int highest_tag_ = 32767;

  std::mutex mutex_;  // guards the members up to own_failure_
  std::condition_variable changed_, settled_;
  std::vector<Exchange> handed_in_;
  bool is_closing_ = false;
  bool is_settling_ = false;
  bool is_left_ = false;  // the group is destroyed in the middle of a run
  std::string own_failure_;

  std::mutex calling_;  // held during callbacks of the run; guards the next two members
  bool is_forgotten_ = true;
  std::function<void(std::exception_ptr)> on_failure_;

  // The members below are used only by the serving thread.
  std::size_t runs_ = 0;
  std::map<std::uint64_t, Awaited> awaited_;  // by number
  MpiSends sends_;
  // How the run ended in a process.
  struct End {
    bool is_own = false;  // whether the process failed by itself, not because another one did
    std::string failure;  // empty: the process did not fail
    bool operator==(const End&) const = default;
  };
  static End end_of(const std::string& text) {
    if (text.empty()) return {};
    return {.is_own = text.starts_with(own), .failure = text.substr(own.size())};
  }
  std::vector<std::optional<End>> ends_;  // by process
  bool has_sent_end_ = false;
  bool has_failed_ = false;  // this process has reported another process's failure
  std::thread thread_;
};

}  // namespace

std::string why_not_divided(const MpiSession& session) {
  if (session.size() > most_processes)
    return fmt::format("--cluster simulated: {} processes cannot divide a simulation; must be at most {}",
                       session.size(), most_processes);
  if (!session.serves_other_threads())
    return "--cluster simulated: this MPI library allows calls only from the main thread; it must support "
           "MPI_THREAD_SERIALIZED";
  return {};
}

std::unique_ptr<ProcessGroup> make_mpi_process_group(const MpiSession& session) {
  return std::make_unique<MpiProcessGroup>(session);
}

}  // namespace syncopate
