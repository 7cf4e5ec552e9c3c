// Runs a grid on one host thread: each of the grid's threads is a context with a separate stack,
// which runs until it reaches a barrier.
#include "tests/emulated/cuda/gpu.hpp"

#include <algorithm>
#include <csetjmp>
#include <exception>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <ucontext.h>

#include "lockstep/base/error.hpp"

namespace lockstep::emulated {

namespace {

constexpr std::size_t stack_bytes = std::size_t{64} << 10;

/// A stack that runs threads, one after the other, until one has to wait on it. makecontext()
/// enters the fiber; after that longjmp(), which makes no system call, switches in and out.
struct Fiber {
  std::jmp_buf place{};
  bool entered = false;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
};

enum class Wait { nothing, block, warp, over };

struct Thread {
  uint3 index{};
  Wait wait = Wait::nothing;
  Fiber* fiber = nullptr;
  std::source_location where;
  std::uint64_t given[2] =
      {};  // at this barrier and the one before, which a slower lane may still read
  bool turn = false;
};

class Block {
 public:
  Block(dim3 shape, const std::function<void()>& kernel)
      : threads_(std::size_t{shape.x} * shape.y * shape.z),
        order_(threads_.size()),
        kernel_(kernel) {
    blockDim = shape;
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    if (conditions().order == Order::reverse) std::reverse(order_.begin(), order_.end());
  }

  void run(uint3 index) {
    blockIdx = index;
    for (std::size_t t = 0; t < threads_.size(); ++t) {
      threads_[t] = {};
      threads_[t].index = {static_cast<unsigned>(t % blockDim.x),
                           static_cast<unsigned>(t / blockDim.x % blockDim.y),
                           static_cast<unsigned>(t / blockDim.x / blockDim.y)};
    }
    shuffle();
    for (started_ = 0; started_ < threads_.size();) resume(free_fiber());
    while (!all_over()) {
      release();
      shuffle();
      for (const std::size_t t : order_)
        if (threads_[t].wait == Wait::nothing) {
          begin(t);
          resume(threads_[t].fiber);
        }
    }
  }

  int meet(int value, const std::source_location& where) {
    any_ |= value;
    leave(Wait::block, where);
    return any_before_;
  }

  std::uint64_t meet_warp(unsigned lanes, std::uint64_t value, int xor_lane,
                          const std::source_location& where) {
    const std::size_t first = current_ / warp_lanes * warp_lanes, mine = current_ % warp_lanes;
    check(lanes == 0xffffffffu, "only whole warps are emulated");
    Thread& self = threads_[current_];
    self.turn = !self.turn;
    const bool turn = self.turn;
    self.given[turn] = value;
    leave(Wait::warp, where);
    return threads_.at(first + (mine ^ static_cast<std::size_t>(xor_lane))).given[turn];
  }

  /// What a fiber does: runs threads that have not started, while there are any.
  void run_threads() {
    while (started_ < threads_.size()) {
      begin(order_[started_++]);
      kernel_();
      threads_[current_].wait = Wait::over;
    }
  }

  std::exception_ptr failure;

 private:
  bool all_over() const {
    return std::all_of(threads_.begin(), threads_.end(),
                       [](const Thread& t) { return t.wait == Wait::over; });
  }

  void shuffle() {
    if (conditions().order == Order::shuffled) std::shuffle(order_.begin(), order_.end(), random_);
  }

  void begin(std::size_t t) {
    current_ = t;
    threadIdx = threads_[t].index;
  }

  static Fiber* free_fiber();
  void resume(Fiber* fiber);
  void leave(Wait wait, const std::source_location& where);

  [[noreturn]] static void refuse(const Thread& waiting, const std::string& why) {
    throw Error(fmt::format("thread {} of block {} waits in line {} of {}: {}", waiting.index.x,
                            blockIdx.x, waiting.where.line(), waiting.where.file_name(), why));
  }

