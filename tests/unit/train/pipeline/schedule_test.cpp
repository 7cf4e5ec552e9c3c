#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "lockstep/train/pipeline/schedule.hpp"

using namespace lockstep;
using namespace lockstep::train;
using config::PipelineOrder;

namespace {

using Lists = std::vector<std::vector<StagePiece>>;
constexpr PipelineOrder kinds[] = {PipelineOrder::gpipe, PipelineOrder::one_f_one_b,
                                   PipelineOrder::zb_h1};

Lists lists_of(PipelineOrder kind, const PipelineShape& shape) {
  Lists lists;
  for (std::size_t s = 0; s < shape.stages; ++s) lists.push_back(schedule_of_stage(kind, s, shape));
  return lists;
}

/// Micro-batches between those two pieces, at most.
std::size_t most_between(const std::vector<StagePiece>& list, StagePiece::Do first,
                         StagePiece::Do last) {
  std::size_t now = 0, most = 0;
  for (const StagePiece& piece : list) {
    if (piece.what == first) most = std::max(most, ++now);
    if (piece.what == last) --now;
  }
  return most;
}

/// Until all stages have ended, where forward, data gradients and weight gradients take 1 each and
/// messages nothing.
std::size_t time_of(const Lists& lists) {
  using enum StagePiece::Do;
  std::vector<std::size_t> now(lists.size()), next(lists.size());
  std::map<std::tuple<StagePiece::Do, std::size_t, std::size_t>, std::size_t> given;
  const auto advance = [&](std::size_t s) {
    const StagePiece& piece = lists[s][next[s]];
    const bool down = piece.what == take_values;
    if (down || piece.what == take_gradients) {
      const auto came =
          given.find({down ? give_values : give_gradients, down ? s - 1 : s + 1, piece.micro});
      if (came == given.end()) return false;
      now[s] = std::max(now[s], came->second);
    }
    if (piece.what == forward || piece.what == weight_gradients) now[s] += 1;
    const bool apart =
        std::ranges::find(lists[s], weight_gradients, &StagePiece::what) != lists[s].end();
    if (piece.what == backward) now[s] += apart ? 1 : 2;
    given[{piece.what, s, piece.micro}] = now[s];
    ++next[s];
    return true;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t s = 0; s < lists.size(); ++s)
      while (next[s] < lists[s].size() && advance(s)) moved = true;
  }
  return *std::ranges::max_element(now);
}

/// The place in the list of that piece.
std::size_t place(const std::vector<StagePiece>& list, StagePiece::Do what, std::size_t micro) {
  const auto found = std::ranges::find_if(
      list, [&](const StagePiece& piece) { return piece.what == what && piece.micro == micro; });
  REQUIRE(found != list.end());
  return static_cast<std::size_t>(found - list.begin());
}

}  // namespace

TEST_CASE("each schedule of up to 8 stages and 32 micro-batches ends, in order", "[pipeline]") {
  for (const PipelineOrder kind : kinds)
    for (std::size_t n = 1; n <= 8; ++n)
      for (std::size_t m = 1; m <= 32; ++m) {
        INFO(choice_name(kind) << ", " << n << " stages, " << m << " micro-batches");
        const Lists lists = lists_of(kind, {n, m});
        REQUIRE(fault_in(kind, lists, m) == "");
        for (std::size_t s = 0; s < n; ++s) {
          using enum StagePiece::Do;
          const bool apart = kind == PipelineOrder::zb_h1 && s > 0;
          REQUIRE(most_between(lists[s], forward, apart ? weight_gradients : backward) ==
                  slots_of_stage(kind, s, {n, m}));
          REQUIRE(late_in_stage(kind, s, {n, m}) ==
                  (apart ? most_between(lists[s], backward, weight_gradients) : 0));
          if (n > 1)
            REQUIRE(slots_of_stage(kind, s, {n, m}) == std::min(m, kind == PipelineOrder::gpipe ? m
                                                                   : apart                      ? n
                                                                           : n - s));
        }
      }
}

TEST_CASE("a step's time is that of its first micro-batch through all stages, and of the others",
          "[pipeline]") {
  for (std::size_t n = 1; n <= 8; ++n)
    for (std::size_t m = 1; m <= 32; ++m) {
      INFO(n << " stages, " << m << " micro-batches");
      for (const PipelineOrder kind : {PipelineOrder::gpipe, PipelineOrder::one_f_one_b})
        REQUIRE(time_of(lists_of(kind, {n, m})) == 3 * (m + n - 1));
      const std::size_t apart = time_of(lists_of(PipelineOrder::zb_h1, {n, m}));
      if (m >= n) REQUIRE(apart == 3 * m + n - 1);  // a third of the idle time
      REQUIRE(apart <= 3 * (m + n - 1));
    }
}

TEST_CASE("one stage alone accumulates: forward and backward in turn", "[pipeline]") {
  for (const PipelineOrder kind : kinds) {
    const std::vector<StagePiece> list = schedule_of_stage(kind, 0, {1, 5});
    REQUIRE(list.size() == 10);
    for (std::size_t i = 0; i < list.size(); ++i) {
      CHECK(list[i].what == (i % 2 == 0 ? StagePiece::Do::forward : StagePiece::Do::backward));
      CHECK(list[i].micro == i / 2);
      CHECK(list[i].slot == 0);
    }
  }
}

