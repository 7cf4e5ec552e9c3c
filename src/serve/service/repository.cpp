#include "serve/service/repository.hpp"

#include <utility>

#include <fmt/core.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/join.hpp"
#include "serve/protocol/request_error.hpp"

namespace lockstep::serve {

namespace {

void say_that_old_stays(const std::string& name, const std::exception& error) {
  log::warn(fmt::format("{}: cannot be loaded, so the version that is there stays: {}", name,
                        error.what()));
}

}  // namespace

struct Repository::Entry {
  ModelSource source;
  std::shared_ptr<Statistics> statistics = std::make_shared<Statistics>();
  std::shared_ptr<const Version> version;  ///< by the repository's mutex
  std::atomic<bool> loading{false};
  std::size_t loads = 0;  ///< begun; the last one's number
  // Of the thread that looks:
  std::filesystem::path path;
  std::optional<FileStamp> stamp;
  std::string problem;  ///< that was told last
};

/// A version on its way: each step takes as long as about one batch.
class Repository::Loading {
 public:
  Loading(Entry& entry, ModelFile file, const ServeSpec& spec)
      : entry_(entry),
        file_(std::move(file)),
        version_(std::make_shared<Version>(entry.source.name, ++entry.loads, file_, spec)),
        lane_(std::make_shared<Lane>()) {
    lane_->row_bytes = version_->row_bytes();
    lane_->classes = version_->classes();
    lane_->statistics = entry.statistics;
  }
  Entry& entry() { return entry_; }

  /// True once the version can be used.
  bool step(backend::Backend& backend) {
    const nn::Network& network = file_.model.about.network;
    if (!lane_->parameters) {
      lane_->parameters = backend.make_parameters(network, file_.program.precision);
      model::put_weights(file_.model, *lane_->parameters);
      file_.model.weights.clear();
      return false;
    }
    if (!lane_->ladder) {
      lane_->ladder = std::make_unique<Ladder>(backend, network, file_.program, *lane_->parameters);
      return false;
    }
    return lane_->ladder->prepare();
  }

  std::shared_ptr<const Version> finished() {
    version_->lane = lane_;
    std::vector<std::uint64_t> sizes(lane_->ladder->sizes().begin(), lane_->ladder->sizes().end());
    log::info(fmt::format("{}: version {}, {} steps: batches of {} rows give equal bits",
                          version_->name(), version_->number(), version_->steps(),
                          join(sizes, ", ")));
    return version_;
  }

 private:
  Entry& entry_;
  ModelFile file_;
  std::shared_ptr<Version> version_;
  std::shared_ptr<Lane> lane_;
};

Repository::Repository(const ServeSpec& spec, const std::vector<ModelSource>& sources,
                       backend::Backend& backend, Batcher& batcher)
    : spec_(spec), backend_(backend), batcher_(batcher) {
  for (const ModelSource& source : sources) {
    const auto [at, is_new] = entries_.emplace(source.name, std::make_unique<Entry>());
    require(is_new, fmt::format("{}: two models have this name", source.name));
    at->second->source = source;
  }
}

Repository::~Repository() = default;

void Repository::load() {
  for (const auto& [name, entry] : entries_) {
    entry->path = entry->source.locate();
    entry->stamp = stamp_of(entry->path);
    ModelFile file = entry->source.read(entry->path);
    try {
      Loading loading(*entry, std::move(file), spec_);
      while (!loading.step(backend_)) {
      }
      publish(*entry, loading.finished());
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", entry->path.string(), error.what()));
    }
  }
}

void Repository::look(bool all) {
  for (const auto& [name, entry] : entries_) {
    try {
      look_at(*entry, all);
    } catch (const std::exception& error) {
      entry->loading = false;
      if (entry->problem == error.what()) continue;
      entry->problem = error.what();
      say_that_old_stays(name, error);
    }
  }
}

void Repository::look_at(Entry& entry, bool all) {
  if (entry.loading) return;
  const std::filesystem::path path = entry.source.locate();
  const FileStamp stamp = stamp_of(path);
  if (!all && path == entry.path && stamp == entry.stamp) return;
  entry.path = path;
  entry.stamp = stamp;
  entry.problem.clear();
  entry.loading = true;
  const auto loading = std::make_shared<Loading>(entry, entry.source.read(path), spec_);
  batcher_.between_batches([this, loading] { advance(loading); });
}

void Repository::advance(const std::shared_ptr<Loading>& loading) {
  Entry& entry = loading->entry();
  try {
    if (!loading->step(backend_))
      return batcher_.between_batches([this, loading] { advance(loading); });
    publish(entry, loading->finished());
  } catch (const std::exception& error) {
    say_that_old_stays(entry.source.name, error);
  }
  entry.loading = false;
}

void Repository::publish(Entry& entry, std::shared_ptr<const Version> version) {
  batcher_.add(version->lane);
  const std::scoped_lock lock(mutex_);
  entry.version.swap(version);
}

std::shared_ptr<const Version> Repository::find(const std::string& name,
                                                const std::string& number) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw RequestError(404, fmt::format("there is no model '{}'", name));
  const std::scoped_lock lock(mutex_);
  const auto& version = found->second->version;
  if (!number.empty() && number != version->number())
    throw RequestError(404, fmt::format("the model '{}' has no version '{}'; it has {}", name,
                                        number, version->number()));
  return version;
}

std::vector<std::shared_ptr<const Version>> Repository::all() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<const Version>> versions;
  for (const auto& [name, entry] : entries_) versions.push_back(entry->version);
  return versions;
}

std::shared_ptr<Statistics> Repository::statistics(const std::string& name) const {
  return entries_.at(name)->statistics;
}

}  // namespace lockstep::serve
