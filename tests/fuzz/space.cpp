// Fuzzes a search's space: it is an error, or each of its points is of values that its keys take,
// inside of their ranges.
#include "lockstep/study/search/space.hpp"

#include "lockstep/base/text/numbers.hpp"
#include "lockstep/config/keys.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  return {
      "[optim.lr]\nlow = 0.01\nhigh = 1\nlog = true\n",
      "[optim]\nrule.choices = ['sgd', 'lars']\n"
      "trust = {low = 0.0005, high = 0.01, log = true, when = 'optim.rule = lars'}\n",
      "[optim.warmup-epochs]\nlow = 0\nhigh = 5\ninteger = true\n[batch]\nchoices = [32, 64]\n",
      "[data.flip]\nchoices = ['true', 'false']\n[data.workers]\nlow = 1\nhigh = 8\nlog = true\n"
      "[optim.decay]\nchoices = ['cosine', 'poly']\n[optim.power]\nlow = 1\nhigh = 3.5\n"
      "when = 'optim.decay = poly|cosine'\n",
      "[seed]\nlow = 1\nhigh = 18446744073709551615\n[model-options.blocks]\n"
      "choices = ['1,1', '2,2']\n"};
}

void one(std::span<const std::uint8_t> bytes) {
  const study::SearchSpace space = study::read_space(text_of(bytes), "text");
  for (std::uint32_t index = 0; index < 8; ++index) {
    const study::PointValues point = study::point_of(space, study::PointSampler::random, 1, index);
    config::Config keys;
    for (const auto& [key, value] : point) config::set_key(keys, key, value);
    for (const study::Dimension& dimension : space.dimensions) {
      const auto value = real_number(point.at(dimension.key));
      if (!dimension.choices.empty() || dimension.when) continue;
      require_law(value && *value >= dimension.low && *value <= dimension.high,
                  "a point is inside of its ranges");
    }
  }
}

}  // namespace lockstep::fuzz
