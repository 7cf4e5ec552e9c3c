// Fuzzes a configuration's text: it is an error, or the configuration is the same after it is
// written and read back.
#include "lockstep/config/config.hpp"
#include "tests/fuzz/target.hpp"

namespace lockstep::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all = {
      "model = \"resnet18\" # a comment\noptim.lr = 1e-1\n[data]\ntrain = 'a b'\nflip = true\n",
      "[optim]\ndecay = \"step\"\nmilestones = [30, 60,\t80]\nfactor = 0.1\n",
      "optim = {lr = 1_0.5, milestones = []}\nout = '''\na'b'''\nseed = 18446744073709551615\n",
      "\xEF\xBB\xBF[data]\r\n\"train\" = \"\\u00e9\\U0001F600\\n\\\"\"\r\n"};
  // Every key, some at a time: long inputs are slow, and most of them end at their first error.
  const std::string whole = config::to_toml({});
  constexpr std::size_t together = 300;
  std::string table, part;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t end = std::min(whole.find('\n', at), whole.size() - 1) + 1;
    const std::string line = whole.substr(at, end - at);
    at = end;
    if (line.starts_with('[')) table = line;
    part += line;
    if (part.size() < together && at < whole.size()) continue;
    all.push_back(part);
    part = table;
  }
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  config::Config config, again;
  config::apply_toml(config, text_of(bytes), "text");
  const std::string written = config::to_toml(config);
  config::apply_toml(again, written, "what was written");
  require_law(config::to_toml(again) == written, "what is written reads back to the same");
  config.data.train = "somewhere";
  config::resolve(config, 2);
  require_law(config.batch >= 2 * config.accumulate, "each rank's micro-batches have rows");
}

}  // namespace lockstep::fuzz