TEST_CASE("a wrong list is found, and what is wrong is said", "[pipeline]") {
  using enum StagePiece::Do;
  const PipelineShape shape{4, 6};
  const auto said = [&](const auto& change) {
    Lists lists = lists_of(PipelineOrder::one_f_one_b, shape);
    change(lists);
    return fault_in(PipelineOrder::one_f_one_b, lists, shape.micro_batches);
  };
  using Catch::Contains;
  const auto swapped = [](std::vector<StagePiece>& list, std::size_t a, std::size_t b) {
    std::swap(list[a], list[b]);
  };
  CHECK_THAT(said([&](Lists& lists) {
               std::vector<StagePiece>& list = lists[3];
               swapped(list, place(list, backward, 1), place(list, backward, 2));
             }),
             Contains("stage 3: backward of micro-batch 2 is out of order"));
  CHECK_THAT(said([&](Lists& lists) {  // torchgpipe's order
               lists = lists_of(PipelineOrder::gpipe, shape);
               for (std::vector<StagePiece>& list : lists)
                 for (StagePiece& piece : list)
                   if (piece.what >= take_gradients)
                     piece.micro = piece.slot = shape.micro_batches - 1 - piece.micro;
             }),
             Contains("backward of micro-batch 5 comes before that of an earlier one"));
  CHECK_THAT(said([&](Lists& lists) { lists[1].erase(lists[1].end() - 1); }),
             Contains("stage 0: take_gradients of micro-batch 5 waits for ever"));
  CHECK_THAT(said([&](Lists& lists) {
               for (StagePiece& piece : lists[0])
                 if (piece.micro == 2) piece.slot = 0;
             }),
             Contains("stage 0: forward of micro-batch 2 fills a slot that is full"));
  CHECK_THAT(said([&](Lists& lists) {
               for (StagePiece& piece : lists[2])
                 if (piece.micro == 1) piece.slot = 0;
             }),
             Contains("stage 2: take_values of micro-batch 1 fills a slot that is full"));
  CHECK_THAT(said([&](Lists& lists) {
               std::vector<StagePiece>& list = lists[2];
               list[place(list, take_values, 1)].micro = 2;
             }),
             Contains("meets another micro-batch"));
  CHECK_THAT(said([&](Lists& lists) {  // it waits for what needs its own message
               std::vector<StagePiece>& list = lists[1];
               swapped(list, place(list, take_gradients, 0), place(list, give_values, 0));
             }),
             Contains("waits for ever"));
  CHECK_THAT(said([&](Lists& lists) {
               lists[0].push_back({give_gradients, 0, 0});
             }),
             Contains("has no other side"));
  CHECK_THAT(said([&](Lists& lists) {
               for (std::vector<StagePiece>& list : lists)
                 std::erase_if(list, [](const StagePiece& piece) { return piece.micro == 5; });
             }),
             Contains("stage 0 ends without all of micro-batch 5"));
}

TEST_CASE("weight gradients that come too late, never, twice or out of order are found",
          "[pipeline]") {
  using enum StagePiece::Do;
  const PipelineShape shape{4, 6};
  const auto said = [&](const auto& change) {
    Lists lists = lists_of(PipelineOrder::zb_h1, shape);
    change(lists[2]);
    return fault_in(PipelineOrder::zb_h1, lists, shape.micro_batches);
  };
  using Catch::Contains;
  using List = std::vector<StagePiece>;
  const auto take = [](List& list, std::size_t micro) {
    const auto at =
        list.begin() + static_cast<std::ptrdiff_t>(place(list, weight_gradients, micro));
    const StagePiece piece = *at;
    list.erase(at);
    return piece;
  };
  CHECK_THAT(said([&](List& list) { take(list, 5); }),
             Contains("stage 2 ends without all of micro-batch 5"));
  CHECK_THAT(said([&](List& list) {
               std::swap(list[place(list, weight_gradients, 4)],
                         list[place(list, weight_gradients, 5)]);
             }),
             Contains("weight_gradients of micro-batch 5 comes before that of an earlier one"));
  CHECK_THAT(said([&](List& list) {
               list.push_back({weight_gradients, 5, 5 % 4});
             }),
             Contains("weight_gradients of micro-batch 5 is out of order"));
  CHECK_THAT(said([&](List& list) {  // it frees the slot of the next micro-batch
               const StagePiece piece = take(list, 0);
               list.insert(
                   list.begin() + static_cast<std::ptrdiff_t>(place(list, give_gradients, 3)) + 1,
                   piece);
             }),
             Contains("stage 2: take_values of micro-batch 4 fills a slot that is full"));
  CHECK_THAT(said([&](List& list) {
               const StagePiece piece = take(list, 2);
               list.insert(
                   list.begin() + static_cast<std::ptrdiff_t>(place(list, give_gradients, 5)) + 1,
                   piece);
             }),
             Contains("stage 2: backward of micro-batch 5 leaves too many weight gradients"));
  CHECK_THAT(said([&](List& list) {
               const StagePiece piece = take(list, 0);
               list.insert(list.begin() + static_cast<std::ptrdiff_t>(place(list, backward, 0)),
                           piece);
             }),
             Contains("stage 2: weight_gradients of micro-batch 0 is out of order"));
}
