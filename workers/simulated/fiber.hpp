// A stackful fiber (Boost.Context): a plain function that can stop in the middle and be resumed. C++20 coroutines are
// not used because g++ 12 silently miscompiles temporaries in statements with co_await, and fibers are easier to debug.
#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/stack_context.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace syncopate {

// A fiber's stack. It reports each switch to AddressSanitizer or ThreadSanitizer, so that they know which stack the
// thread is on. Otherwise they would take a fiber's frames for stray writes. Without these sanitizers it does nothing.
// - enter() and returned() are called outside the fiber, before and after the switch to it.
// - entered() is called inside the fiber, at its start and after each switch back to it.
// - leave() is called inside the fiber before a switch out of it. `is_last`: the fiber ends.
// Source:  <sanitizer/asan_interface.h>, <sanitizer/common_interface_defs.h>, <sanitizer/tsan_interface.h>.
#if defined(__SANITIZE_ADDRESS__)
class AnnouncedStack {
 public:
  explicit AnnouncedStack(const boost::context::stack_context& stack)
      : bottom_(static_cast<const char*>(stack.sp) - stack.size), bytes_(stack.size) {}
  // Frames that never returned would be errors for the next owner of the memory.
  ~AnnouncedStack() { __asan_unpoison_memory_region(bottom_, bytes_); }
  AnnouncedStack(const AnnouncedStack&) = delete;
  AnnouncedStack& operator=(const AnnouncedStack&) = delete;

  void enter() {
    left_ = false;
    __sanitizer_start_switch_fiber(&outer_frames_, bottom_, bytes_);
  }
  void returned() {
    if (!left_) {  // the fiber was created, or destroyed before it began: nothing inside it reports a switch out of it
      entered();
      leave();
    }
    __sanitizer_finish_switch_fiber(outer_frames_, nullptr, nullptr);
  }
  void entered() { __sanitizer_finish_switch_fiber(frames_, &outer_bottom_, &outer_bytes_); }
  void leave(bool is_last = false) {
    left_ = true;
    __sanitizer_start_switch_fiber(is_last ? nullptr : &frames_, outer_bottom_, outer_bytes_);
  }

 private:
  const void* bottom_;
  std::size_t bytes_;
  bool left_ = false;
  void* frames_ = nullptr;  // AddressSanitizer's record of the suspended fiber's frames
  const void* outer_bottom_ = nullptr;
  std::size_t outer_bytes_ = 0;
  void* outer_frames_ = nullptr;
};
#elif defined(__SANITIZE_THREAD__)
// ThreadSanitizer counts calls and returns per stack. It learns of both ends of a switch outside the fiber, so that the
// switch's own calls and returns cancel out.
class AnnouncedStack {
 public:
  explicit AnnouncedStack(const boost::context::stack_context&) {}
  ~AnnouncedStack() { __tsan_destroy_fiber(fiber_); }
  AnnouncedStack(const AnnouncedStack&) = delete;
  AnnouncedStack& operator=(const AnnouncedStack&) = delete;

  void enter() {
    outer_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
  }
  void returned() { __tsan_switch_to_fiber(outer_fiber_, 0); }
  void entered() {}
  void leave(bool = false) {}

 private:
  void* fiber_ = __tsan_create_fiber(0);
  void* outer_fiber_ = nullptr;
};
#else
struct AnnouncedStack {
  explicit AnnouncedStack(const boost::context::stack_context&) {}
  void enter() {}
  void returned() {}
  void entered() {}
  void leave(bool = false) {}
};
#endif

// Memory for the stacks of many fibers. Up to 1,024 fibers have 128 KB each behind a guard page. More than 1,024 have
// 32 KB each without guard pages, close together. Memory is used only as deep as a fiber goes. If there are more fibers
// than `most_with_own_stacks`, all run on one stack in turn. A suspended fiber's frames are then copied elsewhere,
// because pages of its own would be mostly empty. Sanitizers tell stacks by address, so with them no stack is shared.
class StackPool {
 public:
  StackPool(std::size_t fibers, std::size_t most_with_own_stacks);
  ~StackPool();
  StackPool(const StackPool&) = delete;
  StackPool& operator=(const StackPool&) = delete;

