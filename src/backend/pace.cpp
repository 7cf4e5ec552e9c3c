#include "lockstep/backend/pace.hpp"

#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/backend/preflight.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"

namespace lockstep::backend {
namespace {

using Json = nlohmann::json;

const Json& at(const Json& object, const char* key, const std::string& where) {
  require(object.is_object() && object.contains(key),
          fmt::format("{} has no '{}': measure it with this lockstep: bench train --layers --json",
                      where, key));
  return object[key];
}

double time_ms(const Json& object, const char* key, const std::string& where) {
  const Json& value = at(object, key, where);
  require(value.is_number() && value.get<double>() >= 0,
          fmt::format("{}: '{}' is not a time", where, key));
  return value.get<double>();
}

std::size_t count(const Json& object, const char* key, const std::string& where) {
  const Json& value = at(object, key, where);
  require(value.is_number_unsigned() && value.get<std::size_t>() > 0,
          fmt::format("{}: '{}' is not a count", where, key));
  return value.get<std::size_t>();
}

std::string text(const Json& value, const std::string& where) {
  require(value.is_string(), where + " is not text");
  return value.get<std::string>();
}

MeasuredPace parse_tape(const Json& json, const std::string& origin) {
  MeasuredPace pace;
  pace.origin = origin;
  pace.model = text(at(json, "model", origin), origin + ": 'model'");
  pace.rows = count(json, "batch", origin) / count(json, "ranks", origin);
  require(pace.rows > 0, origin + ": 'batch' has less than a row for each rank");
  pace.forward_steps = count(json, "forward_steps", origin);
  pace.update_ms = time_ms(json, "update_ms", origin);
  const Json& tape = at(json, "tape", origin);
  require(tape.is_array(), origin + ": 'tape' is not a list");
  for (std::size_t i = 0; i < tape.size(); ++i) {
    const std::string where = fmt::format("{}, step {} of the tape", origin, i + 1);
    MeasuredPace::Step step{
        text(at(tape[i], "name", where), where + ": 'name'"), time_ms(tape[i], "ms", where), {}};
    const Json& tensors = at(tape[i], "final", where);
    require(tensors.is_array(), where + ": 'final' is not a list");
    for (const Json& tensor : tensors) step.final_tensors.push_back(text(tensor, where));
    pace.tape.push_back(std::move(step));
  }
  return pace;
}

}  // namespace

std::string describe(const Pace& pace) {
  struct Words {
    std::string operator()(const LinePace& line) const {
      return fmt::format("{} ms a row and {} ms a step", line.row_ms, line.step_ms);
    }
    std::string operator()(const GpuPace& gpu) const {
      return fmt::format("{} at {} of its rates", gpu.name, gpu.efficiency);
    }
    std::string operator()(const MeasuredPace& tape) const {
      return fmt::format("the tape in {}", tape.origin);
    }
  };
  return std::visit(Words(), pace);
}

Pace read_pace(const std::filesystem::path& path, double efficiency) {
  const std::string origin = path.string(), content = read_text(path);
  const Json json = Json::parse(content, nullptr, false);
  require(json.is_object(), origin +
                                " is not a JSON object: give a tape that bench train --layers "
                                "--json wrote, or a GPU's profile");
  if (!json.contains("deviceName")) return parse_tape(json, origin);
  const GpuProfile gpu = parse_gpu_profile(content, origin);
  require(gpu.rates && gpu.rates->bandwidth > 0 && gpu.rates->fp32 > 0 && gpu.rates->tf32 > 0 &&
              gpu.rates->bf16 > 0 && gpu.rates->fp16 > 0,
          origin + " lacks a rate under 'rates': bandwidth, fp32, tf32, bf16 and fp16");
  return GpuPace{.name = gpu.name, .rates = *gpu.rates, .efficiency = efficiency};
}

}  // namespace lockstep::backend
