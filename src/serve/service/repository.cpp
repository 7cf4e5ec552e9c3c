#include "serve/service/repository.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/image/image.hpp"
#include "lockstep/infer/ladder.hpp"
#include "serve/protocol/route.hpp"

namespace lockstep::serve {
namespace {

constexpr std::size_t longest_side = 65'535;  // of a JPEG

/// The number at this place of a PNG's first chunk, which is its size.
std::size_t big_endian(std::string_view file, std::size_t at) {
  std::size_t number = 0;
  for (const char byte : file.substr(at, 4))
    number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

struct Claimed {
  std::size_t height = 0, width = 0;
  std::size_t pixels() const { return height * width; }
};

/// The size that the file's header claims.
Claimed claimed(std::string_view file, const std::string& what) {
  constexpr std::size_t png_width_at = 16, png_height_at = 20, png_header = 24;
  if (data::looks_like_jpeg(file)) {
    const data::ImageShape shape = data::jpeg_shape(file, what);
    return {shape.height, shape.width};
  }
  const bool base64 = file.starts_with("/9j/") || file.starts_with("iVBORw0KGgo");
  expect(data::looks_like_png(file) && file.size() >= png_header,
         "{}: is neither a JPEG nor a PNG file{}", what,
         base64 ? ", but base64: send the file's bytes, as binary data" : "");
  return {big_endian(file, png_height_at), big_endian(file, png_width_at)};
}

/// How often a JPEG goes through its pixels, about: bytes of pixels may look like a marker.
std::size_t scans_of(std::string_view file) {
  std::size_t scans = 0;
  for (std::size_t at = 0; (at = file.find("\xff\xda", at)) != file.npos; at += 2) ++scans;
  return scans;
}

}  // namespace

namespace {

/// How files become rows; none of a network that takes no files.
std::optional<StoredForm> form_of_files(const ServeSpec& spec, const ModelFile& file) {
  const data::DataSetInfo& input = file.input;
  if (data::takes_files(input))
    return stored_as(spec.form, file.members.front().model.about.preparation, input, 1);
  require(!spec.form.jpeg && spec.form.height == 0,
          fmt::format("--resize and --jpeg say how images in files become rows, and the network "
                      "takes {} of {}, and no files",
                      counted(input.channels, "channel"), say_values(input)));
  return std::nullopt;
}

}  // namespace

Version::Version(const ModelSource& source, std::size_t number, const ModelFile& file,
                 const ServeSpec& spec)
    : name_(source.name),
      number_(std::to_string(number)),
      text_(source.text),
      input_(file.input),
      form_(spec.form),
      stored_(form_of_files(spec, file)),
      most_pixels_(spec.most_pixels) {
  if (!stored_) return;
  try {
    idle_.push_back(borrow());
  } catch (const InputError& error) {
    throw InputError(
        fmt::format("{}; --resize, --jpeg and so on are for all models of a server: another "
                    "server takes networks whose training sets were packed otherwise",
                    error.what()));
  }
}

std::unique_ptr<data::ImagePreparer> Version::borrow() const {
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      auto one = std::move(idle_.back());
      idle_.pop_back();
      return one;
    }
  }
  return std::make_unique<data::ImagePreparer>(form_, stored_->stored, stored_->augment);
}

double Version::cost_s(std::string_view file) {
  constexpr double pixel_s = 2e-8, pixel_of_a_scan_s = 5e-10, byte_s = 1e-8;
  const double bytes_s = byte_s * static_cast<double>(file.size());
  try {
    const auto pixels = static_cast<double>(claimed(file, "").pixels());
    const auto scans = static_cast<double>(data::looks_like_jpeg(file) ? scans_of(file) : 0);
    return bytes_s + pixels * (pixel_s + scans * pixel_of_a_scan_s);
  } catch (const InputError&) {  // it is an error, too
    return bytes_s;
  }
}

/// With an image of another size: what to do when the server starts.
std::string Version::hint(const std::string& fault) const {
  if (form_.height > 0 || form_.jpeg || fault.find("only images of") == fault.npos) return fault;
  return fault + ": start the server with --resize or --jpeg, as the training set was packed";
}