  boost::context::stack_context stack(std::size_t fiber) const;
  bool is_shared() const { return shared_; }

 private:
  bool shared_;
  std::size_t count_;  // number of stacks
  bool guarded_;
  std::size_t stack_bytes_;
  std::size_t stride_;  // bytes from one stack to the next, guard page included
  char* memory_;
};

class Fiber {
 public:
  // The body must not let exceptions escape. To unwind a fiber that is destroyed before its end, Boost throws an
  // exception inside it, which a `catch (...)` must rethrow. Nothing may access a suspended fiber's local variables
  // from outside, because other fibers may use its stack.
  Fiber(const StackPool& pool, std::size_t number, std::function<void()> body);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();  // unwinds an unfinished body

  // Both switches and their callers are inline: after a switch the processor mispredicts each return that follows.
  void resume() {  // from outside the fiber; returns when the fiber suspends or ends
    if (kept_) [[unlikely]]
      return resume_on_shared_stack();
    stack_.enter();
    inside_ = std::move(inside_).resume();
    stack_.returned();
  }
  void suspend() {  // from inside the fiber
    if (kept_) [[unlikely]]
      return suspend_on_shared_stack();
    top_ = static_cast<const char*>(__builtin_frame_address(0));
    const Absence absence(stack_);
    outside_ = std::move(outside_).resume();
  }

  // Prefetches a suspended fiber's stack; call it a little before resume. It fetches the cache lines of the program's
  // frames and next calls. With thousands of fibers these lines are neither in L1 nor in L2.
  void prefetch() const {
    if (kept_) [[unlikely]]
      return prefetch_kept();
    constexpr std::ptrdiff_t line = 64, next_calls = 5 * line, program = 12 * line;
    for (const char* at = top_ - next_calls; at < top_ + program; at += line) __builtin_prefetch(at, 1);
  }

 private:
  // Reports the stack as left until the fiber is resumed or unwound.
  struct Absence {
    explicit Absence(AnnouncedStack& stack) : stack(stack) { stack.leave(); }
    ~Absence() { stack.entered(); }
    AnnouncedStack& stack;
  };

  // A suspended fiber's part of the shared stack. The bytes follow this header in the same allocation, so both can be
  // prefetched without reading the header first.
  struct alignas(64) Kept {
    boost::context::stack_context stack;
    std::function<void()> body;  // null once the fiber has begun
    std::uint32_t size = 0;
    std::uint32_t room = 0;  // bytes allocated after this header

    char* base() const { return static_cast<char*>(stack.sp); }  // the stack grows downwards from here
    char* bytes() { return reinterpret_cast<char*>(this + 1); }
  };
  struct DeleteKept {
    void operator()(Kept* kept) const;
  };
  using KeptPtr = std::unique_ptr<Kept, DeleteKept>;
  static KeptPtr make_kept(const boost::context::stack_context& stack, std::size_t room);
  void keep();
  void put_back() const { std::memcpy(kept_->base() - kept_->size, kept_->bytes(), kept_->size); }

  void prefetch_kept() const {
    constexpr std::ptrdiff_t line = 64, lines = 36;  // synchronous SGD keeps 34
    const char* const first = reinterpret_cast<const char*>(kept_.get());
    for (std::ptrdiff_t i = 0; i < lines; ++i) __builtin_prefetch(first + i * line, 1);
  }
  void begin(const boost::context::stack_context& stack, std::function<void()> body);
  void resume_on_shared_stack();
  [[gnu::noinline]] void suspend_on_shared_stack();

  const char* top_;  // lowest address in use at the last suspend, approximately
  [[no_unique_address]] AnnouncedStack stack_;
  boost::context::fiber inside_;
  boost::context::fiber outside_;
  KeptPtr kept_;  // null: the fiber has a stack of its own
};

}  // namespace syncopate
