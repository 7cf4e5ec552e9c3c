#include "lockstep/comm/worlds/world.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.hpp"
#include "lockstep/comm/staging.hpp"
#include "lockstep/device/idle.hpp"
#include "ports/mpi/call.hpp"

namespace lockstep::mpi {
namespace {

namespace fs = std::filesystem;

/// The ways in which Open MPI can talk to a launcher, by its folder of plugins.
struct Plugins {
  bool pmix = false, slurm_pmi = false;
};

void look_into(const fs::path& folder, int depth, Plugins& plugins) {
  std::error_code error;  // a folder that cannot be read is ignored
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (entry.is_directory(error) && depth > 0) look_into(entry.path(), depth - 1, plugins);
    plugins.pmix |= name.starts_with("mca_pmix_") && name.find("3x") != name.npos;
    plugins.slurm_pmi |= name == "mca_pmix_s1.so" || name == "mca_pmix_s2.so";
  }
}

/// Open MPI's version up to 9, 9 for all later ones, and 0 for other libraries.
int open_mpi_version(std::string_view name) {
  constexpr std::string_view open_mpi = "Open MPI v";
  if (!name.starts_with(open_mpi)) return 0;
  name.remove_prefix(open_mpi.size());
  return name.find('.') == 1 ? name.front() - '0' : 9;
}

/// Open MPI before 5 can be built for Slurm's own PMI, and then has a plugin for it. Later versions
/// speak only PMIx.
bool needs_pmix(std::string_view name) {
  const int version = open_mpi_version(name);
  if (version == 0 || version > 4) return version > 4;
  Dl_info library;
  if (dladdr(reinterpret_cast<const void*>(&MPI_Init), &library) == 0) return false;
  std::error_code error;
  const fs::path path = fs::canonical(library.dli_fname, error);
  Plugins plugins;
  look_into(path.parent_path() / "openmpi", 2, plugins);
  return plugins.pmix && !plugins.slurm_pmi;
}

/// A separate communicator for one kind of messages. Collective; calls `poll` until all have come.
/// MPI_Finalize frees it: freeing it earlier would be one more wait for all ranks.
MPI_Comm duplicate(MPI_Comm comm, const std::function<void()>& poll) {
  MPI_Comm made = MPI_COMM_NULL;
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Comm_idup(comm, &made, &request));
  for (device::Idle idle; !finished(request); idle()) poll();
  return made;
}

constexpr std::uint32_t numbers = 4096;  // MPI promises tags up to 32767
static_assert(comm::message_kinds * numbers <= 32768);

class MpiMessage final : public comm::Message {
 public:
  explicit MpiMessage(bool receives) : receives_(receives) {}

  /// It takes a block of `staging`.
  explicit MpiMessage(comm::Staging& staging)
      : receives_(true), staging_(&staging), block_(staging.take()) {
    data = block_->bytes.data();
  }

  // Messages are in flight here only when the world is about to end. MPI may still write into their
  // blocks, so these are not reused.
  ~MpiMessage() override {
    if (request == MPI_REQUEST_NULL) {
      if (block_) staging_->give_back(std::move(block_));
      return;
    }
    static_cast<void>(block_.release());
    if (receives_) MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  bool done() override {
    int done = 0, got = 0;
    MPI_Status status;
    must(MPI_Test(&request, &done, &status));
    if (done == 0) return false;
    if (receives_) must(MPI_Get_count(&status, MPI_BYTE, &got));
    bytes = static_cast<std::size_t>(got);
    return true;
  }

  std::byte* block() { return block_->bytes.data(); }
  MPI_Request request = MPI_REQUEST_NULL;

 private:
  const bool receives_;
  comm::Staging* staging_ = nullptr;
  std::unique_ptr<comm::Block> block_;
};

class MpiTransport final : public comm::Transport {
 public:
  explicit MpiTransport(MPI_Comm comm) : comm_(comm) {}

