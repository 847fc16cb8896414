// Processes that divide one simulation and were started by one launcher. They exchange vectors as MPI messages.
//
// While a run is under way, only one thread uses MPI. It sends vectors that are handed in, looks for incoming vectors,
// and sleeps in between, so that the cores are left to computing threads. A vector is received into memory that is
// allocated only when the vector arrives. A vector that this process has not asked for yet stays with its sender.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "workers/mpi/mpi_messages.hpp"
#include "workers/mpi/mpi_session.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

// Explains why the session's processes cannot divide simulations; empty if they can.
std::string why_not_divided(const MpiSession& session);

class MpiProcessGroup : public ProcessGroup {
 public:
  // Collective over the session, which must outlive the group.
  explicit MpiProcessGroup(const MpiSession& session);
  ~MpiProcessGroup() override;
  MpiProcessGroup(const MpiProcessGroup&) = delete;
  MpiProcessGroup& operator=(const MpiProcessGroup&) = delete;

  int self() const override { return session_.rank(); }
  int size() const override { return session_.size(); }
  void open(std::function<void(std::exception_ptr)> on_failure) override;
  void begin(Exchange&& exchange) override;
  void settle() override;
  void forget() override;
  std::string close(const std::string& failure) override;

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

  void serve();
  bool take_handed_in();
  void start(Exchange&& exchange);
  bool receive_what_has_come();
  bool look_for(std::uint64_t number, Awaited& awaited, int process);
  bool take_any(int tag);
  bool has_anybody_failed() const;
  bool is_idle() const { return awaited_.empty() && sends_.empty(); }
  bool settle_if_idle();
  void look_for_lost();
  void drain();
  bool finish_closing();
  void call_back(const std::function<void()>& what) {
    const std::lock_guard lock(calling_);
    if (!is_forgotten_) what();
  }
  void fail(std::exception_ptr why);
  int tag_of(std::uint64_t number) const {
    return 1 + static_cast<int>(number % static_cast<std::uint64_t>(highest_tag_));
  }
  MPI_Comm communicator() const { return communicators_[runs_ % 2]; }
  std::vector<Rank> others_in(ProcessSet processes) const;
  std::string failure_of_all() const;

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
  static End end_of(const std::string& text);
  std::vector<std::optional<End>> ends_;  // by process
  bool has_sent_end_ = false;
  bool has_failed_ = false;  // this process has reported another process's failure
  std::thread thread_;
};

}  // namespace syncopate
