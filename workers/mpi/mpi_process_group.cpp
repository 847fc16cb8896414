#include "workers/mpi/mpi_process_group.hpp"

#include <fmt/format.h>

#include <chrono>

#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

constexpr int tag_of_end = 0;
// The text of a failure begins with one of these: the process's own, or another's.
const std::string own = "o", outcome = "t";
// Exchanges end nearly in their order, so the thread looks for this many at a time. The first open one is among them.
constexpr int looked_for_at_once = 64;
constexpr std::chrono::milliseconds look_at_interrupts{50};

// The pause grows with the time in which nothing has come, so that it costs a wait one per cent at most.
std::int64_t pause_ns(std::int64_t waited_ns) { return std::clamp<std::int64_t>(waited_ns / 100, 20'000, 500'000); }

}  // namespace

std::string why_not_divided(const MpiSession& session) {
  if (session.size() > most_processes)
    return fmt::format("--cluster simulated: {} processes would divide each simulation; must be at most {}",
                       session.size(), most_processes);
  if (!session.serves_other_threads())
    return "--cluster simulated: this MPI serves the main thread alone; must support MPI_THREAD_SERIALIZED";
  return {};
}

MpiProcessGroup::MpiProcessGroup(const MpiSession& session)
    : session_(session), ends_(static_cast<std::size_t>(session.size())) {
  for (MPI_Comm& communicator : communicators_) MPI_Comm_dup(session.communicator(), &communicator);
  int* bound = nullptr;
  int is_known = 0;
  MPI_Comm_get_attr(session.communicator(), MPI_TAG_UB, static_cast<void*>(&bound), &is_known);
  if (is_known) highest_tag_ = *bound;
}

