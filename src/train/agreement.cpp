#include "lockstep/train/agreement.hpp"

#include <fmt/format.h>

#include <vector>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/config/keys.hpp"
#include "train/pipeline/pipeline.hpp"

namespace lockstep::train {
namespace {

struct Option {
  std::string name, value;
};

std::vector<Option> shared_options(const config::Config& config) {
  std::vector<Option> options;
  for (const config::ConfigKey& key : config::config_keys())
    if (!key.of_a_node) options.push_back({key.name, key.get(config)});
  return options;
}

/// Of the weights in their plain form.
std::string plain_hash(const backend::Parameters& parameters) {
  std::uint32_t hash = 0;
  std::vector<float> plain;
  const std::vector<nn::Slice>& slices = parameters.layout().slices;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    plain.resize(slices[s].tensor.count());
    parameters.export_slice(backend::Part::weights, s, plain);
    hash = crc32c(plain.data(), plain.size() * sizeof(float), hash);
  }
  return fmt::format("{:08x}", hash);
}

}  // namespace

void require_same_options(const config::Config& config, comm::Control& control) {
  const std::vector<Option> options = shared_options(config);
  std::string all;
  for (const Option& option : options) all += option.name + '=' + option.value + '\n';
  const std::string hash = fmt::format("{:08x}", crc32c(all.data(), all.size()));
  if (comm::disagreement(control, hash, "options").empty()) return;
  std::vector<std::string> found;
  for (const Option& option : options) {
    const std::string who = comm::disagreement(control, option.value, "options");
    if (!who.empty()) found.push_back(fmt::format("{} is {}", option.name, who));
  }
  throw InputError(
      fmt::format("the ranks were started with different options: {}", join(found, "; ")));
}

void require_same_data(const data::DataSet& rows, const std::string& what, comm::Control& control) {
  const data::DataSetInfo& info = rows.info();
  const std::string facts =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {}", static_cast<int>(info.encoding),
                  info.height, info.width, info.channels, choice_name(info.element),
                  say_no_data(info), say_shaping(info.shaping), choice_name(info.task),
                  join(info.classes, "\n"), join(info.mean, " "), join(info.stddev, " "),
                  join(info.target_mean, " "), join(info.target_stddev, " "), info.rows_hash);
  const std::uint32_t hash = crc32c(facts.data(), facts.size());
  const std::string who =
      comm::disagreement(control, fmt::format("{} rows ({:08x})", info.rows, hash), what);
  require(who.empty(), fmt::format("{}: the ranks see different data: {}", what, who));
}

void require_same_form(const backend::Parameters& parameters, const backend::Backend& backend,
                       const Pipeline& pipeline, comm::Control& control) {
  const std::string stored = pipeline.of_all_stages(fmt::format("{:08x}", parameters.hash()));
  if (comm::disagreement(control, stored, "form of the weights").empty()) return;
  // Weights that differ themselves are what an audit tells.
  const std::string plain = pipeline.of_all_stages(plain_hash(parameters));
  if (!comm::disagreement(control, plain, "form of the weights").empty()) return;
  throw InputError(fmt::format(
      "the ranks keep weights in different orders, so they cannot be summed, because their "
      "processors or libraries differ: {}; set ONEDNN_MAX_CPU_ISA on all ranks to what all have "
      "(such as AVX2), or use nodes of one kind",
      comm::disagreement(control, backend.description(), "form of the weights")));
}

}  // namespace lockstep::train
