#include "train/decide/decide.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/cluster/topology/machine.hpp"

namespace lockstep::train {
namespace {

using backend::Winograd;
using Json = nlohmann::ordered_json;

/// What earlier runs have measured; empty where there is nothing that can be read.
Json read_cache(const std::string& cache) {
  std::error_code none;
  if (cache.empty() || !std::filesystem::exists(cache, none)) return Json::object();
  Json known = Json::parse(read_text(cache), nullptr, false);
  return known.is_object() ? known : Json::object();
}

/// A list that an earlier run has left, or nothing.
std::optional<Winograd> look_up(const std::string& cache, const std::string& key) try {
  const Json known = read_cache(cache);
  const auto found = known.find(key);
  if (found == known.end() || !found->is_string()) return std::nullopt;
  return backend::parse_winograd(found->get<std::string>(), cache);
} catch (const InputError& error) {
  log::warn(fmt::format("{}: measured again", error.what()));
  return std::nullopt;
}

/// Keeps the list, unless another run was faster: then returns that one's.
Winograd keep(const std::string& cache, const std::string& key, const Winograd& measured) try {
  if (cache.empty()) return measured;
  if (const auto other = look_up(cache, key)) return *other;
  make_directories(std::filesystem::path(cache).parent_path());
  Json known = read_cache(cache);
  known[key] = to_string(measured);
  write_text_atomically(cache, known.dump(1) + "\n");
  return measured;
} catch (const Error& error) {
  log::warn(fmt::format("the next run will measure convolutions again: {}", error.what()));
  return measured;
}

Winograd fastest(const RunSpec& spec, backend::Backend& backend, const nn::Network& network,
                 const backend::ProgramSpec& program) {
  const config::Config& config = spec.config;
  if (config.deterministic) return {Winograd::Mode::everywhere, {}};
  // From some rows on, more of them change nothing: so runs with other batches choose alike.
  constexpr std::size_t many_rows = 8;
  constexpr int kernels = 2;  // a larger number has all measured again
  const std::string key = fmt::format(
      "{}; {}; {} {} {}x{}; {}; kernels {}", cluster::look_at_machine().model,
      backend.description(), config.model, to_string(config.precision), network.input.height,
      network.input.width,
      program.batch >= many_rows ? "many rows" : fmt::format("{} rows", program.batch), kernels);
  if (const auto known = look_up(spec.algorithm_cache, key)) return *known;
  return keep(spec.algorithm_cache, key, backend.measure_winograd(network, program));
}

/// A list may come from the run of another network or of other data.
void require_shapes(const Winograd& asked, const nn::Network& network) {
  for (const auto& [shape, passes] : asked.list) {
    const backend::WinogradShape wanted = shape;
    const bool there = std::ranges::any_of(network.nodes, [&](const nn::Node& node) {
      if (node.op != nn::Op::conv || node.kernel != 3 || node.stride != 1 || node.groups > 1)
        return false;
      const nn::Shape& input = network.nodes[node.inputs.front()].shape;
      return wanted == backend::WinogradShape{.in = input.channels,
                                              .out = node.shape.channels,
                                              .height = input.height,
                                              .width = input.width};
    });
    require(there, fmt::format("winograd = {} would have no effect: {} has no convolution of 3 x 3 "
                               "from {} to {} channels on {} x {} here; --winograd auto decides by "
                               "the network",
                               to_string(asked), network.name, shape.in, shape.out, shape.height,
                               shape.width));
  }
}

}  // namespace

Winograd choose_winograd(const StartSetting& setting, const nn::Network& network,
                         const backend::ProgramSpec& program) {
  const config::Config& config = setting.spec.config;
  backend::Backend& backend = setting.backend;
  const Winograd& asked = config.winograd;
  const bool missing = !backend.offers_winograd(config.precision);
  if (setting.control.any(missing, "choice of convolutions")) {
    require(
        !asked.decided() || asked.mode == Winograd::Mode::never,
        fmt::format("winograd = {} would have no effect: every rank needs a CPU with AVX-512 for "
                    "fp32, with AVX512-BF16 but not AMX for bf16; here the backend is {}, the "
                    "precision {}. --winograd auto decides by that",
                    to_string(asked), backend.name(), to_string(config.precision)));
    const bool may_offer = config.precision == backend::Precision::fp32 ||
                           config.precision == backend::Precision::bf16;
    return may_offer && backend.name() == "cpu" ? Winograd{} : asked;
  }
  require_shapes(asked, network);
  if (asked.decided()) return asked;
  if (setting.resume) {
    const config::Config before = written_config(*setting.resume);
    if (before.precision == config.precision) return before.winograd;
  }
  std::string text;
  if (setting.control.rank() == 0) {
    text = to_string(fastest(setting.spec, backend, network, program));
    log::info(fmt::format("convolutions by Winograd's algorithm (--winograd false: none): {}",
                          text == "false" ? "none is faster so" : text));
  }
  return backend::parse_winograd(setting.control.broadcast(text, "choice of convolutions"),
                                 "rank 0's choice");
}

}  // namespace lockstep::train
