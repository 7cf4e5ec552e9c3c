// A configuration's text: it is refused, or what is written of it reads back to the same.
#include "lockstep/train/config.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  train::Config config;
  return {train::to_toml(config),
          "model = \"resnet18\" # a comment\noptim.lr = 1e-1\n[data]\ntrain = 'a b'\nflip = true\n",
          "[optim]\ndecay = \"step\"\nmilestones = [30, 60,\t80]\nfactor = 0.1\n"};
}

void one(std::span<const std::uint8_t> bytes) {
  train::Config config, again;
  train::apply_toml(config, text_of(bytes), "text");
  const std::string written = train::to_toml(config);
  train::apply_toml(again, written, "what was written");
  require_law(train::to_toml(again) == written, "what is written reads back to the same");
  config.data.train = "somewhere";
  train::resolve(config, 2);
  require_law(config.batch >= 2 * config.accumulate, "each rank's micro-batches have rows");
}

}  // namespace lockstep::fuzz