MpiProcessGroup::~MpiProcessGroup() {
  {
    const std::lock_guard lock(mutex_);
    is_left_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
  for (MPI_Comm& communicator : communicators_) MPI_Comm_free(&communicator);
}

void MpiProcessGroup::open(std::function<void(std::exception_ptr)> on_failure) {
  {
    const std::lock_guard lock(calling_);
    is_forgotten_ = false;
    on_failure_ = std::move(on_failure);
  }
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
}

void MpiProcessGroup::begin(Exchange&& exchange) {
  {
    const std::lock_guard lock(mutex_);
    handed_in_.push_back(std::move(exchange));
  }
  changed_.notify_one();
}

void MpiProcessGroup::settle() {
  std::unique_lock lock(mutex_);
  is_settling_ = true;
  changed_.notify_one();
  while (is_settling_) {
    settled_.wait_for(lock, look_at_interrupts, [this] { return !is_settling_; });
    if (interrupted()) throw Interrupted();
  }
}

// True if it has ended a settle().
bool MpiProcessGroup::settle_if_idle() {
  const std::lock_guard lock(mutex_);
  const bool is_idle = handed_in_.empty() && awaited_.empty() && sendings_.empty() && receivings_.empty();
  if (!is_settling_ || !(is_idle || has_anybody_failed())) return false;
  is_settling_ = false;
  settled_.notify_one();
  return true;
}

void MpiProcessGroup::forget() {
  const std::lock_guard lock(calling_);
  is_forgotten_ = true;
  on_failure_ = nullptr;
}

// The thread ends with the run, so that the main one may speak MPI from then on.
std::string MpiProcessGroup::close(const std::string& failure) {
  {
    const std::lock_guard lock(mutex_);
    own_failure_ = failure;
    is_closing_ = true;
  }
  changed_.notify_one();
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  thread_.join();
  if (interrupted()) throw Interrupted();
  std::string result = failure_of_all();
  is_closing_ = has_sent_end_ = has_failed_ = false;
  handed_in_.clear();
  awaited_.clear();
  std::ranges::fill(ends_, std::nullopt);
  ++runs_;
  return result;
}

// The failure of the first process that has one. It names the process unless all have the same.
std::string MpiProcessGroup::failure_of_all() const {
  for (std::size_t process = 0; process < ends_.size(); ++process) {
    const End& why = *ends_[process];
    if (why.failure.empty() || !why.is_own) continue;
    const bool is_of_all = std::ranges::all_of(ends_, [&](const auto& end) { return end == why; });
    return is_of_all ? why.failure : fmt::format("process {}: {}", process, why.failure);
  }
  return {};
}

MpiProcessGroup::End MpiProcessGroup::end_of(const std::string& text) {
  if (text.empty()) return {};
  return {.is_own = text.starts_with(own), .failure = text.substr(own.size())};
}

void MpiProcessGroup::serve() {
  std::int64_t last_ns = monotonic_ns();
  while (!finish_closing()) {
    if (interrupted()) return fail(std::make_exception_ptr(Interrupted()));
    {
      const std::lock_guard lock(mutex_);
      if (is_left_) return;
    }
    bool has_come = take_handed_in();
    has_come |= look_for_messages();
    has_come |= receive_what_has_come();
    has_come |= end_sendings();
    has_come |= take_any(tag_of_end);
    has_come |= settle_if_idle();
    look_for_lost();
    if (has_anybody_failed()) drain();
    const std::int64_t now = monotonic_ns();
    if (has_come)
      last_ns = now;
    else
      sleep_until_monotonic(now + pause_ns(now - last_ns));
  }
}

bool MpiProcessGroup::has_anybody_failed() const {
  return has_failed_ || std::ranges::any_of(ends_, [](const auto& end) { return end && !end->failure.empty(); });
}

// Waits for something to be handed in where nothing else can come.
bool MpiProcessGroup::take_handed_in() {
  std::vector<Exchange> taken;
  {
    std::unique_lock lock(mutex_);
    const bool is_idle = awaited_.empty() && sendings_.empty() && receivings_.empty() && !has_sent_end_;
    if (is_idle)
      changed_.wait_for(lock, look_at_interrupts,
                        [this] { return !handed_in_.empty() || is_settling_ || is_closing_ || is_left_; });
    taken.swap(handed_in_);
  }
  for (Exchange& exchange : taken) start(std::move(exchange));
  return !taken.empty();
}

void MpiProcessGroup::start(Exchange&& exchange) {
  const ProcessSet others = ProcessSet::first(size()).without(ProcessSet::only(self()));
  const bool gives = exchange.from.has(self()), takes = exchange.to.has(self());
  const ProcessSet sources = takes ? exchange.from & others : ProcessSet::none();
  const ProcessSet receivers = gives ? exchange.to & others : ProcessSet::none();
  std::vector<MPI_Request> requests;
  for (int process = 0; process < size(); ++process) {
    if (!receivers.has(process)) continue;
    MPI_Isend(exchange.mine.data, mpi_count(exchange.mine.bytes / sizeof(float)), MPI_FLOAT, process,
              tag_of(exchange.number), communicator(), &requests.emplace_back());
  }
  const Payload mine = exchange.mine;
  if (sources.empty() && requests.empty()) {
    call_back([&] { exchange.done({}); });
    return;
  }
  if (!requests.empty()) {
    Sending sending{.exchange = {.mine = mine}, .requests = std::move(requests), .ends_with_it = sources.empty()};
    if (sending.ends_with_it) sending.exchange.done = exchange.done;
    sendings_.push_back(std::move(sending));
  }
  if (sources.empty()) return;
  Awaited awaited{.exchange = std::move(exchange),
                  .from = std::vector<std::optional<Payload>>(static_cast<std::size_t>(size())),
                  .missing = sources.count(size()),
                  .received = ProcessSet::none()};
  awaited.exchange.from = sources;
  const std::uint64_t number = awaited.exchange.number;
  awaited_.emplace(number, std::move(awaited));
}

bool MpiProcessGroup::look_for_messages() {
  bool has_come = false;
  int looked_for = 0;
  for (auto& [number, awaited] : awaited_) {
    if (++looked_for > looked_for_at_once) break;
    for (int process = 0; process < size(); ++process)
      if (awaited.exchange.from.has(process) && !awaited.received.has(process)) has_come |= look_for(awaited, process);
  }
  return has_come;
}

bool MpiProcessGroup::look_for(Awaited& awaited, int process) {
  int is_there = 0, count = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  MPI_Improbe(process, tag_of(awaited.exchange.number), communicator(), &is_there, &message, &status);
  if (!is_there) return false;
  MPI_Get_count(&status, MPI_FLOAT, &count);
  const auto owner = std::make_shared<FlatVector>(static_cast<std::size_t>(count));
  Receiving receiving{.number = awaited.exchange.number,
                      .from = process,
                      .payload = {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(float)},
                      .request = MPI_REQUEST_NULL};
  MPI_Imrecv(owner->data(), count, MPI_FLOAT, &message, &receiving.request);
  receivings_.push_back(std::move(receiving));
  awaited.received = awaited.received | ProcessSet::only(process);
  return true;
}

bool MpiProcessGroup::receive_what_has_come() {
  const auto is_received = [this](Receiving& receiving) {
    if (!is_done(receiving.request)) return false;
    const auto found = awaited_.find(receiving.number);
    if (found == awaited_.end()) return true;
    Awaited& awaited = found->second;
    awaited.from[static_cast<std::size_t>(receiving.from)] = std::move(receiving.payload);
    if (--awaited.missing > 0) return true;
    std::vector<Payload> payloads;
    for (auto& payload : awaited.from)
      if (payload) payloads.push_back(std::move(*payload));
    call_back([&] { awaited.exchange.done(std::move(payloads)); });
    awaited_.erase(found);
    return true;
  };
  return std::erase_if(receivings_, is_received) > 0;
}

bool MpiProcessGroup::end_sendings() {
  const auto is_sent = [this](Sending& sending) {
    const bool done = are_done(sending.requests);
    if (done && sending.ends_with_it) call_back([&] { sending.exchange.done({}); });
    return done;
  };
  return std::erase_if(sendings_, is_sent) > 0;
}

// Takes a message with this tag, if there is one. Ends of processes are noted, all else is dropped.
bool MpiProcessGroup::take_any(int tag) {
  int is_there = 0, count = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  MPI_Improbe(MPI_ANY_SOURCE, tag, communicator(), &is_there, &message, &status);
  if (!is_there) return false;
  MPI_Get_count(&status, MPI_BYTE, &count);
  std::string bytes(static_cast<std::size_t>(count), ' ');
  MPI_Mrecv(bytes.data(), count, MPI_BYTE, &message, MPI_STATUS_IGNORE);
  if (status.MPI_TAG == tag_of_end) ends_[static_cast<std::size_t>(status.MPI_SOURCE)] = end_of(bytes);
  return true;
}

// Messages of one process come in their order: one that has not come before the process's end never comes.
void MpiProcessGroup::look_for_lost() {
  if (has_failed_ || awaited_.empty()) return;
  Awaited& awaited = awaited_.begin()->second;
  for (int process = 0; process < size(); ++process) {
    const auto& end = ends_[static_cast<std::size_t>(process)];
    if (!end || !awaited.exchange.from.has(process) || awaited.received.has(process)) continue;
    if (look_for(awaited, process)) continue;
    std::string why = end->failure;
    if (why.empty()) why = fmt::format("process {} has ended the run, and others have not", process);
    if (end->is_own) why = fmt::format("process {}: {}", process, why);
    return fail(std::make_exception_ptr(RunFailure(why)));
  }
}

// After a failure nobody asks for the messages still to come, but their senders wait until they are taken.
void MpiProcessGroup::drain() {
  if (!has_sent_end_) return;
  awaited_.clear();
  while (take_any(MPI_ANY_TAG)) continue;
}

// Announces this process's end once it has nothing more to send, and waits for the others.
bool MpiProcessGroup::finish_closing() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_closing_ || !handed_in_.empty()) return false;
    if (!has_sent_end_) end_text_ = own_failure_.empty() ? "" : (has_failed_ ? outcome : own) + own_failure_;
  }
  if (!has_sent_end_) {
    has_sent_end_ = true;
    ends_[static_cast<std::size_t>(self())] = end_of(end_text_);
    end_requests_.clear();
    for (int process = 0; process < size(); ++process)
      if (process != self())
        MPI_Isend(end_text_.data(), mpi_count(end_text_.size()), MPI_CHAR, process, tag_of_end, communicator(),
                  &end_requests_.emplace_back());
  }
  const bool have_all_ended = std::ranges::all_of(ends_, [](const auto& end) { return end.has_value(); });
  if (have_all_ended && has_anybody_failed()) drain();  // what they had sent before is here
  if (!have_all_ended || !sendings_.empty() || !receivings_.empty()) return false;
  return are_done(end_requests_);
}

void MpiProcessGroup::fail(std::exception_ptr why) {
  has_failed_ = true;
  const std::lock_guard lock(calling_);
  if (!is_forgotten_ && on_failure_) on_failure_(std::move(why));
}

}  // namespace syncopate
