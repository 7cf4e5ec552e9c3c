#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/owned.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/rendezvous.hpp"
#include "lockstep/comm/nodes.hpp"
#include "lockstep/comm/worlds/tcp.hpp"
#include "ports/tcp/mesh/mesh.hpp"

namespace lockstep::tcp {
namespace {

constexpr std::string_view ended = "rank 0 has ended: ";  // how rank 0's refusal begins
constexpr double last_words_s = 1;
// A rank that was let in too late hangs up and comes again; one that has heard so does not.
constexpr double come_again_s = 3;
constexpr std::size_t most_addresses = 32;
constexpr double patient_s = 3;  // with a rank 0 that may not be able to leave its card
constexpr std::chrono::milliseconds first_pause{20}, longest_pause{500};
// For a rank 0 that has met this rank already. A busy node may take seconds to answer.
constexpr double to_answer_s = 20;

void check_not_cancelled(const comm::MeetingSpec& spec) {
  if (spec.stop.stop_requested()) throw Error("start-up: this meeting was cancelled");
}

std::unique_ptr<Mesh> make_mesh(const cluster::MeetingPlace& place, const cluster::RankInfo& self) {
  MeshSpec spec{self.rank, self.world, self.host, place.job, place.node};
  if (self.rank == 0) spec.ports = place.ports;
  if (self.rank == 0 && place.address) {
    spec.secret = place.address->token;
    const Nonce drawn = new_nonce();
    spec.start = fmt::format("{:02x}{:02x}{:02x}{:02x}", drawn[0], drawn[1], drawn[2], drawn[3]);
  }
  return std::make_unique<Mesh>(std::move(spec));
}

/// What holds the secret of the meeting.
std::string where(const cluster::MeetingPlace& place) {
  return place.address ? fmt::format("{} port {}", place.address->host, place.address->port)
                       : place.file.string();
}
const std::filesystem::path& secret_file(const cluster::MeetingPlace& place) {
  return place.address ? place.address->token_file : place.file;
}

constexpr std::chrono::seconds look_every{1}, patience{2};

/// Keeps rank 0's card in its place while the ranks meet. A file system may take many seconds for
/// one call, and the ranks that have read the card must not wait for that: a separate thread makes
/// all the calls.
/// **Thread safety:** the owner's thread calls the methods; the state is guarded by its mutex.
class CardKeeper {
 public:
  CardKeeper(const std::filesystem::path& file, const cluster::MeetingCard& card);
  /// Removes the card, which would mislead a later start. Where the file system hangs, it does not
  /// wait for that, and the thread ends later.
  ~CardKeeper();
  CardKeeper(const CardKeeper&) = delete;
  CardKeeper& operator=(const CardKeeper&) = delete;

  /// Throws InputError when the card could not be left. That it cannot be replaced later, when
  /// another start has removed it, is no error: it is tried again.
  void check_left() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

struct CardKeeper::State {
  const std::filesystem::path file;
  const cluster::MeetingCard card;
  std::mutex mutex{};
  std::condition_variable changed{};
  bool off = false, over = false;  // under the mutex, like the next
  std::exception_ptr fault{};      // of the first time

  void run() {
    keep();
    const std::scoped_lock lock(mutex);
    over = true;
    changed.notify_all();
  }

  void keep() {
    Descriptor held;  // the card's file
    try {
      held = cluster::leave_card(file, card);
    } catch (const Error&) {
      const std::scoped_lock lock(mutex);
      fault = std::current_exception();
      return;
    } catch (const std::exception& error) {
      const std::scoped_lock lock(mutex);
      fault = std::make_exception_ptr(Error(error.what()));
      return;
    }
    // Where locks do not work, another start may have taken it for a dead one's.
    while (!wait_until_off()) {
      if (access(file.c_str(), F_OK) == 0) continue;
      try {
        held = cluster::leave_card(file, card);
      } catch (const std::exception&) {
        // Ranks that have read it still come.
      }
    }
    unlink(file.c_str());
  }

