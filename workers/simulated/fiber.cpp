#include "workers/simulated/fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>
#include <utility>

namespace syncopate {

namespace {

constexpr std::size_t stack_bytes = 128 * 1024;
// Each guard page splits a mapping in two; the kernel's default limit is 65,530 mappings.
constexpr std::size_t most_guarded_fibers = 16'000;

// Hands out a slice of the pool; the pool frees the memory.
struct PooledStack {
  boost::context::stack_context context;
  boost::context::stack_context allocate() const { return context; }
  void deallocate(boost::context::stack_context&) const {}
};

}  // namespace

StackPool::StackPool(std::size_t fibers) : count_(fibers) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  guard_ = fibers <= most_guarded_fibers ? page : 0;
  // An odd number of pages, guarded or not: stacks a power of two apart would share their cache sets.
  stride_ = stack_bytes + page;
  void* memory = mmap(nullptr, count_ * stride_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  // A huge page would make every fiber touch 2 MB.
  madvise(memory_, count_ * stride_, MADV_NOHUGEPAGE);
  if (guard_ > 0)
    for (std::size_t i = 0; i < count_; ++i) mprotect(memory_ + i * stride_, guard_, PROT_NONE);
}

StackPool::~StackPool() { munmap(memory_, count_ * stride_); }

boost::context::stack_context StackPool::stack(std::size_t fiber) const {
  boost::context::stack_context context;
  // Stacks grow downwards, towards their guard page. Their tops are spread over a page, or all fibers
  // would compete for the same few sets of the caches.
  const std::size_t offset = fiber % 32 * 128;
  context.size = stack_bytes - offset;
  context.sp = memory_ + (fiber + 1) * stride_ - offset;
  return context;
}

Fiber::Fiber(const StackPool& pool, std::size_t number, std::function<void()> body)
    : body_(std::move(body)),
      inside_(std::allocator_arg, PooledStack{pool.stack(number)}, [this](boost::context::fiber&& caller) {
        outside_ = std::move(caller);
        body_();
        ended_ = true;
        return std::move(outside_);
      }) {}

Fiber::~Fiber() = default;

}  // namespace syncopate