  std::unique_ptr<comm::Message> send(int to, comm::MessageTag tag, const void* data,
                                      std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(false);
    must(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, in_mpi(tag), comm_,
                   &message->request));
    return message;
  }
  std::unique_ptr<comm::Message> expect(int from, comm::MessageTag tag, void* data,
                                        std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(true);
    receive(*message, from, tag, data, bytes);
    return message;
  }
  std::unique_ptr<comm::Message> take(int from, comm::MessageTag tag, std::size_t bytes) override {
    auto message = std::make_unique<MpiMessage>(staging_);
    receive(*message, from, tag, message->block(), bytes);
    return message;
  }
  bool copies() const override { return false; }
  std::unique_ptr<comm::Transport> make_other(comm::WaitDeadline& deadline) override {
    return std::make_unique<MpiTransport>(duplicate(comm_, [&] { deadline.poll(); }));
  }

 private:
  static int in_mpi(comm::MessageTag tag) {
    return static_cast<int>(tag.kind * numbers + tag.number % numbers);
  }
  void receive(MpiMessage& message, int from, comm::MessageTag tag, void* data, std::size_t bytes) {
    must(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, in_mpi(tag), comm_,
                   &message.request));
  }

  const MPI_Comm comm_;
  comm::Staging staging_;
};

/// Letters: sent without waiting, received once they have arrived.
class MpiFabric final : public comm::Fabric {
 public:
  explicit MpiFabric(MPI_Comm comm) : comm_(comm) {
    must(MPI_Comm_rank(comm, &rank_));
    must(MPI_Comm_size(comm, &world_));
  }

  // Letters are still in flight here only when the world is about to end. MPI may still use them,
  // so they are never freed.
  ~MpiFabric() override {
    for (Outgoing& letter : outgoing_) static_cast<void>(letter.text.release());
    for (Incoming& letter : incoming_)
      if (letter.letter) static_cast<void>(letter.letter.release());
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }

  void send(const std::vector<int>& ranks, comm::LetterKind kind, std::string text) override {
    check(text.size() <= INT_MAX, "a message between ranks is larger than 2 GiB");
    unsent();
    Outgoing& letter = outgoing_.emplace_back();
    letter.text = std::make_unique<std::string>(std::move(text));
    for (const int rank : ranks) {
      letter.requests.emplace_back(rank, MPI_REQUEST_NULL);
      must(MPI_Isend(letter.text->data(), static_cast<int>(letter.text->size()), MPI_BYTE, rank,
                     static_cast<int>(kind), comm_, &letter.requests.back().second));
    }
  }

  std::vector<int> unsent() override {
    std::vector<int> ranks;
    outgoing_.remove_if([&](Outgoing& letter) {
      std::erase_if(letter.requests, [](auto& request) { return finished(request.second); });
      for (const auto& [rank, request] : letter.requests) ranks.push_back(rank);
      return letter.requests.empty();
    });
    std::ranges::sort(ranks);
    const auto twice = std::ranges::unique(ranks);
    ranks.erase(twice.begin(), twice.end());
    return ranks;
  }

  std::optional<comm::Letter> take(comm::LetterKind kind) override {
    Incoming& incoming = incoming_[static_cast<std::size_t>(kind)];
    if (!incoming.letter) begin(static_cast<int>(kind), incoming);
    if (!incoming.letter || !finished(incoming.request)) return std::nullopt;
    idle_ = {};
    const std::unique_ptr<comm::Letter> letter = std::move(incoming.letter);
    return std::move(*letter);
  }

  void wait() override {
    if (meanwhile) meanwhile();
    idle_();
  }

  std::unique_ptr<comm::Transport> make_transport(comm::WaitDeadline& deadline) override {
    return std::make_unique<MpiTransport>(duplicate(comm_, [&] { deadline.poll(); }));
  }

 private:
  struct Outgoing {
    std::unique_ptr<std::string> text;  // must not move while MPI reads it
    std::vector<std::pair<int, MPI_Request>> requests{};
  };
  /// A letter whose beginning has arrived: it is the next one of its kind.
  struct Incoming {
    std::unique_ptr<comm::Letter> letter;  // must not move while MPI writes it
    MPI_Request request = MPI_REQUEST_NULL;
  };

