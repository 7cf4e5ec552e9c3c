#include "lockstep/comm/split.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::comm {
namespace {

struct Wish {
  std::int32_t coloured = 0, colour = 0, key = 0, number = 0;
};
constexpr std::size_t wish_words = sizeof(Wish) / sizeof(std::int32_t);

}  // namespace

SplitGroup agree_on_split(Communicator& group, const std::vector<int>& members,
                          std::optional<int> colour, int key, std::string_view name,
                          std::int32_t number) {
  std::vector<Wish> wishes(static_cast<std::size_t>(group.world()));
  wishes[static_cast<std::size_t>(group.rank())] = {colour.has_value(), colour.value_or(0), key,
                                                    number};
  const std::string phase = fmt::format("the split into {}", name);
  group.all_gather({wishes.data(), wish_words * wishes.size(), ElementType::i32}, phase,
                   group.network());
  group.network().synchronize();
  SplitGroup made;
  for (std::size_t r = 0; r < wishes.size(); ++r) {
    require(wishes[r].coloured == 0 || wishes[r].colour >= 0,
            fmt::format("{}: rank {} has the colour {}; a colour is 0 or more", phase, members[r],
                        wishes[r].colour));
    made.number = std::max(made.number, wishes[r].number);
    if (colour && wishes[r].coloured != 0 && wishes[r].colour == *colour)
      made.ranks.push_back(static_cast<int>(r));
  }
  std::stable_sort(made.ranks.begin(), made.ranks.end(), [&](int a, int b) {
    return wishes[static_cast<std::size_t>(a)].key < wishes[static_cast<std::size_t>(b)].key;
  });
  return made;
}

}  // namespace lockstep::comm