void Version::prepare(std::string_view file, const std::string& what,
                      std::span<std::uint8_t> row) const {
  try {
    const Claimed size = claimed(file, what);
    expect(size.height <= longest_side && size.width <= longest_side,
           "{}: is {} x {}, but a side has at most {} pixels", what, size.height, size.width,
           longest_side);
    expect(size.pixels() <= most_pixels_, "{}: has {} pixels, more than {}", what, size.pixels(),
           most_pixels_);
    // About what decoding takes: a scan costs a fortieth of making an image of all.
    const std::size_t scans = data::looks_like_jpeg(file) ? scans_of(file) : 0;
    expect(size.pixels() * (40 + scans) <= 160 * most_pixels_,
           "{}: has {} pixels in {} scans, which take too long to decode", what, size.pixels(),
           scans);
    auto preparer = borrow();
    preparer->prepare(file, what, row);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(preparer));
  } catch (const RequestError&) {
    throw;
  } catch (const InputError& error) {
    throw RequestError(400, hint(error.what()));
  }
}

namespace {

/// With the time of the last change of any kind: a file may be copied over with its old times.
using Stamps = std::vector<std::pair<FileStamp, std::int64_t>>;

Stamps stamps_of(const ModelSource::Files& files) {
  Stamps stamps;
  for (const std::filesystem::path& file : files) {
    const FileStamp stamp = stamp_of(file);
    stamps.emplace_back(stamp, stamp.touched_ns);
  }
  return stamps;
}

}  // namespace

struct Repository::Entry {
  ModelSource source;
  std::shared_ptr<Statistics> statistics = std::make_shared<Statistics>();
  std::shared_ptr<const Version> version;  ///< by the repository's mutex
  std::atomic<bool> loading{false};
  std::size_t loads = 0;  ///< begun; the last one's number
  std::string problem;    ///< with the newest files; by the repository's mutex
  // Of the thread that looks, and while it loads of the one that computes:
  ModelSource::Files files;
  Stamps stamps;                    ///< as they were before the files were read
  bool asked = false;               ///< to load it in any case
  std::string told;                 ///< the last problem
  double pause_s = 0, again_s = 0;  ///< when it is tried again, after a problem
};

/// A version on its way: each step takes as long as about one batch.
class Repository::Loading {
 public:
  Loading(Entry& entry, ModelFile file, const ServeSpec& spec)
      : entry_(entry),
        file_(std::move(file)),
        version_(std::make_shared<Version>(entry.source, ++entry.loads, file_, spec)),
        lane_(std::make_shared<Lane>()) {
    lane_->row_bytes = version_->row_bytes();
    lane_->classes = version_->classes();
    lane_->statistics = entry.statistics;
  }
  Entry& entry() { return entry_; }

  /// True once the version can be used.
  bool step(backend::Backend& backend) {
    if (const std::size_t next = lane_->parameters.size(); next < file_.members.size()) {
      MemberFile& member = file_.members[next];
      lane_->parameters.push_back(backend.make_parameters(
          member.model.about.network, member.program.precision, backend::Keeps::weights));
      model::put_weights(member.model, *lane_->parameters.back());
      member.model.weights.clear();
      return false;
    }
    if (const std::size_t next = ladders_.size(); next < file_.members.size()) {
      const MemberFile& member = file_.members[next];
      ladders_.push_back(std::make_unique<infer::Ladder>(backend, member.model.about.network,
                                                         member.program, *lane_->parameters[next]));
      return false;
    }
    for (const auto& ladder : ladders_)
      if (!ladder->prepare()) return false;
    for (std::size_t m = 0; m < ladders_.size(); ++m) tell(file_.members[m], *ladders_[m]);
    combine(backend.device());
    return true;
  }

  std::shared_ptr<const Version> finished() {
    version_->lane = lane_;
    return version_;
  }

