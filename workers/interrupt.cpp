#include "workers/interrupt.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace syncopate {
namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::atomic<int>*>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

std::atomic<std::atomic<int>*> told_word{nullptr};
std::atomic<int> told_value{0};

void on_signal(int) {
  if (std::atomic<int>* const word = told_word.load()) word->store(told_value.load());
  if (flag.exchange(true, std::memory_order_relaxed)) _exit(130);
}

}  // namespace

void install_interrupt_handlers() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // a file that is being written is not cut short
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void tell_of_interrupt(std::atomic<int>* word, int value) {
  told_word.store(nullptr);
  told_value.store(value);
  told_word.store(word);
}

bool interrupted() { return flag.load(std::memory_order_relaxed); }

void set_interrupted(bool value) { flag.store(value, std::memory_order_relaxed); }

}  // namespace syncopate
