#include "lockstep/liveness/post_mortem.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/ending_names.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/liveness/process_state.hpp"

namespace lockstep::liveness {
namespace {

constexpr std::array states{"not heard of", "present", "ended", "missing"};  // by standing

std::filesystem::path room_in(const std::filesystem::path& directory) {
  return directory / ".post-mortem";
}

/// Where ranks are gone or do not move, the state of their processes says more.
Ending ending_of(const Roster& roster, const Cause& cause) {
  if (!is_an_effect(cause.ending)) return cause.ending;
  for (const Ending worse : {Ending::file_system, Ending::lost_rank})
    for (const Roster::Entry& entry : roster.ranks())
      if (entry.trouble.ending == worse) return worse;
  return cause.ending;
}

}  // namespace

std::string post_mortem(const Roster& roster, const Cause& cause, int told_by) {
  using Json = nlohmann::ordered_json;
  const auto tenths = [](double seconds) { return std::round(seconds * 10) / 10; };
  Json ranks = Json::array();
  for (const Roster::Entry& entry : roster.ranks()) {
    const std::size_t rank = ranks.size();
    const bool lost = std::count(cause.missing.begin(), cause.missing.end(), rank) > 0;
    Json one{{"rank", rank}, {"host", entry.host}};
    one["state"] = lost ? "missing" : states.at(static_cast<std::size_t>(entry.standing));
    if (lost && entry.standing == Roster::Standing::present) one["silent"] = true;
    if (entry.standing != Roster::Standing::unheard) {
      one["step"] = entry.activity.step;
      one["phase"] = to_string(entry.activity.phase);
      if (entry.activity.phase == Phase::reduction) {
        one["bucket"] = entry.activity.bucket;
        one["bytes"] = entry.activity.bytes;
      }
      one["waiting_for_others"] = entry.activity.waiting;
      one["silent_s"] = tenths(roster.clock_s() - entry.heard_s);
      one["unmoved_s"] = tenths(roster.clock_s() - entry.moved_s);
      if (entry.starved_s > 0) one["not_scheduled_s"] = tenths(entry.starved_s);
      if (!entry.trouble.text.empty()) one["process"] = entry.trouble.text;
    }
    ranks.push_back(std::move(one));
  }
  Json all{{"time", fmt::format("{:%FT%TZ}", fmt::gmtime(std::time(nullptr)))},
           {"reason", cause.reason},
           {"ending", choice_name(ending_of(roster, cause))},
           {"told_by_rank", told_by},
           {"missing", cause.missing}};
  if (!cause.leave_out.empty()) all["leave_out"] = join(cause.leave_out, ",");
  // On the node of rank `told_by`.
  if (const std::uint64_t kills = memory_kills(); kills > 0) all["memory_kills"] = kills;
  all["ranks"] = std::move(ranks);
  return json_text(all, 2) + "\n";
}

void write_post_mortem(const std::filesystem::path& directory, int told_by,
                       const std::string& text) {
  const SpareDescriptors spare;
  const std::string of_rank = told_by == 0 ? "" : fmt::format("-rank{}", told_by);
  const std::filesystem::path path = directory / fmt::format("post-mortem{}.json", of_rank);
  const std::filesystem::path room = room_in(directory);
  try {
    write_text_atomically(path, text);
  } catch (const std::exception&) {
    if (told_by != 0 || !std::filesystem::exists(room)) throw;
    write_into_room(room, path, text);
  }
  if (told_by == 0) release_post_mortem(directory);  // a launcher may kill this process now
}

void reserve_post_mortem(const std::filesystem::path& directory, int world) {
  constexpr std::size_t of_all = 8192, of_a_rank = 512;
  reserve_room(room_in(directory), of_all + of_a_rank * static_cast<std::size_t>(world));
}

void release_post_mortem(const std::filesystem::path& directory) {
  std::filesystem::remove(room_in(directory));
}

}  // namespace lockstep::liveness
