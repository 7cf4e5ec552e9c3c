// Threads that requests share: whose turn it is, and how they end.
#include "serve/batching/readers.hpp"

#include <catch2/catch.hpp>

#include <future>
#include <memory>
#include <mutex>
#include <string>

using namespace lockstep::serve;

namespace {

/// Keeps steps that wait for it.
struct Gate {
  std::promise<void> promise;
  std::shared_future<void> opened = promise.get_future().share();
  std::promise<void> entered_promise;
  std::future<void> entered = entered_promise.get_future();
  void open() { promise.set_value(); }
  /// A step that ends when the gate is open.
  std::function<void()> step() {
    return [this] {
      entered_promise.set_value();
      opened.wait();
    };
  }
};

}  // namespace

TEST_CASE("a small request passes large ones, and these have their turns", "[serve]") {
  Flow blocker, large, other, small;
  Gate kept, begin;
  std::string order;
  std::promise<void> done;
  Readers readers(2, nullptr);
  readers.post(blocker, 0.001, kept.step());  // one thread is left
  kept.entered.wait();
  readers.post(blocker, 0.001, begin.step());
  begin.entered.wait();
  for (int i = 0; i < 3; ++i) readers.post(large, 0.02, [&] { order += 'l'; });
  for (int i = 0; i < 3; ++i) readers.post(other, 0.02, [&] { order += 'o'; });
  readers.post(small, 0.001, [&] { order += 's'; });
  Flow last;
  readers.post(last, 1, [&] { done.set_value(); });
  begin.open();
  done.get_future().wait();
  kept.open();
  CHECK(order == "slololo");
}

TEST_CASE("steps that take long never have all threads", "[serve]") {
  const std::size_t threads = GENERATE(1u, 2u, 3u);
  const std::size_t most_long = std::max<std::size_t>(threads, 2) - 1;
  std::vector<Gate> gates(most_long + 1);
  std::vector<Flow> flows(gates.size() + 1);
  Readers readers(threads, nullptr);
  for (std::size_t i = 0; i < gates.size(); ++i)
    readers.post(flows[i], 1 + static_cast<double>(i), gates[i].step());
  for (std::size_t i = 0; i < most_long; ++i) gates[i].entered.wait();
  std::promise<void> small;
  readers.post(flows.back(), 0.001, [&] { small.set_value(); });
  small.get_future().wait();
  CHECK(gates.back().entered.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  for (Gate& gate : gates) gate.open();
  gates.back().entered.wait();
}

TEST_CASE("a step that is forgotten is not done, and what it holds is given back", "[serve]") {
  Flow blocker, gone, stays;
  Gate first, second;
  Readers readers(2, nullptr);
  readers.post(blocker, 0.001, first.step());
  readers.post(blocker, 0.001, second.step());
  first.entered.wait();
  second.entered.wait();
  auto held = std::make_shared<int>(7);
  std::promise<void> done;
  bool was_done = false;
  readers.post(gone, 0.001, [held, &was_done] { was_done = true; });
  readers.post(stays, 0.001, [held, &done] { done.set_value(); });
  readers.forget(gone);
  CHECK(held.use_count() == 2);
  first.open();
  second.open();
  done.get_future().wait();
  CHECK(!was_done);
}

TEST_CASE("readers that stop wait for what has begun, but not for ever", "[serve]") {
  Flow flow, later;
  Gate gate;
  bool was_done = false;
  Readers readers(2, nullptr);
  readers.post(flow, 1, gate.step());
  gate.entered.wait();
  readers.post(later, 1, [&] { was_done = true; });
  CHECK(!readers.stop(0.01));
  gate.open();
  CHECK(readers.stop(60));
  CHECK(!was_done);
}
