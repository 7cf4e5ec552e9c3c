#include "lockstep/liveness/roster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/nodes.hpp"
namespace lockstep::liveness {
namespace {

// A node that was overloaded so long ago tells nothing about now.
constexpr double recent_s = 60;

// A shorter one is normal where cores are busy.
constexpr double long_s = 2;

/// Says of the first ranks what `one` says, and which the others are: a fault of a node or of the
/// network concerns many, and a message has a limit.
std::string describe_each(const std::vector<int>& ranks,
                          const std::function<std::string(int rank)>& one) {
  constexpr std::size_t most = 20;
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < std::min(most, ranks.size()); ++i) texts.push_back(one(ranks[i]));
  if (ranks.size() > most)
    texts.push_back("and " + comm::rank_list({ranks.begin() + most, ranks.end()}));
  return join(texts, ", ");
}

}  // namespace

Roster::Roster(std::vector<std::string> hosts) : ranks_(hosts.size()) {
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    ranks_[rank].host = std::move(hosts[rank]);
}

void Roster::pass(double seconds) { clock_s_ += seconds; }

void Roster::heard(int rank, const Activity& activity) {
  Entry& entry = ranks_.at(static_cast<std::size_t>(rank));
  if (entry.standing == Standing::unheard || activity.movements != entry.activity.movements)
    entry.moved_s = clock_s_;
  if (entry.standing == Standing::unheard || activity.step != entry.activity.step)
    entry.stepped_s = clock_s_;
  entry.standing = Standing::present;
  entry.activity = activity;
  entry.heard_s = clock_s_;
  entry.excused_s = 0;
  entry.trouble = {};
}

void Roster::starved(int rank, double seconds) {
  Entry& self = ranks_.at(static_cast<std::size_t>(rank));
  if (seconds > self.starved_s || clock_s_ - self.starved_to_s > recent_s) {
    self.starved_s = seconds;
    self.starved_to_s = clock_s_;
  }
  for (Entry& entry : ranks_) {
    if (entry.host != self.host) continue;
    const double from_s = std::max({clock_s_ - seconds, entry.heard_s, entry.excused_to_s});
    entry.excused_s += std::max(clock_s_ - from_s, 0.0);
    entry.excused_to_s = clock_s_;
  }
}

void Roster::seen(int rank, Trouble trouble) {
  ranks_.at(static_cast<std::size_t>(rank)).trouble = std::move(trouble);
}

double Roster::excuse_s(const Entry& entry, double timeout_s) const {
  const bool was_starved = entry.heard_s - entry.starved_to_s <= recent_s;
  return std::min(entry.excused_s + (was_starved ? entry.starved_s : 0), timeout_s);
}

void Roster::left(int rank) { ranks_.at(static_cast<std::size_t>(rank)).standing = Standing::left; }

void Roster::broke(int rank) {
  ranks_.at(static_cast<std::size_t>(rank)).standing = Standing::broke;
}

std::vector<int> Roster::missing(double timeout_s) const {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Entry& entry = ranks_[rank];
    const double silent_s = clock_s_ - entry.heard_s - excuse_s(entry, timeout_s);
    const bool silent = entry.standing == Standing::present && silent_s > timeout_s;
    if (silent || entry.standing == Standing::broke) found.push_back(static_cast<int>(rank));
  }
  return found;
}

std::vector<int> Roster::never_heard() const {
  std::vector<int> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].standing == Standing::unheard) found.push_back(static_cast<int>(rank));
  return found;
}

std::optional<int> Roster::neighbour(int rank, double within_s) const {
  std::optional<int> best;
  double heard_s = clock_s_ - within_s;
  const std::string& host = ranks_.at(static_cast<std::size_t>(rank)).host;
  for (std::size_t other = 0; other < ranks_.size(); ++other) {
    const Entry& entry = ranks_[other];
    if (static_cast<int>(other) == rank || entry.host != host) continue;
    if (entry.standing != Standing::present || entry.heard_s < heard_s) continue;
    heard_s = entry.heard_s;
    best = static_cast<int>(other);
  }
  return best;
}

bool Roster::stuck(double than_s) const {
  bool waited = false;
  for (const Entry& entry : ranks_) {
    if (entry.standing != Standing::present) continue;
    if (clock_s_ - entry.moved_s <= than_s) return false;
    waited = waited || entry.activity.waiting;
  }
  return waited;
}

bool Roster::all_wait(double than_s) const {
  return std::all_of(ranks_.begin(), ranks_.end(), [&](const Entry& entry) {
    return entry.standing == Standing::present && entry.activity.waiting &&
           clock_s_ - entry.moved_s > than_s;
  });
}

