#include "workers/simulated/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace syncopate {

namespace {

constexpr std::size_t guarded_stack_bytes = frame_growth * 128 * 1024;
// An odd number of cache lines, which spreads the tops over all sets of the caches.
constexpr std::size_t dense_stack_bytes = frame_growth * 32 * 1024 + 64;
// More fibers than that have dense stacks: guards split a mapping, whose parts the kernel counts, and the page tables
// of tops that lie far apart are what a switch then waits for.
constexpr std::size_t most_guarded_fibers = 1024;

// Hands out a slice of the pool; the pool frees the memory.
struct PooledStack {
  boost::context::stack_context context;
  boost::context::stack_context allocate() const { return context; }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

StackPool::StackPool(std::size_t fibers) : count_(fibers), guarded_(fibers <= most_guarded_fibers) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t guard = guarded_ ? page : 0;
  stack_bytes_ = guarded_ ? guarded_stack_bytes : dense_stack_bytes;
  stride_ = stack_bytes_ + guard;
  void* memory = mmap(nullptr, count_ * stride_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  // A huge page would be there as a whole, however few fibers go how deep.
  madvise(memory_, count_ * stride_, MADV_NOHUGEPAGE);
  for (std::size_t i = 0; guarded_ && i < count_; ++i) mprotect(memory_ + i * stride_, guard, PROT_NONE);
}

StackPool::~StackPool() { munmap(memory_, count_ * stride_); }

boost::context::stack_context StackPool::stack(std::size_t fiber) const {
  boost::context::stack_context context;
  // Stacks grow downwards. Guarded ones have tops that are spread over a page, for the same reason as above.
  const std::size_t offset = guarded_ ? fiber % 32 * 128 : 0;
  context.size = stack_bytes_ - offset;
  context.sp = memory_ + (fiber + 1) * stride_ - offset;
  return context;
}

// The body lives on the stack itself, in the frame below all others, until they are unwound.
Fiber::Fiber(const StackPool& pool, std::size_t number, std::function<void()> body)
    : top_(static_cast<const char*>(pool.stack(number).sp)), stack_(pool.stack(number)) {
  struct Life {
    explicit Life(AnnouncedStack& stack) : stack(stack) { stack.entered(); }
    ~Life() { stack.end(); }
    AnnouncedStack& stack;
  };
  stack_.enter();  // Boost goes there once to lay it out
  inside_ = boost::context::fiber(std::allocator_arg, PooledStack{pool.stack(number)},
                                  [this, body = std::move(body)](boost::context::fiber&& caller) {
                                    const Life life(stack_);
                                    outside_ = std::move(caller);
                                    body();
                                    return std::move(outside_);
                                  });
  stack_.returned();
}

Fiber::~Fiber() {
  if (!inside_) return;
  stack_.enter();
  inside_ = {};
  stack_.returned();
}

}  // namespace syncopate