  /// The rest of a long text comes only when its sender looks after it, so this does not wait.
  void begin(int tag, Incoming& incoming) {
    int found = 0, size = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    must(MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &found, &handle, &status));
    if (found == 0) return;
    must(MPI_Get_count(&status, MPI_BYTE, &size));
    incoming.letter = std::make_unique<comm::Letter>(
        comm::Letter{status.MPI_SOURCE, std::string(static_cast<std::size_t>(size), '\0')});
    must(MPI_Imrecv(incoming.letter->text.data(), size, MPI_BYTE, &handle, &incoming.request));
  }

  const MPI_Comm comm_;
  int rank_ = 0, world_ = 1;
  device::Idle idle_;
  std::list<Outgoing> outgoing_;
  std::array<Incoming, comm::letter_kinds> incoming_;
};

comm::WorldFacts ask_mpi() {
  comm::WorldFacts facts;
  must(MPI_Comm_rank(MPI_COMM_WORLD, &facts.rank));
  must(MPI_Comm_size(MPI_COMM_WORLD, &facts.world));
  return facts;
}

/// Open MPI's ranks may yield the core in each call that finds nothing, and on some kernels (Linux
/// 6.18) everything else on the node then stops, even if they nap between the calls. mpirun asks
/// for that where it starts more ranks than cores, and sites may, also in a file that takes
/// precedence over the environment. So this is Open MPI's own switch, to be used after its start;
/// null in other libraries. Its start and end nap.
using SwitchYields = bool (*)(bool);
SwitchYields find_switch_of_yields() {
  return reinterpret_cast<SwitchYields>(::dlsym(RTLD_DEFAULT, "opal_progress_set_yield_when_idle"));
}

/// Open MPI's parameter: the seconds that its process waits where MPI ends it; null in other
/// libraries.
int* find_delay_of_aborts() { return static_cast<int*>(::dlsym(RTLD_DEFAULT, "opal_abort_delay")); }

}  // namespace

}  // namespace lockstep::mpi

namespace lockstep::comm {

using namespace mpi;

cluster::MpiLibrary mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  must(MPI_Get_library_version(text, &length));
  const std::string version(text, static_cast<std::size_t>(length));
  cluster::MpiLibrary library;
  library.name = version.substr(0, version.find_first_of(",\n"));
  library.needs_pmix = needs_pmix(library.name);
  return library;
}

// Only one thread of a rank communicates, but a watchdog may have to abort while that thread is
// inside MPI. This needs MULTIPLE, not SERIALIZED.
World::World(int& argc, char**& argv, const std::function<void()>& started) {
  const SwitchYields switch_yields = find_switch_of_yields();
  if (!switch_yields) ::setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  int provided = MPI_THREAD_SINGLE;
  must(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided));
  if (switch_yields) switch_yields(false);
  must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  must(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  if (started) started();
  facts_ = ask_mpi();
  require(provided >= MPI_THREAD_MULTIPLE,
          mpi_library().name + " was built without MPI_THREAD_MULTIPLE; use a build that has it");
}

// MPI_Finalize waits for all ranks. It is not called during an exception, after which main ends the
// world: the others may never come.
World::~World() {
  if (std::uncaught_exceptions() == 0) MPI_Finalize();
}

void World::report_lost_ranks_within(double seconds) {
  if (open_mpi_version(mpi_library().name) < 5) return;
  if (int* delay = find_delay_of_aborts()) *delay = static_cast<int>(std::ceil(seconds));
}

void World::meet() {
  MPI_Request request = MPI_REQUEST_NULL;
  must(MPI_Ibarrier(MPI_COMM_WORLD, &request));
  for (device::Idle idle; !finished(request);) idle();
}

std::unique_ptr<Fabric> World::make_fabric(double deadline_s) {
  Countdown left(deadline_s);
  return std::make_unique<MpiFabric>(duplicate(MPI_COMM_WORLD, [&] {
    if (left.over())
      throw Error(fmt::format("making a communicator: not all ranks came within {} s", deadline_s));
  }));
}

void World::abort(int status) {
  int initialized = 0, finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (initialized != 0 && finalized == 0) {
    if (int* delay = find_delay_of_aborts()) *delay = 0;
    // MPI_Abort of Open MPI is this, after six lines that say nothing about the reason.
    using Abort = int (*)(MPI_Comm, int);
    if (const auto abort = reinterpret_cast<Abort>(::dlsym(RTLD_DEFAULT, "ompi_mpi_abort")))
      abort(MPI_COMM_WORLD, status);
    MPI_Abort(MPI_COMM_WORLD, status);
  }
  std::_Exit(status);
}

}  // namespace lockstep::comm
