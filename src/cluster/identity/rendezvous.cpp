#include "lockstep/cluster/identity/rendezvous.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <sstream>

#include "cluster/identity/launchers.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/cluster/identity/ask_slurm.hpp"

namespace lockstep::cluster {
namespace {

using File = Owned<int, close, -1>;

constexpr std::string_view title = "lockstep meeting 1";
// Below the range from which Linux takes ports for outgoing connections.
constexpr std::uint64_t first_port = 20000, port_count = 8000, ports_tried = 16;
constexpr std::size_t max_card_bytes = 4096;
constexpr std::string_view card_name = "meeting-";
constexpr std::time_t young_s = 60;  // another node may not see its lock

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view doing) {
  throw InputError(fmt::format("{}: {}: {}", path.string(), doing, std::strerror(errno)));
}

/// Spreads jobs and steps over the ports; SplitMix64's last step.
std::uint64_t mixed(std::string_view text) {
  std::uint64_t value = 0x9e3779b97f4a7c15;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0xbf58476d1ce4e5b9;
  return value ^ (value >> 31);
}

std::filesystem::path directory(const EnvLookup& env) {
  if (const auto given = env("LOCKSTEP_RENDEZVOUS_DIR"); given && !given->empty()) return *given;
  const auto home = env("HOME");
  if (!home || home->empty())
    throw LaunchError(
        "HOME is not set: set LOCKSTEP_RENDEZVOUS_DIR to a directory that all nodes see");
  return std::filesystem::path(*home) / ".lockstep";
}

/// Which ranks are where, when the step's variables cover the whole world.
void place_ranks(const EnvLookup& env, const RankInfo& info, MeetingPlace& place) {
  place.nodes = expand_hosts(env("SLURM_STEP_NODELIST").value_or(""));
  place.ranks_on_node = tasks_per_node(env("SLURM_STEP_TASKS_PER_NODE").value_or(""));
  int ranks = 0;
  for (const int here : place.ranks_on_node) ranks += here;
  if (place.nodes.size() == place.ranks_on_node.size() && ranks == info.world) return;
  place.nodes.clear();
  place.ranks_on_node.clear();
}

/// Those of starts that were killed before they could remove them.
void remove_dead_cards(const std::filesystem::path& folder) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    if (!entry.path().filename().string().starts_with(card_name)) continue;
    const File handle(open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat facts {};
    if (!handle || fstat(handle.get(), &facts) != 0 || facts.st_uid != geteuid()) continue;
    if (time(nullptr) - facts.st_mtime < young_s) continue;
    if (flock(handle.get(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
}

std::string text_of(const MeetingCard& card) {
  std::string text = fmt::format("{}\n", title);
  for (const std::uint8_t byte : card.secret) text += fmt::format("{:02x}", byte);
  text += fmt::format("\n{}\n", card.port);
  for (const std::string& host : card.hosts) text += host + '\n';
  return text;
}

std::optional<MeetingCard> parse_card(const std::string& text) {
  std::istringstream lines(text);
  std::string line, secret;
  MeetingCard card;
  if (!std::getline(lines, line) || line != title || !std::getline(lines, secret))
    return std::nullopt;
  const auto found = parse_secret(secret);
  if (!found) return std::nullopt;
  card.secret = *found;
  if (!(lines >> card.port)) return std::nullopt;
  for (lines >> std::ws; std::getline(lines, line);) card.hosts.push_back(line);
  return card;
}

}  // namespace

std::optional<MeetingSecret> parse_secret(std::string_view digits) {
  MeetingSecret secret{};
  if (digits.size() != 2 * secret.size()) return std::nullopt;
  for (std::size_t i = 0; i < secret.size(); ++i) {
    const char* byte = digits.data() + 2 * i;
    if (std::from_chars(byte, byte + 2, secret[i], 16).ptr != byte + 2) return std::nullopt;
  }
  return secret;
}

std::optional<MeetingPlace> meeting_place(const EnvLookup& env, const RankInfo& info) {
  if (meets_by_address(env, info)) return address_place(env, info);
  if (info.authority != Authority::slurm) return std::nullopt;
  const auto said = [&](std::string_view name, std::string_view otherwise) {
    return env(name).value_or(std::string(otherwise));
  };
  MeetingPlace place;
  // The parts of a heterogeneous job have separate numbers; SLURM_HET_JOB_ID is that of the whole.
  place.job = fmt::format("{}/{}.{}/{}", said("SLURM_CLUSTER_NAME", "cluster"),
                          said("SLURM_HET_JOB_ID", said("SLURM_JOB_ID", "0")),
                          said("SLURM_STEP_ID", "0"), said("SLURM_RESTART_COUNT", "0"));
  std::string name = std::string(card_name) + place.job;
  for (char& c : name)
    if (c == '/') c = '-';
  place.file = directory(env) / name;
  for (std::uint64_t i = 0; i < ports_tried; ++i)
    place.ports.push_back(
        static_cast<std::uint16_t>(first_port + (mixed(place.job) + i) % port_count));
  place.node = said("SLURMD_NODENAME", info.host);
  place_ranks(env, info, place);
  return place;
}

void check_folder(const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  const bool made = mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
  if (made && access(folder.c_str(), W_OK | X_OK) == 0) return;
  throw LaunchError(
      fmt::format("{}: the ranks meet here, but it cannot be {}: {} "
                  "(LOCKSTEP_RENDEZVOUS_DIR names another)",
                  folder.string(), made ? "written" : "created", std::strerror(errno)));
}

File leave_card(const std::filesystem::path& file, const MeetingCard& card) {
  check_folder(file);
  const std::filesystem::path folder = file.parent_path();
  remove_dead_cards(folder);
  const std::filesystem::path temporary = file.string() + fmt::format(".{}", getpid());
  unlink(temporary.c_str());
  File handle(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!handle) refuse(temporary, "cannot be created");
  flock(handle.get(), LOCK_EX | LOCK_NB);  // some file systems have no locks: then age decides
  const std::string text = text_of(card);
  const bool written = write_all(handle.get(), text.data(), text.size()) == text.size() &&
                       fsync(handle.get()) == 0 && rename(temporary.c_str(), file.c_str()) == 0;
  if (written) return handle;
  const int reason = errno;
  unlink(temporary.c_str());
  errno = reason;
  refuse(file, "cannot be written");
}

void remove_card(const std::filesystem::path& file, const std::array<std::uint8_t, 16>& secret) {
  try {
    const auto card = read_card(file);
    if (card && card->secret == secret) unlink(file.c_str());
  } catch (const InputError&) {
    // It is another user's, or cannot be read.
  }
}

std::optional<MeetingCard> read_card(const std::filesystem::path& file) {
  const File handle(open_regular(file, O_NOFOLLOW));
  if (!handle) {
    if (errno == ENOENT || errno == ESTALE) return std::nullopt;
    refuse(file, "cannot be read");
  }
  struct stat facts {};
  if (fstat(handle.get(), &facts) != 0) refuse(file, "cannot be examined");
  require(facts.st_uid == geteuid() && (facts.st_mode & 077) == 0,
          fmt::format("{}: belongs to another user, or others may read it, so it is not a "
                      "secret: remove it, and keep its directory to yourself (chmod 700)",
                      file.string()));
  std::string text(max_card_bytes, '\0');
  const std::size_t got = read_all(handle.get(), text.data(), text.size());
  if (got < text.size() && errno != 0) refuse(file, "cannot be read");
  text.resize(got);
  return parse_card(text);
}

}  // namespace lockstep::cluster
