#include <fmt/format.h>

#include "tests/support/laws/elements.hpp"

namespace lockstep::test {

using namespace laws;

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

std::string fault_of_channels(Communicator& world, Memory& memory) {
  constexpr int messages = 9;
  const int ranks = world.world(), rank = world.rank();
  const auto down = world.channel("down"), up = world.channel("up");
  const auto fill = [](int way, int message) {
    return [way, message](std::size_t i) { return small(way + 3 * message, i); };
  };
  std::vector<Array> from_above, from_below;
  const bool first = rank == 0, last = rank + 1 == ranks;
  for (int m = 0; m < messages; ++m) {
    const std::size_t count = m % 2 == 0 ? 70001 : 5;
    from_above.emplace_back(memory, ElementType::i32, count, fill(0, first ? m : messages));
    from_below.emplace_back(memory, ElementType::i32, count, fill(1, last ? m : messages));
  }
  // What comes up is asked for first, and comes last.
  if (!last)
    for (const Array& one : from_below) up->receive(one.all(), rank + 1, "up", up->network());
  const Array sum(memory, ElementType::i32, 70001, [](std::size_t) { return 1; });
  world.all_reduce(sum.all(), Reduction::sum, "sum", world.network());
  world.network().synchronize();
  for (const Array& one : from_above) {
    if (!first) down->receive(one.all(), rank - 1, "down", down->network());
    if (!last) down->send(one.all(), rank + 1, "down", down->network());
  }
  down->network().synchronize();
  if (!first)
    for (const Array& one : from_below) up->send(one.all(), rank - 1, "up", up->network());
  up->network().synchronize();
  std::string fault = sum.fault("sum", [&](std::size_t) { return ranks; });
  for (int m = 0; fault.empty() && m < messages; ++m) {
    const auto at = static_cast<std::size_t>(m);
    fault = from_above[at].fault("down", fill(0, m)) + from_below[at].fault("up", fill(1, m));
  }
  return fault;
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
