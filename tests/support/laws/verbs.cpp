#include "tests/support/laws/verbs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "lockstep/base/error.hpp"
#include "tests/support/laws/elements.hpp"

namespace lockstep::test {

using namespace laws;
namespace {

/// A way to cut the world into groups.
struct Cut {
  const char* name;
  std::function<std::optional<int>(int rank, int world)> colour;
  int direction = 1;  ///< of the keys
};

const std::vector<Cut>& every_cut() {
  static const std::vector<Cut> cuts{
      {"all together", [](int, int) { return 0; }},
      {"alternating", [](int rank, int) { return rank % 2; }},
      {"halves", [](int rank, int world) { return 7 * (2 * rank / world); }},
      {"one each", [](int rank, int) { return rank; }},
      {"some without",
       [](int rank, int) { return rank % 3 == 1 ? std::nullopt : std::optional(4); }},
      {"backwards", [](int, int) { return 3; }, -1},
  };
  return cuts;
}

/// A group and, by rank in it, the ranks of the world that it must have.
struct Group {
  std::unique_ptr<Communicator> communicator;
  std::vector<int> members;
  Communicator* operator->() const { return communicator.get(); }
};

Group cut_out(Communicator& world, const Cut& cut) {
  const auto colour = cut.colour(world.rank(), world.world());
  Group group{world.split(colour, cut.direction * world.rank(), cut.name), {}};
  for (int rank = 0; colour && rank < world.world(); ++rank)
    if (cut.colour(rank, world.world()) == colour) group.members.push_back(rank);
  if (cut.direction < 0) std::reverse(group.members.begin(), group.members.end());
  return group;
}

std::string fault_of_place(const Communicator& world, const Group& group, const char* name) {
  if (group.members.empty())
    return group.communicator ? fmt::format("{}: a rank without a colour is in a group", name) : "";
  if (!group.communicator) return fmt::format("{}: a rank with a colour is in no group", name);
  const auto me = std::find(group.members.begin(), group.members.end(), world.rank());
  const auto rank = static_cast<int>(me - group.members.begin());
  const auto ranks = static_cast<int>(group.members.size());
  if (group->rank() == rank && group->world() == ranks) return {};
  return fmt::format("{}: is rank {} of {} instead of {} of {}", name, group->rank(),
                     group->world(), rank, ranks);
}

double combined(const std::vector<int>& members, Reduction reduction, std::size_t i) {
  double result = small(members[0], i);
  for (std::size_t m = 1; m < members.size(); ++m) {
    const double value = small(members[m], i);
    result = reduction == Reduction::sum ? result + value : std::max(result, value);
  }
  return result;
}

/// One group's tests of one type and length; stops at the first fault.
class Trial {
 public:
  Trial(Communicator& world, const Group& group, Memory& memory, ElementType type,
        std::size_t count)
      : group_(group), memory_(memory), type_(type), count_(count), mine_(world.rank()) {}

  std::string run() {
    std::string fault;
    for (const Reduction reduction : {Reduction::sum, Reduction::max}) {
      if (type_ == ElementType::i8) break;  // fault_of_arguments()
      if (fault.empty()) fault = all_reduce(reduction);
      if (fault.empty()) fault = reduce_scatter(reduction);
    }
    if (fault.empty()) fault = all_gather();
    for (int root = 0; root < group_->world() && fault.empty(); ++root) fault = broadcast(root);
    if (fault.empty()) fault = pass_round();
    return fault;
  }

 private:
  double own(std::size_t i) const { return small(mine_, i); }
  std::size_t ranks() const { return group_.members.size(); }
  std::size_t rank() const { return static_cast<std::size_t>(group_->rank()); }
  Array array(std::size_t count) const {
    return {memory_, type_, count, [this](std::size_t i) { return own(i); }};
  }

  std::string all_reduce(Reduction reduction) {
    const Array data = array(count_);
    group_->all_reduce(data.all(), reduction, "sums", group_->network());
    group_->network().synchronize();
    return data.fault("all-reduce",
                      [&](std::size_t i) { return combined(group_.members, reduction, i); });
  }

  std::string reduce_scatter(Reduction reduction) {
    const Array data = array(count_ * ranks());
    group_->reduce_scatter(data.all(), reduction, "shares", group_->network());
    group_->network().synchronize();
    return data.fault(
        "reduce-scatter", [&](std::size_t i) { return combined(group_.members, reduction, i); },
        rank() * count_, count_);
  }

  std::string all_gather() {
    const Array data = array(count_ * ranks());
    group_->all_gather(data.all(), "chunks", group_->network());
    group_->network().synchronize();
    return data.fault("all-gather",
                      [&](std::size_t i) { return small(group_.members[i / count_], i); });
  }

  std::string broadcast(int root) {
    const Array data = array(count_);
    group_->broadcast(data.all(), root, "weights", group_->network());
    group_->network().synchronize();
    const int from = group_.members[static_cast<std::size_t>(root)];
    return data.fault(fmt::format("broadcast from {}", root),
                      [&](std::size_t i) { return small(from, i); });
  }

