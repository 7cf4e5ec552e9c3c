#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/start/meeting_options.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/table.hpp"
#include "lockstep/cluster/identity/walltime.hpp"
#include "lockstep/comm/worlds/world.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;
using cluster::to_string;

Json as_json(const std::optional<int>& number) { return number ? Json(*number) : Json(); }

Json as_json(const cluster::Claim& claim) {
  return {{"source", to_string(claim.source)},
          {"rank", as_json(claim.rank)},
          {"world", as_json(claim.world)},
          {"local_rank", as_json(claim.local_rank)},
          {"local_size", as_json(claim.local_size)},
          {"node", claim.node},
          {"said", claim.said},
          {"taken", claim.taken},
          {"why", claim.why}};
}

Json as_json(const cluster::RankInfo& info, const std::string& wrong, const std::string& note) {
  Json claims = Json::array();
  for (const cluster::Claim& claim : info.claims) claims.push_back(as_json(claim));
  return {{"rank", info.rank},
          {"world", info.world},
          {"local_rank", info.local_rank},
          {"local_size", info.local_size},
          {"host", info.host},
          {"authority", to_string(info.authority)},
          {"wrong", wrong},
          {"note", note},
          {"claims", std::move(claims)}};
}

std::string cell(const Json& value) {
  if (value.is_string()) return value.get<std::string>().empty() ? "-" : value.get<std::string>();
  return value.is_null() ? "-" : value.dump();
}

std::string rank_as_text(const Json& rank) {
  std::vector<std::vector<std::string>> rows{
      {"source", "rank", "world", "local rank", "local size", "node", "verdict"}};
  for (const Json& claim : rank["claims"]) {
    std::vector<std::string> row;
    for (const char* key : {"source", "rank", "world", "local_rank", "local_size", "node"})
      row.push_back(cell(claim[key]));
    row.push_back(fmt::format("{}: {}", claim["taken"].get<bool>() ? "taken" : "ignored",
                              claim["why"].get<std::string>()));
    rows.push_back(std::move(row));
  }
  const std::string who =
      fmt::format("rank {} of {}, local rank {} of {}, on {}, says {}\n", rank["rank"].dump(),
                  rank["world"].dump(), rank["local_rank"].dump(), rank["local_size"].dump(),
                  cell(rank["host"]), cell(rank["authority"]));
  return rows.size() > 1 ? who + table(rows) : who;
}

/// What the ranks say under `key`. Equal texts of several ranks are shown once.
std::string remarks(const Json& ranks, const char* key, const char* title) {
  std::vector<std::pair<std::string, std::string>> said;
  for (const Json& rank : ranks) {
    const std::string remark = rank[key];
    if (remark.empty()) continue;
    if (!said.empty() && said.back().first == remark)
      said.back().second += "," + rank["rank"].dump();
    else
      said.emplace_back(remark, rank["rank"].dump());
  }
  std::string text;
  for (const auto& [remark, who] : said)
    text += fmt::format("rank {}: {}: {}\n", who, title, remark);
  return text;
}

void print(const Json& ranks, const std::string& met_by, bool json) {
  std::string text;
  if (json) {
    text =
        json_text(Json{{"mpi", comm::mpi_library().name}, {"met_by", met_by}, {"ranks", ranks}}, 2);
  } else {
    for (const Json& rank : ranks) text += rank_as_text(rank) + '\n';
    text += remarks(ranks, "note", "note");
    text += remarks(ranks, "wrong", "WRONG");
    text += fmt::format("{}; the ranks met by: {}", comm::mpi_library().name, met_by);
  }
  log::text(text);
}

/// Joins the ranks as every command does. Returns what is wrong with the launch, which this command
/// shows together with what the ranks were told. Throws what kept ranks that have a place to meet
/// from that.
std::string try_to_start(Launch& launch, double deadline_s) {
  try {
    launch.start(deadline_s);
    return "";
  } catch (const InputError& error) {
    if (!launch.control && cluster::meeting_place(cluster::process_environment(), launch.rank))
      throw;
    return error.what();
  }
}

int run(Launch& launch, bool json, double deadline_s) {
  const cluster::EnvLookup env = cluster::process_environment();
  launch.rank = cluster::identify(env, std::nullopt);
  std::string note = cluster::describe_endless_yields(env);
  if (note.empty()) note = cluster::describe_service_links(env);
  const std::string wrong = cluster::launched(env) ? try_to_start(launch, deadline_s) : "";
  const bool by_mpi =
      launch.control && launch.tensors && launch.tensors->world() == launch.control->world();
  const char* met_by = !launch.control ? "nothing" : by_mpi ? "MPI" : "TCP, without MPI";
  const std::string mine = json_text(as_json(launch.rank, wrong, note));
  std::vector<std::string> texts{mine};
  bool all_right = wrong.empty();
  if (launch.control) {
    texts = launch.control->gather_at_root(mine, "who is who");
    all_right = !launch.control->any(!wrong.empty(), "who is who");
  }
  Json ranks = Json::array();
  for (const std::string& text : texts) ranks.push_back(Json::parse(text));
  print(ranks, met_by, json);
  return all_right ? status_done : status_bad_input;
}

}  // namespace

Command add_whoami(Arguments root) {
  struct Options {
    bool json = false;
    double deadline_s = 60;
  };
  auto options = std::make_shared<Options>();
  Arguments app = root.add_command(
      "whoami",
      "Show who each rank is: what the launcher's variables and MPI say, what is used, what is "
      "ignored and why. Exit status 2 when they contradict each other, with the line to change.");
  add_meeting(app);
  app.add_flag("--json", options->json, "print JSON");
  app.add("--comm.deadline-s,--deadline-s", options->deadline_s,
          "how long to wait for the other ranks")
      .within(1.0, 1e6)
      .shows_default();
  return {app,
          [options](Launch& launch) { return run(launch, options->json, options->deadline_s); }};
}

}  // namespace lockstep::app