  /// False after a while.
  bool wait_until_off() {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, look_every, [this] { return off; });
  }
};

CardKeeper::CardKeeper(const std::filesystem::path& file, const cluster::MeetingCard& card)
    : state_(new State{.file = file, .card = card}) {
  try {
    thread_ = std::thread([state = state_] { state->run(); });
  } catch (const std::system_error& error) {
    throw Error(fmt::format("no thread to keep {}: {}", file.string(), error.what()));
  }
}

CardKeeper::~CardKeeper() {
  std::unique_lock lock(state_->mutex);
  state_->off = true;
  state_->changed.notify_all();
  const bool over = state_->changed.wait_for(lock, patience, [this] { return state_->over; });
  lock.unlock();
  if (over)
    thread_.join();
  else
    thread_.detach();  // it shares the state
}

void CardKeeper::check_left() const {
  const std::scoped_lock lock(state_->mutex);
  if (state_->fault) std::rethrow_exception(state_->fault);
}

/// Rank 0 while the other ranks arrive.
class Reception {
 public:
  Reception(const cluster::MeetingPlace& place, const cluster::RankInfo& self)
      : place_(place),
        mesh_(make_mesh(place, self)),
        others_(comm::all_but({0}, self.world)),
        missed_(static_cast<std::size_t>(self.world)) {
    if (!place.address) card_keeper_.emplace(place.file, card_of(self));
  }

  std::unique_ptr<Mesh> wait(const comm::MeetingSpec& spec) {
    Countdown left(spec.deadline_s), mates_left(spec.mates_s);
    std::size_t came = 0;
    // A rank that goes after it has confirmed is named in the next meeting.
    while (!all_confirmed()) {
      check_not_cancelled(spec);
      if (card_keeper_) card_keeper_->check_left();
      mesh_->wait();
      if (all_confirmed()) break;
      look_for_gone();
      if (std::exchange(came, here().size()) != here().size()) mates_left = Countdown(spec.mates_s);
      if (left.over()) give_up(absence(spec.deadline_s));
      // A node from which no rank came may still be starting; a rank whose mates are here is not.
      if (mates_left.over() && somewhere_mates_wait()) give_up(absence(spec.mates_s));
    }
    return std::move(mesh_);
  }

  void turn_away(const std::string& why, double within_s) {
    mesh_->turn_away(why);
    for (Countdown left(within_s); mesh_->turned_away() < others_.size() && !left.over();) {
      if (card_keeper_) card_keeper_->check_left();
      mesh_->wait();
    }
  }

 private:
  /// First the names, which the site has chosen, then the addresses.
  cluster::MeetingCard card_of(const cluster::RankInfo& self) const {
    cluster::MeetingCard card{mesh_->card().secret, mesh_->card().addresses, mesh_->card().port};
    if (card.hosts.size() > most_addresses) card.hosts.resize(most_addresses);
    card.hosts.insert(card.hosts.begin(), {place_.node, self.host});
    card.hosts.emplace_back("127.0.0.1");
    return card;
  }

  bool all_confirmed() const {
    return std::ranges::all_of(others_,
                               [this](int rank) { return mesh_->link_of(rank).confirmed(); });
  }

  void look_for_gone() {
    for (const int rank : others_) {
      const Link& link = mesh_->link_of(rank);
      auto& missed = missed_[static_cast<std::size_t>(rank)];
      if (mesh_->came_from(rank).empty() || link.open())
        missed.reset();
      else if (!missed)
        missed.emplace(link.gone() ? 0 : come_again_s);
      if (missed && missed->over())
        give_up(fmt::format("start-up: rank {} on {} came, and its process has ended", rank,
                            mesh_->came_from(rank)));
    }
  }

  /// The ranks that came get the reason, as the answer to their first meeting.
  [[noreturn]] void give_up(const std::string& why) {
    mesh_->send(others_, comm::LetterKind::result, comm::missing_mark + why);
    // Closing a connection with unread data would discard what was just sent: read it first.
    const auto open = [this](int rank) { return mesh_->link_of(rank).open(); };
    for (Countdown left(last_words_s); std::ranges::any_of(others_, open) && !left.over();)
      mesh_->wait();
    throw comm::MissingRanks(why);
  }

  std::vector<int> here() const {
    std::vector<int> ranks{0};
    for (const int rank : others_)
      if (!mesh_->came_from(rank).empty()) ranks.push_back(rank);
    return ranks;
  }