  /// Each rank gives to the next and takes from the previous one.
  std::string pass_round() {
    const Array given = array(count_), taken = array(count_);
    const int next = (group_->rank() + 1) % group_->world();
    const int previous = (group_->rank() + group_->world() - 1) % group_->world();
    group_->together([&] {
      group_->send(given.all(), next, "round", group_->network());
      group_->receive(taken.all(), previous, "round", group_->network());
    });
    group_->network().synchronize();
    const int from = group_.members[static_cast<std::size_t>(previous)];
    const std::string fault = taken.fault("receive", [&](std::size_t i) { return small(from, i); });
    return fault.empty() ? given.fault("send", [&](std::size_t i) { return own(i); }) : fault;
  }

  const Group& group_;
  Memory& memory_;
  ElementType type_;
  std::size_t count_;
  int mine_;
};

}  // namespace

std::shared_ptr<void> HostMemory::copy_in(const std::vector<std::byte>& bytes) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes);
  return {copy, copy->data()};
}

std::vector<std::byte> HostMemory::copy_out(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  return {from, from + bytes};
}

std::string fault_of_verbs(Communicator& world, Memory& memory) {
  for (const Cut& cut : every_cut()) {
    const Group group = cut_out(world, cut);
    std::string fault = fault_of_place(world, group, cut.name);
    if (!fault.empty() || !group.communicator) {
      if (!fault.empty()) return fault;
      continue;
    }
    // The last length takes several messages for each chunk; two cuts are enough for it.
    std::vector<std::size_t> counts{0, 1, 7, 1025};
    if (&cut - every_cut().data() < 2) counts.push_back(65537 + 2);
    for (const ElementType type : every_type)
      for (const std::size_t count : counts) {
        fault = Trial(world, group, memory, type, count).run();
        if (!fault.empty()) return fmt::format("{}: {}", cut.name, fault);
      }
  }
  return {};
}

std::string fault_of_groups_together(Communicator& world, Memory& memory) {
  const int ranks = world.world(), rank = world.rank();
  const int width = ranks % 2 == 0 ? 2 : 1;  // of a row
  const auto row = world.split(rank / width, rank, "rows");
  const auto column = world.split(rank % width, rank, "columns");
  std::vector<int> everyone, mates, peers;
  for (int r = 0; r < ranks; ++r) {
    everyone.push_back(r);
    if (r / width == rank / width) mates.push_back(r);
    if (r % width == rank % width) peers.push_back(r);
  }
  std::mt19937 lengths(5), pauses(static_cast<unsigned>(rank));
  std::vector<Array> in_rows, in_columns, in_both;
  const auto add = [&](std::vector<Array>& arrays, std::size_t count) -> Elements {
    return arrays
        .emplace_back(memory, ElementType::f32, count,
                      [&](std::size_t i) { return small(rank, i); })
        .all();
  };
  device::Stream& network = world.network();
  for (int i = 0; i < 30; ++i) {
    const std::size_t count = lengths() % (i % 5 == 0 ? 90000 : 3000) + 1;
    row->all_reduce(add(in_rows, count), Reduction::sum, "a", network);
    column->all_reduce(add(in_columns, count), Reduction::sum, "b", network);
    const auto chunk = static_cast<std::size_t>(lengths() % 20000 + 1);
    const Elements both = add(in_both, chunk * mates.size());
    row->reduce_scatter(both, Reduction::sum, "c", network);
    column->all_reduce(both.part(chunk * static_cast<std::size_t>(row->rank()), chunk),
                       Reduction::sum, "d", network);
    row->all_gather(both, "e", network);
    for (unsigned calls = pauses() % 4; calls > 0; --calls) column->progress();
  }
  network.synchronize();
  std::string fault;
  const auto look = [&](const std::vector<Array>& arrays, const std::vector<int>& members,
                        const char* what) {
    for (const Array& array : arrays)
      if (fault.empty())
        fault =
            array.fault(what, [&](std::size_t i) { return combined(members, Reduction::sum, i); });
  };
  look(in_rows, mates, "sum over a row");
  look(in_columns, peers, "sum over a column");
  look(in_both, everyone, "sum over rows, then columns");
  return fault;
}

std::string fault_of_nested_groups(Communicator& world, Memory& memory) {
  const Group half = cut_out(world, every_cut()[2]);
  const auto pair = half->split(half->rank() / 2, half->rank(), "pairs");
  std::vector<int> members;
  for (std::size_t i = 0; i < half.members.size(); ++i)
    if (static_cast<int>(i) / 2 == half->rank() / 2) members.push_back(half.members[i]);
  const Array data(memory, ElementType::i64, 3001,
                   [&](std::size_t i) { return small(world.rank(), i); });
  pair->all_reduce(data.all(), Reduction::sum, "sums", pair->network());
  pair->network().synchronize();
  std::string fault = data.fault(
      "sum over pairs", [&](std::size_t i) { return combined(members, Reduction::sum, i); });
  if (!fault.empty()) return fault;

  const auto alone = pair->split(pair->rank(), 0, "alone");
  const Elements nowhere{nullptr, 12, ElementType::f32};  // no one may look at it
  device::Stream& network = alone->network();
  alone->all_reduce(nowhere, Reduction::sum, "nothing", network);
  alone->reduce_scatter(nowhere, Reduction::max, "nothing", network);
  alone->all_gather(nowhere, "nothing", network);
  alone->broadcast(nowhere, 0, "nothing", network);
  alone->together([&] {
    alone->send(nowhere, 0, "nothing", network);
    alone->receive(nowhere, 0, "nothing", network);
  });
  network.synchronize();
  return alone->world() == 1 && alone->rank() == 0 ? "" : "a group of one has other ranks";
}

}  // namespace lockstep::test
