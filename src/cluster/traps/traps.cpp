#include "lockstep/cluster/traps/traps.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/traps/trap_table.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

std::vector<const Trap*> all_traps() {
  std::vector<const Trap*> all;
  for (const auto& part : {cuda_traps(), nccl_traps(), mpi_traps(), job_traps()})
    for (const Trap& trap : part) all.push_back(&trap);
  return all;
}

bool asked(const Trap& trap, TrapScope scope) {
  if (scope == TrapScope::certain) return trap.sure == Trap::Sure::certain;
  return scope == TrapScope::all || trap.reads == Trap::Reads::settings;
}

/// What follows the last `mark` in the line; empty where it has none.
std::string_view after(std::string_view line, std::string_view mark) {
  const std::size_t at = line.rfind(mark);
  return at == line.npos ? std::string_view() : line.substr(at + mark.size());
}

}  // namespace

std::string to_string(const TrapFinding& finding) {
  return fmt::format("{}: {} [{}, {}]", finding.text, finding.line, finding.trap, finding.report);
}

std::vector<TrapFinding> find_traps(const NodeLook& look, TrapScope scope) {
  std::vector<TrapFinding> found;
  for (const Trap* trap : all_traps()) {
    if (!asked(*trap, scope)) continue;
    if (auto trapped = trap->find(look))
      found.push_back({.trap = trap->name,
                       .text = std::move(trapped->text),
                       .line = std::move(trapped->line),
                       .report = trap->report,
                       .certain = trap->sure == Trap::Sure::certain});
  }
  return found;
}

std::vector<std::string> trap_names() {
  std::vector<std::string> names;
  for (const Trap* trap : all_traps()) names.emplace_back(trap->name);
  return names;
}

// "NCCL INFO Using network IB"; NCCL 2.4 says only what each network has found, the one that it
// takes last.
std::string nccl_network_in(std::string_view log) {
  std::string said, found;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(line.size() + 1, log.size()));
    if (line.find("NCCL INFO") == line.npos) continue;
    if (const auto name = after(line, "Using network "); !name.empty()) said = trimmed(name);
    if (const auto name = after(line, "NET/"); name.find(" : Using ") != name.npos)
      found = trimmed(name.substr(0, name.find(" : ")));
  }
  return said.empty() ? found : said;
}

std::optional<TrapFinding> judge_nccl_network(const NodeLook& look, std::string_view network) {
  if (network != "Socket" || !joins_nodes(look)) return std::nullopt;
  std::vector<std::string> better;
  for (const HcaFacts& hca : active_hcas(look)) better.push_back(hca.name);
  std::string line = exported("NCCL_NET", "IB");
  if (has_efa(look)) better.emplace_back("EFA"), line = exported("NCCL_NET_PLUGIN", "ofi");
  if (look.slingshot_cards > 0)
    better.emplace_back("Slingshot"), line = exported("NCCL_NET", "AWS Libfabric");
  if (better.empty()) return std::nullopt;
  return TrapFinding{
      .trap = "nccl-took-sockets",
      .text = fmt::format("NCCL took TCP sockets between the nodes although there is {}, which is "
                          "several times faster; this line makes NCCL say why",
                          join(better, ", ")),
      .line = line,
      .report = "eth-cscs/cscs-docs#75",
      .certain = true};
}

std::string exported(std::string_view name, std::string_view value) {
  return fmt::format("export {}={}", name, shell_word(value));
}

std::string unset(const std::vector<std::string>& names) { return "unset " + join(names, " "); }

bool NcclNames::selects(std::string_view name) const {
  const bool listed_here = std::ranges::any_of(
      names, [&](const std::string& one) { return exact ? name == one : name.starts_with(one); });
  return listed_here != without;
}

NcclNames read_nccl_names(std::string_view text) {
  NcclNames read;
  if (text.starts_with('^')) read.without = true, text.remove_prefix(1);
  if (text.starts_with('=')) read.exact = true, text.remove_prefix(1);
  for (const std::string& one : listed(std::string(text)))
    read.names.push_back(one.substr(0, one.find(':')));
  return read;
}

std::optional<int> open_mpi_major(const NodeLook& look) {
  constexpr std::string_view title = "Open MPI v";
  if (!look.mpi.starts_with(title)) return std::nullopt;
  const std::string_view version = std::string_view(look.mpi).substr(title.size());
  return whole_number<int>(version.substr(0, version.find('.')));
}

bool joins_nodes(const NodeLook& look) { return look.nodes > 1; }

bool joins_gpus(const NodeLook& look) { return look.gpus > 0 && look.world > 1; }

std::vector<HcaFacts> active_hcas(const NodeLook& look) {
  std::vector<HcaFacts> active;
  for (const HcaFacts& hca : look.hcas)
    if (hca.active && hca.driver != "efa") active.push_back(hca);
  return active;
}

bool has_efa(const NodeLook& look) {
  return std::ranges::any_of(look.hcas, [](const HcaFacts& hca) { return hca.driver == "efa"; });
}

std::vector<std::string> bridges(const NodeLook& look) {
  std::vector<std::string> found;
  for (const InterfaceFacts& one : look.interfaces)
    for (const char* kind : {"docker", "virbr", "br-", "veth", "cni", "lxc"})
      if (one.routed && one.name.starts_with(kind)) found.push_back(one.name);
  return found;
}

}  // namespace lockstep::cluster