  std::map<std::string, int> came_from() const {
    std::map<std::string, int> came;
    for (const int rank : here()) ++came[rank == 0 ? place_.node : mesh_->came_from(rank)];
    return came;
  }

  bool somewhere_mates_wait() const {
    std::map<std::string, int> came = came_from();
    for (std::size_t i = 0; i < place_.nodes.size(); ++i)
      if (const int here = came[place_.nodes[i]]; here > 0 && here < place_.ranks_on_node[i])
        return true;
    return false;
  }

  /// "ranks 2-3 did not come within 60 s: from node2 came 0 of 2 (is /home/u/.lockstep the same
  /// there?)"
  std::string absence(double deadline_s) const {
    std::map<std::string, int> came = came_from();
    std::string text = fmt::format("start-up: {} did not come to {} within {} s",
                                   comm::rank_list(comm::all_but(here(), mesh_->world())),
                                   place_.node, deadline_s);
    const char* separator = ": from ";
    bool none_came = false;
    for (std::size_t i = 0; i < place_.nodes.size(); ++i) {
      const std::string& node = place_.nodes[i];
      if (came[node] == place_.ranks_on_node[i]) continue;
      none_came = none_came || came[node] == 0;
      text +=
          fmt::format("{}{} came {} of {}", separator, node, came[node], place_.ranks_on_node[i]);
      separator = ", ";
    }
    if (none_came && !place_.address)
      text += fmt::format(" (is {} the same there?)", place_.file.parent_path().string());
    if (mesh_->strangers() > 0)
      text += fmt::format("; {} did not know the secret in {}",
                          counted(mesh_->strangers(), "connection"), secret_file(place_).string());
    return text;
  }

  const cluster::MeetingPlace& place_;
  std::unique_ptr<Mesh> mesh_;
  std::optional<CardKeeper> card_keeper_;
  const std::vector<int> others_;                 ///< ranks
  std::vector<std::optional<Countdown>> missed_;  ///< by rank, since it has hung up
};

/// Rank 0's reception at an address, which an earlier start may still have for some seconds.
std::unique_ptr<Reception> open_reception(const cluster::MeetingPlace& place,
                                          const cluster::RankInfo& self, double patience_s) {
  for (Countdown left(patience_s);; std::this_thread::sleep_for(longest_pause)) {
    try {
      return std::make_unique<Reception>(place, self);
    } catch (const Error&) {
      if (!place.address || left.over()) throw;
    }
  }
}

/// Where rank 0 is now. Nothing while it is not known; `why` then says what is missing.
std::optional<ListenerCard> find_rank_0(const cluster::MeetingPlace& place, bool by_address,
                                        std::string& why) {
  if (const auto& address = place.address) {
    why = fmt::format("no address is known for {}", address->host);
    ListenerCard at{address->token, address->port, addresses_of(address->host)};
    return at.addresses.empty() ? std::nullopt : std::optional(std::move(at));
  }
  const auto card = cluster::read_card(place.file);
  if (!card) {
    why =
        "rank 0 has not written this file: is its directory the same on all nodes? "
        "(LOCKSTEP_RENDEZVOUS_DIR names another)";
    return std::nullopt;
  }
  ListenerCard at{card->secret, card->port, {}};
  for (const std::string& host : card->hosts) {
    const auto found = by_address ? std::vector{host} : addresses_of(host);
    at.addresses.insert(at.addresses.end(), found.begin(), found.end());
  }
  return at;
}

/// Waits until the attempt has ended or is over, or `over`.
void advance(ConnectAttempt& attempt, Mesh& mesh, const std::function<bool()>& over) {
  while (!attempt.failed() && !over()) {
    if (auto wire = attempt.poll()) return mesh.take_in(0, wire->take_socket());
    std::vector<pollfd> polled;
    attempt.add_to(polled);
    poll(polled.data(), polled.size(), 50);
  }
}

/// The other ranks connect to rank 0.
std::unique_ptr<Mesh> join(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                           const comm::MeetingSpec& spec) {
  auto mesh = make_mesh(place, self);
  // Rank 0 names the missing ranks when its deadline has passed; the others give it that time.
  const double deadline_s = 1.1 * spec.deadline_s + 1;
  std::string why, answer;  // of what listened there last: it may have given up before this rank
  // The card of an earlier start may still be there until rank 0 has replaced it. So when rank 0
  // does not answer, the file is read again. The pauses grow, since a thousand ranks may ask one
  // file system.
  std::chrono::milliseconds pause = first_pause;
  Countdown patient(patient_s);
  for (Countdown left(deadline_s); !left.over(); std::this_thread::sleep_for(pause)) {
    check_not_cancelled(spec);
    pause = std::min(2 * pause, longest_pause);
    const auto at = find_rank_0(place, spec.by_address, why);
    if (!at) {
      if (!place.address && patient.over()) cluster::check_folder(place.file);
      continue;
    }
    ConnectAttempt attempt(*at, place.job, self.rank, self.world, place.node);
    advance(attempt, *mesh, [&] { return check_not_cancelled(spec), left.over(); });
    if (attempt.refusal().starts_with(ended)) throw comm::MissingRanks(attempt.refusal(), true);
    why = attempt.refusal().empty() ? attempt.fault()
                                    : fmt::format("refused by rank 0: {}", attempt.refusal());
    if (attempt.stood()) answer = why;
    // At an address an earlier start's rank 0 may still live, and give way.
    require(attempt.refusal().empty() || place.address, why);
    if (!mesh->link_of(0).open()) continue;
    if (!place.address)
      mesh->rank_0_gone = [file = place.file, secret = at->secret] {
        cluster::remove_card(file, secret);  // rank 0 may have been killed
      };
    return mesh;
  }
  if (place.address && !answer.empty()) why = answer;
  const std::string file =
      place.address ? fmt::format(" (its file here: {})", place.address->token_file.string()) : "";
  throw comm::MissingRanks(fmt::format("start-up: rank 0 was not found within {:g} s by {}: {}{}",
                                       deadline_s, where(place), why, file));
}

}  // namespace

}  // namespace lockstep::tcp