 private:
  void tell(const MemberFile& member, const infer::Ladder& ladder) const {
    std::vector<std::uint64_t> sizes(ladder.sizes().begin(), ladder.sizes().end());
    log::info(fmt::format("{}: version {}, {}{} steps: batches of {} rows give equal bits",
                          version_->name(), version_->number(),
                          file_.members.size() > 1 ? member.name + ", " : "", member.model.steps,
                          join(sizes, ", ")));
  }

  void combine(device::Device& device) {
    const bool alone = ladders_.size() == 1;
    lane_->batch = alone ? ladders_.front()->largest() : file_.members.front().program.batch;
    std::vector<infer::Member> members;
    for (std::size_t m = 0; m < ladders_.size(); ++m)
      members.push_back({file_.members[m].name, std::move(ladders_[m]),
                         infer::ValueScale::of(file_.members[m].model.about.input)});
    lane_->model = infer::arrange(std::move(members), file_.arrangement,
                                  {.stages = {},
                                   .row_bytes = lane_->row_bytes,
                                   .outputs = lane_->classes,
                                   .batch = lane_->batch,
                                   .loss = {.task = file_.input.task}},
                                  device);
    lane_->images = device.allocate_pinned(lane_->batch * lane_->row_bytes);
    std::memset(lane_->images.data(), 0, lane_->images.size());
  }

  Entry& entry_;
  ModelFile file_;
  std::shared_ptr<Version> version_;
  std::shared_ptr<Lane> lane_;
  std::vector<std::unique_ptr<infer::Ladder>> ladders_;  ///< of the members
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
    entry->files = entry->source.locate();
    entry->stamps = stamps_of(entry->files);
    ModelFile file = entry->source.read(entry->files);
    try {
      Loading loading(*entry, std::move(file), spec_);
      while (!loading.step(backend_)) {
      }
      publish(*entry, loading.finished());
    } catch (const InputError& error) {
      throw InputError(fmt::format("{}: {}", entry->source.text, error.what()));
    }
  }
}

void Repository::look(bool all) {
  const SpareDescriptors spare;  // connections may have all others
  for (const auto& [name, entry] : entries_) {
    if (all) entry->asked = true;
    if (entry->loading) continue;
    try {
      look_at(*entry);
    } catch (const std::exception& error) {
      note_problem(*entry, error);
      entry->loading = false;
    }
  }
}

void Repository::look_at(Entry& entry) {
  const ModelSource::Files files = entry.source.locate();
  const Stamps stamps = stamps_of(files);
  const bool again = entry.pause_s > 0 && now_s() >= entry.again_s;
  if (!entry.asked && !again && files == entry.files && stamps == entry.stamps) return;
  if (entry.asked || files != entry.files || stamps != entry.stamps) entry.told.clear();
  entry.files = files;
  entry.stamps = stamps;
  entry.asked = false;
  entry.loading = true;
  const auto loading = std::make_shared<Loading>(entry, entry.source.read(files), spec_);
  batcher_.between_batches([this, loading] { advance(loading); });
}

/// Tells it once, and has it tried again.
void Repository::note_problem(Entry& entry, const std::exception& error) {
  constexpr double longest_s = 60;
  entry.pause_s = std::clamp(2 * entry.pause_s, 1.0, longest_s);
  entry.again_s = now_s() + entry.pause_s;
  {
    const std::scoped_lock lock(mutex_);
    entry.problem = error.what();
  }
  if (entry.told == error.what()) return;
  entry.told = error.what();
  log::warn(fmt::format("{}: cannot be loaded, so the version that is there stays: {}",
                        entry.source.name, error.what()));
}

void Repository::advance(const std::shared_ptr<Loading>& loading) {
  Entry& entry = loading->entry();
  try {
    if (!loading->step(backend_))
      return batcher_.between_batches([this, loading] { advance(loading); });
    publish(entry, loading->finished());
    entry.pause_s = 0;
  } catch (const std::exception& error) {
    note_problem(entry, error);
  }
  entry.loading = false;
}

void Repository::publish(Entry& entry, std::shared_ptr<const Version> version) {
  batcher_.add(version->lane);
  const std::scoped_lock lock(mutex_);
  entry.version.swap(version);
  entry.problem.clear();
}

std::string Repository::problem(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  return entries_.at(name)->problem;
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
