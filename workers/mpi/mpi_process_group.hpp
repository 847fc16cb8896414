// Processes that divide a simulation and were started by one launcher: exchanges are messages of MPI.
//
// While a run is under way, one thread alone speaks MPI: it sends vectors that are handed in, looks for those to come,
// and sleeps in between, so that the cores are left to those who compute. A vector is received once it is there, into
// memory taken at that time; until it is asked for it stays with its sender.
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

// Why the session's processes cannot divide simulations; empty if they can.
std::string why_not_divided(const MpiSession& session);

class MpiProcessGroup : public ProcessGroup {
 public:
  // Collective. The session outlives it.
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
    ProcessSet missing;                              // those whose payload has not come
    std::map<int, Receiving> from{};                 // by process
    std::function<void(std::vector<Payload>)> done;  // null: nobody asks any more

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
  // Used in turn, so that leftovers of a failed run are not taken for a part of the next one.
  MPI_Comm communicators_[2] = {MPI_COMM_NULL, MPI_COMM_NULL};
  int highest_tag_ = 32767;

  std::mutex mutex_;  // guards these
  std::condition_variable changed_, settled_;
  std::vector<Exchange> handed_in_;
  bool is_closing_ = false;
  bool is_settling_ = false;
  bool is_left_ = false;  // the group is destroyed in the middle of a run
  std::string own_failure_;

  std::mutex calling_;  // held while a callback of the run is called; guards these
  bool is_forgotten_ = true;
  std::function<void(std::exception_ptr)> on_failure_;

  // The serving thread's own.
  std::size_t runs_ = 0;
  std::map<std::uint64_t, Awaited> awaited_;  // by number
  MpiSends sends_;
  // How a process has ended the run.
  struct End {
    bool is_own = false;  // its own failure, not that of a process that it has waited for
    std::string failure;  // empty: none
    bool operator==(const End&) const = default;
  };
  static End end_of(const std::string& text);
  std::vector<std::optional<End>> ends_;  // by process
  bool has_sent_end_ = false;
  bool has_failed_ = false;  // it has reported another's failure
  std::thread thread_;
};

}  // namespace syncopate
