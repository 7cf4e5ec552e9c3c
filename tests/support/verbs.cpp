#include "tests/support/verbs.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "lockstep/base/error.hpp"

namespace lockstep::test {
namespace {

using comm::Communicator;
using comm::Elements;
using comm::ElementType;
using comm::Reduction;

constexpr ElementType every_type[] = {ElementType::f32, ElementType::f16, ElementType::bf16,
                                      ElementType::i32, ElementType::i64, ElementType::i8};
const char* name_of(ElementType type) {
  constexpr const char* names[] = {"f32", "f16", "bf16", "i32", "i64", "i8"};
  return names[static_cast<std::size_t>(type)];
}

template <class Value>
void put(std::byte* to, Value value) {
  std::memcpy(to, &value, sizeof value);
}
template <class Value>
double get(const std::byte* from) {
  Value value;
  std::memcpy(&value, from, sizeof value);
  return static_cast<double>(value);
}

void encode(std::byte* to, ElementType type, double value) {
  switch (type) {
    case ElementType::f32:
      return put(to, static_cast<float>(value));
    case ElementType::f16:
      return put(to, static_cast<_Float16>(value));
    case ElementType::bf16:  // only for values that it holds exactly
      return put(to, static_cast<std::uint16_t>(
                         std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case ElementType::i32:
      return put(to, static_cast<std::int32_t>(value));
    case ElementType::i64:
      return put(to, static_cast<std::int64_t>(value));
    case ElementType::i8:
      return put(to, static_cast<std::int8_t>(value));
  }
}

double decode(const std::byte* from, ElementType type) {
  switch (type) {
    case ElementType::f32:
      return get<float>(from);
    case ElementType::f16:
      return get<_Float16>(from);
    case ElementType::bf16: {
      std::uint16_t bits;
      std::memcpy(&bits, from, sizeof bits);
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    case ElementType::i32:
      return get<std::int32_t>(from);
    case ElementType::i64:
      return get<std::int64_t>(from);
    case ElementType::i8:
      return get<std::int8_t>(from);
  }
  return std::numeric_limits<double>::quiet_NaN();
}

/// Small integers, different on each rank and in each place: eight of them add up to less than 2^7,
/// which every type holds exactly.
double small(int rank, std::size_t i) {
  return static_cast<double>((i * 7 + static_cast<std::size_t>(rank) * 13) % 31) - 15;
}

using Formula = std::function<double(std::size_t)>;

/// Elements in the communicator's memory, and one more that no collective may touch.
class Array {
 public:
  Array(Memory& memory, ElementType type, std::size_t count, const Formula& value)
      : memory_(memory), type_(type), count_(count) {
    std::vector<std::byte> bytes((count + 1) * comm::bytes_of(type));
    for (std::size_t i = 0; i <= count; ++i)
      encode(bytes.data() + i * comm::bytes_of(type), type, i < count ? value(i) : guard);
    data_ = memory.copy_in(bytes);
  }
  Elements all() const { return {data_.get(), count_, type_}; }
  /// What is wrong with the elements from `first` on; nothing if they have these values.
  std::string fault(std::string_view what, const Formula& wanted, std::size_t first = 0,
                    std::size_t size = std::numeric_limits<std::size_t>::max()) const {
    const auto bytes = memory_.copy_out(data_.get(), (count_ + 1) * comm::bytes_of(type_));
    const auto value = [&](std::size_t i) {
      return decode(bytes.data() + i * comm::bytes_of(type_), type_);
    };
    for (std::size_t i = first;
         i < std::min(count_, size == ~std::size_t{0} ? count_ : first + size); ++i)
      if (!(value(i) == wanted(i)))
        return fmt::format("{} of {} {}: element {} is {} instead of {}", what, count_,
                           name_of(type_), i, value(i), wanted(i));
    if (value(count_) != guard)
      return fmt::format("{} of {} {}: wrote after the end", what, count_, name_of(type_));
    return {};
  }

 private:
  static constexpr double guard = 77;
  Memory& memory_;
  ElementType type_;
  std::size_t count_;
  std::shared_ptr<void> data_;
};

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

/// What `call` throws as Kind; empty when it throws nothing.
template <class Kind>
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Kind& error) {
    return error.what();
  }
  return {};
}

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

std::string fault_of_messages(Communicator& world, Memory& memory) {
  const int ranks = world.world(), rank = world.rank();
  std::vector<Array> given, taken;
  std::vector<int> from;
  const auto fill = [](int who, int message) {
    return [who, message](std::size_t i) { return small(who + 3 * message, i); };
  };
  // Everybody gives three messages to everybody.
  world.together([&] {
    for (int message = 0; message < 3; ++message)
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const std::size_t count = message == 1 ? 70001 : 11;
        given.emplace_back(memory, ElementType::i32, count, fill(rank, message));
        world.send(given.back().all(), peer, "to all", world.network());
        taken.emplace_back(memory, ElementType::i32, count, fill(0, 0));
        world.receive(taken.back().all(), peer, "from all", world.network());
        from.push_back(peer);
      }
  });
  // Then a chain, whose links begin only when the one before has ended.
  const Array chain(memory, ElementType::f32, 70001, fill(rank, 0));
  if (rank > 0) world.receive(chain.all(), rank - 1, "chain", world.network());
  if (rank + 1 < ranks) world.send(chain.all(), rank + 1, "chain", world.network());
  world.network().synchronize();
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const int message = static_cast<int>(i) / std::max(1, ranks - 1);
    const std::string fault = taken[i].fault("message", fill(from[i], message));
    if (!fault.empty()) return fault;
  }
  return chain.fault("chain", fill(0, 0));
}

std::string fault_of_rounding(Communicator& world, Memory& memory) {
  const int ranks = world.world();
  for (const auto& [type, first] :
       {std::pair{ElementType::bf16, 256.0}, std::pair{ElementType::f16, 2048.0}}) {
    // Beyond `first` only even numbers exist: adding 1 in 16 bits, rank by rank, would change
    // nothing.
    const double exact = first + ranks - 1;
    const double wanted = 2 * std::nearbyint(exact / 2);
    const double large = first;
    for (int at = 0; at < ranks; ++at) {
      const Array data(memory, type, 40001,
                       [&](std::size_t) { return world.rank() == at ? large : 1.0; });
      world.all_reduce(data.all(), Reduction::sum, "sums", world.network());
      world.network().synchronize();
      const auto fault =
          data.fault("sum", [&](std::size_t) { return ranks == 1 ? large : wanted; });
      if (!fault.empty()) return fault;
    }
  }
  return {};
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

std::string fault_of_arguments(Communicator& world, Memory& memory) {
  const int ranks = world.world();
  const Array data(memory, ElementType::f32, 12 * static_cast<std::size_t>(ranks) + 1,
                   [](std::size_t) { return 1; });
  device::Stream& network = world.network();
  struct Wrong {
    const char* what;
    std::function<void()> call;
    std::string words;
  };
  std::vector<Wrong> wrongs{
      {"a root after the last rank", [&] { world.broadcast(data.all(), ranks, "b", network); },
       fmt::format("b: rank {} is outside of this group of {}", ranks, ranks)},
      {"a negative root", [&] { world.broadcast(data.all(), -1, "b", network); },
       fmt::format("b: rank -1 is outside of this group of {}", ranks)},
      {"a peer outside", [&] { world.send(data.all(), ranks, "s", network); },
       fmt::format("s: rank {} is outside of this group of {}", ranks, ranks)},
      {"a source outside", [&] { world.receive(data.all(), -2, "r", network); },
       fmt::format("r: rank -2 is outside of this group of {}", ranks)},
      {"a sum of 8 bits",
       [&] {
         world.all_reduce({data.all().data, 4, ElementType::i8}, Reduction::sum, "e", network);
       },
       "e: elements of 8 bits have no sum"},
      {"a maximum of 8 bits",
       [&] {
         world.reduce_scatter({data.all().data, 0, ElementType::i8}, Reduction::max, "e", network);
       },
       "e: elements of 8 bits have no sum"},
  };
  if (ranks > 1) {
    const auto unequal = fmt::format(
        ": {} elements cannot be cut into one equal chunk for each of {}", data.all().count, ranks);
    wrongs.push_back({"unequal shares",
                      [&] { world.reduce_scatter(data.all(), Reduction::sum, "shares", network); },
                      "shares" + unequal});
    wrongs.push_back({"unequal chunks", [&] { world.all_gather(data.all(), "chunks", network); },
                      "chunks" + unequal});
    wrongs.push_back({"a rank itself", [&] { world.send(data.all(), world.rank(), "s", network); },
                      fmt::format("s: rank {} would exchange data with itself", world.rank())});
    wrongs.push_back({"no memory",
                      [&] {
                        world.all_reduce({nullptr, 3}, Reduction::sum, "n", network);
                      },
                      "n: there is no memory for 3 elements"});
  }
  for (const Wrong& wrong : wrongs) {
    const std::string said = error_of<Error>(wrong.call);
    if (!said.starts_with(wrong.words)) return fmt::format("{}: \"{}\"", wrong.what, said);
  }
  const std::string said = error_of<InputError>([&] { world.split(-4, world.rank(), "colours"); });
  if (said.find("the split into colours: rank ") != 0 ||
      said.find("has the colour -4") == said.npos)
    return fmt::format("a negative colour: \"{}\"", said);
  world.all_reduce(data.all(), Reduction::sum, "after errors", network);
  network.synchronize();
  return data.fault("sum after errors", [&](std::size_t) { return ranks; });
}

}  // namespace lockstep::test