  /// Called when no thread can continue: releases the warps whose lanes have all arrived, or if
  /// there are none, the block.
  void release() {
    bool released = false;
    for (std::size_t first = 0; first < threads_.size(); first += warp_lanes)
      released = release_warp(first) || released;
    if (released) return;
    const Thread* met = nullptr;
    for (const Thread& thread : threads_) {
      if (thread.wait == Wait::over) continue;
      if (thread.wait == Wait::warp) refuse(thread, "not all lanes of its warp arrive");
      if (met && met->where.line() != thread.where.line())
        refuse(thread, fmt::format("another thread waits in line {}", met->where.line()));
      met = &thread;
    }
    for (Thread& thread : threads_)
      if (thread.wait == Wait::block) thread.wait = Wait::nothing;
    any_before_ = std::exchange(any_, 0);
  }

  bool release_warp(std::size_t first) {
    const std::size_t last = std::min(first + warp_lanes, threads_.size());
    for (std::size_t t = first; t < last; ++t)
      if (threads_[t].wait != Wait::warp) return false;
    for (std::size_t t = first; t < last; ++t) {
      if (threads_[t].where.line() != threads_[first].where.line())
        refuse(threads_[t],
               fmt::format("another lane waits in line {}", threads_[first].where.line()));
      threads_[t].wait = Wait::nothing;
    }
    return true;
  }

  std::vector<Thread> threads_;
  std::vector<std::size_t> order_;  // in which threads run
  const std::function<void()>& kernel_;
  std::mt19937 random_{1};
  std::size_t started_ = 0, current_ = 0;
  int any_ = 0, any_before_ = 0;
};

/// Fibers outlive the blocks that they run: their stacks hold only one call of work().
struct Pool {
  std::vector<std::unique_ptr<Fiber>> all;
  std::vector<Fiber*> free;
  std::jmp_buf scheduler{};
  Fiber* current = nullptr;
  Block* block = nullptr;
};
Pool pool;

void back_to_scheduler() {
  if (_setjmp(pool.current->place) == 0) longjmp(pool.scheduler, 1);
}

void work() {
  for (;;) {
    try {
      pool.block->run_threads();
    } catch (...) {
      pool.block->failure = std::current_exception();
    }
    pool.free.push_back(pool.current);
    back_to_scheduler();
  }
}

Fiber* Block::free_fiber() {
  if (pool.free.empty()) {
    pool.all.push_back(std::make_unique<Fiber>());
    pool.free.push_back(pool.all.back().get());
  }
  Fiber* fiber = pool.free.back();
  pool.free.pop_back();
  return fiber;
}

void enter(Fiber& fiber) {
  if (_setjmp(pool.scheduler) != 0) return;  // the fiber has switched back
  pool.current = &fiber;
  if (std::exchange(fiber.entered, true)) longjmp(fiber.place, 1);
  ucontext_t context{};
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = stack_bytes;
  makecontext(&context, work, 0);
  setcontext(&context);
}

void Block::resume(Fiber* fiber) {
  enter(*fiber);
  if (failure) std::rethrow_exception(std::exchange(failure, nullptr));
}

void Block::leave(Wait wait, const std::source_location& where) {
  Thread& self = threads_[current_];
  self.wait = wait;
  self.where = where;
  self.fiber = pool.current;
  back_to_scheduler();
}

}  // namespace

Conditions& conditions() {
  static Conditions conditions;
  return conditions;
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& kernel) {
  gridDim = grid;
  std::vector<std::size_t> order(std::size_t{grid.x} * grid.y * grid.z);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (conditions().order == Order::reverse) std::reverse(order.begin(), order.end());
  if (conditions().order == Order::shuffled)
    std::shuffle(order.begin(), order.end(), std::mt19937(2));
  Block threads(block, kernel);
  pool.block = &threads;
  try {
    for (const std::size_t b : order)
      threads.run({static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                   static_cast<unsigned>(b / grid.x / grid.y)});
  } catch (...) {
    pool = {};  // waiting threads are still on their fibers' stacks
    throw;
  }
}

int meet_block(int value, const std::source_location& where) {
  return pool.block->meet(value, where);
}

std::uint64_t meet_warp(unsigned lanes, std::uint64_t value, int xor_lane,
                        const std::source_location& where) {
  return pool.block->meet_warp(lanes, value, xor_lane, where);
}

}  // namespace lockstep::emulated
