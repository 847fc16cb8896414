#include "workers/process/interrupt.hpp"

#include <semaphore.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <utility>

#include "workers/process/exit_status.hpp"

namespace syncopate {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::atomic<int>*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::atomic<std::atomic<int>*> told_word{nullptr};
std::atomic<int> told_value{0};

// Of types that nothing destroys when main returns, since the thread that waits for a signal may still be there.
sem_t signalled;
std::mutex ending;             // whoever has it decides whether the process ends
LastAct* last_made = nullptr;  // under that lock

void on_signal(int) {
  if (std::atomic<int>* const word = told_word.load()) word->store(told_value.load());
  if (flag.exchange(true, std::memory_order_relaxed)) _exit(exit_interrupted);
  sem_post(&signalled);
}

void handle(int signal, int flags) {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

// Last acts may write to a pipe that nobody reads. Zero: without a limit again.
void limit_last_acts(std::chrono::microseconds limit) {
  handle(SIGALRM, 0);
  const itimerval once{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = limit.count()}};
  setitimer(ITIMER_REAL, &once, nullptr);
}

}  // namespace

void end_after_signal() {
  while (sem_wait(&signalled) != 0) {
  }
  std::this_thread::sleep_for(time_to_end);
  const std::lock_guard until_the_end(ending);
  limit_last_acts(time_for_last_acts);
  try {
    for (const LastAct* act = last_made; act; act = act->before_)
      if (!act->done_) act->act_();
  } catch (...) {  // memory that is not there
  }
  _exit(exit_interrupted);
}

LastAct::LastAct(std::function<void()> act) : act_(std::move(act)) {
  const std::lock_guard lock(ending);
  before_ = std::exchange(last_made, this);
}

LastAct::~LastAct() {
  const std::lock_guard lock(ending);
  LastAct** link = &last_made;
  while (*link != this) link = &(*link)->before_;
  *link = before_;
}

void LastAct::do_now() {
  const std::lock_guard lock(ending);
  if (std::exchange(done_, true)) return;
  limit_last_acts(time_for_last_acts);
  act_();
  limit_last_acts(std::chrono::microseconds(0));
}

std::unique_lock<std::mutex> hold_off_end() { return std::unique_lock(ending); }

void install_interrupt_handlers() {
  static const bool installed = [] {
    sem_init(&signalled, 0, 0);
    std::thread(end_after_signal).detach();
    for (const int signal : {SIGINT, SIGTERM})
      handle(signal, SA_RESTART);  // a file that is being written is not cut short
    return true;
  }();
  (void)installed;
}

void tell_of_interrupt(std::atomic<int>* word, int value) {
  told_word.store(nullptr);
  told_value.store(value);
  told_word.store(word);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

void set_interrupted(bool value) { flag.store(value, std::memory_order_relaxed); }

}  // namespace syncopate
