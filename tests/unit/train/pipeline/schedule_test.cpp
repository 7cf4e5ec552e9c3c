#include <algorithm>
#include <catch2/catch.hpp>

#include "train/pipeline/schedule.hpp"

using namespace lockstep;
using namespace lockstep::train;
using config::PipelineOrder;

namespace {

using Lists = std::vector<std::vector<StagePiece>>;
constexpr PipelineOrder kinds[] = {PipelineOrder::gpipe, PipelineOrder::one_f_one_b};

Lists lists_of(PipelineOrder kind, const PipelineShape& shape) {
  Lists lists;
  for (std::size_t s = 0; s < shape.stages; ++s) lists.push_back(schedule_of_stage(kind, s, shape));
  return lists;
}

std::size_t most_in_flight(const std::vector<StagePiece>& list) {
  std::size_t now = 0, most = 0;
  for (const StagePiece& piece : list) {
    if (piece.what == StagePiece::Do::forward) most = std::max(most, ++now);
    if (piece.what == StagePiece::Do::backward) --now;
  }
  return most;
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
        REQUIRE(fault_in(lists, m) == "");
        for (std::size_t s = 0; s < n; ++s) {
          REQUIRE(most_in_flight(lists[s]) == slots_of_stage(kind, s, {n, m}));
          if (n > 1)
            REQUIRE(slots_of_stage(kind, s, {n, m}) ==
                    (kind == PipelineOrder::gpipe ? m : std::min(m, n - s)));
        }
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
    return fault_in(lists, shape.micro_batches);
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