namespace lockstep::comm {

std::unique_ptr<Fabric> meet_over_tcp(const cluster::MeetingPlace& place,
                                      const cluster::RankInfo& self, const MeetingSpec& spec) {
  if (self.rank == 0) return tcp::open_reception(place, self, spec.deadline_s)->wait(spec);
  return tcp::join(place, self, spec);
}

std::unique_ptr<Fabric> meet_over_tcp(Fabric& known, Control& control, const std::string& host) {
  constexpr const char* phase = "start-up";
  auto mesh =
      std::make_unique<tcp::Mesh>(tcp::MeshSpec{known.rank(), known.world(), host, "MPI", host});
  mesh->introduce(control);
  std::string fault;
  if (known.rank() == 0) {
    known.meanwhile = [&] { mesh->move(); };
  } else {
    bool again = true;
    for (Countdown left(tcp::to_answer_s); again && !left.over();) {
      tcp::ConnectAttempt attempt(mesh->card_of(0), "MPI", known.rank(), known.world(), host);
      tcp::advance(attempt, *mesh, [&] { return left.over(); });
      fault = fmt::format("rank {} on {} does not reach rank 0 on {}: {}", known.rank(), host,
                          mesh->host_of(0), attempt.fault());
      again = attempt.stood() && !mesh->link_of(0).open();
    }
    if (mesh->link_of(0).open()) fault.clear();
  }
  const std::string first = control.combine(fault, phase, [](const Control::Parts& faults) {
    const auto found =
        std::ranges::find_if(faults, [](const std::string& one) { return !one.empty(); });
    return found == faults.end() ? std::string() : *found;
  });
  known.meanwhile = nullptr;
  if (first.empty()) return mesh;
  if (known.rank() == 0)
    log::warn(first +
              ": the ranks agree over MPI, and heartbeats watch only ranks that reach rank 0");
  return nullptr;
}

std::string ended_text(std::string_view why) {
  return std::string(tcp::ended) + std::string(why.substr(0, tcp::handshake_limit / 2));
}

void turn_ranks_away(const cluster::MeetingPlace& place, const cluster::RankInfo& self,
                     std::string_view why, double within_s) {
  tcp::open_reception(place, self, 0)->turn_away(ended_text(why), within_s);
}

}  // namespace lockstep::comm
