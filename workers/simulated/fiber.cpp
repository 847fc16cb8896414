#include "workers/simulated/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <type_traits>

namespace syncopate {

namespace {

constexpr bool is_sanitized = !std::is_empty_v<AnnouncedStack>;
// Stack frames with a sanitizer's instrumentation are several times as large.
constexpr std::size_t frame_growth = is_sanitized ? 8 : 1;
constexpr std::size_t guarded_stack_bytes = frame_growth * 128 * 1024;
// An odd number of cache lines per stack distributes the tops of stacks over all sets of the caches.
constexpr std::size_t dense_stack_bytes = frame_growth * 32 * 1024 + 64;
// With more fibers than this, stacks are dense: they have no guard pages and lie close together. Guard pages split a
// mapping into parts, whose number the kernel limits, and switches wait for the page tables of distant stack tops.
constexpr std::size_t most_guarded_fibers = 1024;
// Up to this many dense stacks (256 MB) may be in huge pages, which are resident even where fibers do not use them. A
// switch then does not wait for page tables. That wait is a sixth of an event's time with 4,096 workers.
constexpr std::size_t most_in_huge_pages = 8192;

// A stack of the pool. Boost must not free it, because the pool does.
struct PooledStack {
  boost::context::stack_context context;
  boost::context::stack_context allocate() const { return context; }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

StackPool::StackPool(std::size_t fibers, std::size_t most_with_own_stacks)
    : shared_(fibers > most_with_own_stacks && !is_sanitized),
      count_(shared_ ? 1 : fibers),
      guarded_(count_ <= most_guarded_fibers) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t guard = guarded_ ? page : 0;
  stack_bytes_ = guarded_ ? guarded_stack_bytes : dense_stack_bytes;
  stride_ = stack_bytes_ + guard;
  void* memory = mmap(nullptr, count_ * stride_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  const bool in_huge_pages = !guarded_ && count_ <= most_in_huge_pages;
  madvise(memory_, count_ * stride_, in_huge_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  for (std::size_t i = 0; guarded_ && i < count_; ++i) mprotect(memory_ + i * stride_, guard, PROT_NONE);
}

StackPool::~StackPool() { munmap(memory_, count_ * stride_); }

boost::context::stack_context StackPool::stack(std::size_t fiber) const {
  boost::context::stack_context context;
  if (shared_) fiber = 0;
  // Stacks grow downwards. Different tops within a page, for guarded stacks, distribute them over all cache sets.
  const std::size_t offset = guarded_ ? fiber % 32 * 128 : 0;
  context.size = stack_bytes_ - offset;
  context.sp = memory_ + (fiber + 1) * stride_ - offset;
  return context;
}

void Fiber::DeleteKept::operator()(Kept* kept) const {
  kept->~Kept();
  ::operator delete(kept, std::align_val_t(alignof(Kept)));
}

Fiber::KeptPtr Fiber::make_kept(const boost::context::stack_context& stack, std::size_t room) {
  void* const memory = ::operator new(sizeof(Kept) + room, std::align_val_t(alignof(Kept)));
  return KeptPtr(new (memory) Kept{.stack = stack, .body = {}, .room = static_cast<std::uint32_t>(room)});
}

void Fiber::keep() {
  const auto size = static_cast<std::size_t>(kept_->base() - top_);
  if (size > kept_->room) kept_ = make_kept(kept_->stack, size);
  kept_->size = static_cast<std::uint32_t>(size);
  std::memcpy(kept_->bytes(), top_, size);
}

Fiber::Fiber(const StackPool& pool, std::size_t number, std::function<void()> body)
    : top_(static_cast<const char*>(pool.stack(number).sp)), stack_(pool.stack(number)) {
  if (pool.is_shared()) {
    kept_ = make_kept(pool.stack(number), 0);
    kept_->body = std::move(body);
  } else {
    begin(pool.stack(number), std::move(body));
  }
}

// The body is stored in the lowest frame of the fiber's own stack until that stack is unwound.
void Fiber::begin(const boost::context::stack_context& stack, std::function<void()> body) {
  struct Life {
    explicit Life(AnnouncedStack& stack) : stack(stack) { stack.entered(); }
    ~Life() { stack.leave(true); }
    AnnouncedStack& stack;
  };
  stack_.enter();  // creating a Boost fiber switches to its stack once, to lay it out
  inside_ = boost::context::fiber(std::allocator_arg, PooledStack{stack},
                                  [this, body = std::move(body)](boost::context::fiber&& caller) {
                                    const Life life(stack_);
                                    outside_ = std::move(caller);
                                    body();
                                    return std::move(outside_);
                                  });
  stack_.returned();
}

void Fiber::resume_on_shared_stack() {
  if (kept_->body)
    begin(kept_->stack, std::exchange(kept_->body, nullptr));
  else
    put_back();
  inside_ = std::move(inside_).resume();
  if (inside_) keep();
}

// `top_` is set below this function's small frame and below what the switch pushes, so that both are kept.
void Fiber::suspend_on_shared_stack() {
  constexpr std::ptrdiff_t frame_and_switch = 512;
  top_ = static_cast<const char*>(__builtin_frame_address(0)) - frame_and_switch;
  outside_ = std::move(outside_).resume();
}

Fiber::~Fiber() {
  if (!inside_) return;
  if (kept_) put_back();
  stack_.enter();
  inside_ = {};
  stack_.returned();
}

}  // namespace syncopate