std::vector<int> Roster::late(double than_s) const {
  std::vector<int> working, behind;
  std::uint64_t newest = 0;
  bool waited = false;
  for (const Entry& entry : ranks_)
    if (entry.standing == Standing::present) newest = std::max(newest, entry.activity.step);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const Entry& entry = ranks_[i];
    if (entry.standing != Standing::present || clock_s_ - entry.moved_s <= than_s) continue;
    const int rank = static_cast<int>(i);
    if (!entry.activity.waiting) working.push_back(rank);
    if (entry.activity.waiting) waited = true;
    if (entry.activity.step < newest) behind.push_back(rank);
  }
  if (!waited) return {};
  return working.empty() ? behind : working;
}

std::vector<int> Roster::nearer(double within_s) const {
  std::uint64_t newest = 0;
  for (const Entry& entry : ranks_)
    if (entry.standing == Standing::present) newest = std::max(newest, entry.activity.step);
  std::vector<int> found;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const Entry& entry = ranks_[rank];
    if (entry.standing == Standing::present && entry.activity.step < newest &&
        clock_s_ - entry.stepped_s <= within_s)
      found.push_back(static_cast<int>(rank));
  }
  return found;
}

std::optional<comm::Absence> Roster::absence(double silent_s, double unmoved_s) const {
  if (!never_heard().empty()) return std::nullopt;
  std::vector<int> gone = missing(silent_s);
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
    if (ranks_[rank].standing == Standing::left) gone.push_back(static_cast<int>(rank));
  std::sort(gone.begin(), gone.end());
  if (!gone.empty())
    return comm::Absence{gone, "missing: " + describe_missing(gone), Ending::lost_rank};
  const std::vector<int> behind = late(unmoved_s);
  if (!behind.empty()) {
    const bool writing = std::all_of(behind.begin(), behind.end(), [this](int rank) {
      const Activity& activity = ranks_[static_cast<std::size_t>(rank)].activity;
      return activity.on_files || (activity.phase == Phase::checkpoint && !activity.waiting);
    });
    return comm::Absence{behind,
                         "the others wait for " + describe_late(behind) +
                             (writing ? ": does the file system of the run answer?" : ""),
                         writing ? Ending::file_system : Ending::stuck};
  }
  if (const std::vector<int> some = nearer(unmoved_s); !some.empty())
    return comm::Absence{{},
                         "the others wait for " + describe_late(some) + ", which make steps",
                         Ending::stuck,
                         true};
  return comm::Absence{{},
                       "all ranks are alive and none is late: does the network between them work?",
                       Ending::network};
}

std::string Roster::describe_missing(const std::vector<int>& ranks) const {
  return describe_each(ranks, [this](int rank) {
    const Entry& entry = ranks_.at(static_cast<std::size_t>(rank));
    const double silent_s = clock_s_ - entry.heard_s;
    const bool present = entry.standing == Standing::present;
    return fmt::format(
        "rank {} on {} ({}, last in {}{}{})", rank, entry.host,
        present ? fmt::format("silent for {:.0f} s", silent_s) : "its process has ended",
        describe(entry.activity),
        present && !entry.trouble.text.empty() ? "; " + entry.trouble.text : "",
        present ? node_state(entry) : "");
  });
}

std::string Roster::describe_late(const std::vector<int>& ranks) const {
  return describe_each(ranks, [this](int rank) {
    const Entry& entry = ranks_.at(static_cast<std::size_t>(rank));
    return fmt::format("rank {} on {} (in {} for {:.0f} s{})", rank, entry.host,
                       describe(entry.activity), clock_s_ - entry.moved_s, node_state(entry));
  });
}

/// Empty, or "; the node is overloaded: its heartbeat was not scheduled for 12 s".
std::string Roster::node_state(const Entry& entry) const {
  const Entry* worst = nullptr;
  for (const Entry& other : ranks_) {
    if (other.host != entry.host || other.starved_s < long_s) continue;
    if (clock_s_ - other.starved_to_s > recent_s) continue;
    if (!worst || other.starved_s > worst->starved_s) worst = &other;
  }
  if (!worst) return "";
  return fmt::format("; the node is overloaded: {} heartbeat was not scheduled for {:.0f} s",
                     worst == &entry ? "its" : fmt::format("rank {}'s", worst - ranks_.data()),
                     worst->starved_s);
}

}  // namespace lockstep::liveness
