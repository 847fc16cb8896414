// Tells AddressSanitizer and ThreadSanitizer which stack the thread is on; without it they take a fiber's frames for
// stray writes. Empty in a build without them.
//
// Source: <sanitizer/asan_interface.h>, <sanitizer/common_interface_defs.h>, <sanitizer/tsan_interface.h>.
#pragma once

#include <boost/context/stack_context.hpp>
#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace syncopate {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Instrumented frames are several times as large.
constexpr std::size_t frame_growth = 8;
constexpr bool is_sanitized = true;
#else
constexpr std::size_t frame_growth = 1;
constexpr bool is_sanitized = false;
#endif

// A fiber's stack, and what is known of the one that it was entered from.
class AnnouncedStack {
 public:
  explicit AnnouncedStack([[maybe_unused]] const boost::context::stack_context& stack) {
#if defined(__SANITIZE_ADDRESS__)
    bottom_ = static_cast<const char*>(stack.sp) - stack.size;
    bytes_ = stack.size;
#endif
#if defined(__SANITIZE_THREAD__)
    fiber_ = __tsan_create_fiber(0);
#endif
  }
  ~AnnouncedStack() {
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(bottom_, bytes_);  // frames that never returned would be found by the next owner
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_destroy_fiber(fiber_);
#endif
  }
  AnnouncedStack(const AnnouncedStack&) = delete;
  AnnouncedStack& operator=(const AnnouncedStack&) = delete;

  // Outside: around the switch to the fiber, until it switches back. ThreadSanitizer counts calls and returns per
  // stack, so that both ends of a switch must be told here, where the calls and returns of the switch itself cancel
  // out.
  void enter() {
#if defined(__SANITIZE_ADDRESS__)
    left_ = false;
    __sanitizer_start_switch_fiber(&outer_frames_, bottom_, bytes_);
#endif
#if defined(__SANITIZE_THREAD__)
    outer_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
#endif
  }
  void returned() {
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(outer_fiber_, 0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    if (!left_) {  // made or destroyed before it began: nobody inside could say that it is left
      entered();
      leave();
    }
    __sanitizer_finish_switch_fiber(outer_frames_, nullptr, nullptr);
#endif
  }

  // Inside: first of all, and after each switch back to the fiber.
  void entered() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(frames_, &outer_bottom_, &outer_bytes_);
#endif
  }
  // Inside: before a switch out of the fiber.
  void leave() {
#if defined(__SANITIZE_ADDRESS__)
    left_ = true;
    __sanitizer_start_switch_fiber(&frames_, outer_bottom_, outer_bytes_);
#endif
  }
  // Inside: before the last one.
  void end() {
#if defined(__SANITIZE_ADDRESS__)
    left_ = true;
    __sanitizer_start_switch_fiber(nullptr, outer_bottom_, outer_bytes_);
#endif
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom_ = nullptr;
  std::size_t bytes_ = 0;
  bool left_ = false;
  void* frames_ = nullptr;  // AddressSanitizer's own frames of the fiber, while it is left
  const void* outer_bottom_ = nullptr;
  std::size_t outer_bytes_ = 0;
  void* outer_frames_ = nullptr;
#endif
#if defined(__SANITIZE_THREAD__)
  void* fiber_ = nullptr;
  void* outer_fiber_ = nullptr;
#endif
};

}  // namespace syncopate
