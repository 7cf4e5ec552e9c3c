#include "lockstep/serve/predict_job.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/files/work_folder.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "serve/predictions/predictions.hpp"
#include "serve/predictor.hpp"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

PredictionColumns columns_of(const PredictSpec& spec, const InputRows& rows) {
  const std::size_t outputs = spec.classes.size();
  const bool of_classes = spec.task == data::Task::classes;
  return {.top = of_classes ? std::min(spec.top, outputs) : 0,
          .probabilities = spec.task == data::Task::labels ? outputs : 0,
          .values = spec.task == data::Task::values ? outputs : 0,
          .logits = spec.logits ? spec.classes.size() : 0,
          .features = spec.features,
          .labels = of_classes && rows.labelled(),
          .name_bytes = rows.name_bytes()};
}

std::string hash_of(const std::vector<std::string>& texts) {
  std::uint32_t hash = 0;
  for (const std::string& text : texts) hash = crc32c(text.c_str(), text.size() + 1, hash);
  return fmt::format("{:08x}", hash);
}

/// All that the predictions follow from.
Json describe_job(const PredictSpec& spec, const InputRows& rows, const Pieces& pieces) {
  Json note = {{"format", 2}};
  std::istringstream lines(spec.model);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t equals = line.find(" = ");
    check(equals != line.npos, "a line of the form key = value");
    note[line.substr(0, equals)] = line.substr(equals + 3);
  }
  const PredictionColumns columns = columns_of(spec, rows);
  note["classes"] = fmt::format("{}, hash {}", spec.classes.size(), hash_of(spec.classes));
  note["data"] = rows.fingerprint();
  note["batch"] = spec.batch;
  note["piece_rows"] = pieces.rows_of_one();
  note["top"] = columns.top;
  note["logits"] = columns.logits > 0;
  note["features"] = columns.features;
  note["labels"] = columns.labels;
  note["skip_unread"] = spec.skip_unread;
  return note;
}

void require_same_job(const fs::path& path, const Json& mine) {
  const Json theirs = Json::parse(read_text(path), nullptr, false);
  require(theirs.is_object(), fmt::format("{}: is not JSON of lockstep predict", path.string()));
  for (const auto& [key, value] : mine.items()) {
    const Json other = theirs.value(key, Json(nullptr));
    require(other == value,
            fmt::format("{}: this folder has predictions with {} = {}, and now it is {}: name "
                        "another folder",
                        path.string(), key, json_text(other), json_text(value)));
  }
}

/// `publish`, unless `path` is there: another worker may make it meanwhile, and clear away what
/// this one has begun. Says whether this one made it.
template <class Publish>
bool publish_unless_there(const fs::path& path, const Publish& publish) {
  if (fs::exists(path)) return false;
  try {
    return publish();
  } catch (const Error&) {
    if (!fs::exists(path)) throw;
    return false;
  }
}

}  // namespace

struct PredictJob::Impl {
  const PredictSpec spec;
  const InputRows& rows;
  const SwarmFolder folder;
  const Pieces pieces;
  const PredictionColumns columns;
  const double start_s = now_s();
  std::string job;                ///< identifies it, in its files
  std::vector<bool> there;        ///< pieces whose part was there at the last look
  std::size_t rows_at_start = 0;  ///< that were predicted before

  Impl(PredictSpec what, const InputRows& from)
      : spec(std::move(what)),
        rows(from),
        folder{spec.out},
        pieces(rows.info().rows, spec.batch, spec.piece_rows),
        columns(columns_of(spec, rows)),
        there(pieces.count()) {
    make_directories(folder.parts());
    const Json note = describe_job(spec, rows, pieces);
    job = hash_of({json_text(note)});
    look_at_parts();  // before the note, which is there before any part
    rows_at_start = rows_there();
    const bool begun = rows_at_start > 0 || fs::exists(folder.merged()) || fs::exists(folder.csv());
    if (!fs::exists(folder.note())) {
      require(!begun, fmt::format("{}: has predictions, but predict.json, which says of what, is "
                                  "missing: name another folder",
                                  folder.root.string()));
      publish_text(folder.note(), json_text(note, 2) + "\n");
    }
    require_same_job(folder.note(), note);
  }

  PartOf all() const { return {job, 0, rows.info().rows}; }

  bool finished() const {
    return fs::exists(folder.merged()) && (!spec.csv || fs::exists(folder.csv()));
  }

  /// One listing: a shared file system answers slowly.
  void look_at_parts() {
    std::error_code none;
    there.assign(there.size(), false);
    for (fs::directory_iterator at(folder.parts(), none), end; !none && at != end;
         at.increment(none))
      if (const auto number = folder.number_of(at->path()); number && *number < there.size())
        there[*number] = true;
  }

  std::vector<std::size_t> pieces_left() {
    look_at_parts();
    std::vector<std::size_t> left;
    for (std::size_t number = 0; number < there.size(); ++number)
      if (!there[number]) left.push_back(number);
    return left;
  }

  std::size_t rows_there() const {
    std::size_t sum = 0;
    for (std::size_t number = 0; number < there.size(); ++number)
      if (there[number]) sum += pieces.piece(number).rows;
    return sum;
  }

  /// Whether all parts are what this job wrote. Others are removed, to be predicted again.
  bool parts_are_whole() const {
    bool whole = true;
    for (std::size_t number = 0; number < pieces.count(); ++number) {
      const fs::path path = folder.part(number);
      const Piece piece = pieces.piece(number);
      const auto problem = why_no_part(path, {job, piece.first, piece.rows});
      if (!problem) continue;
      whole = false;
      if (!fs::exists(path)) continue;  // another worker has just removed it
      log::warn(fmt::format("{}; its rows are predicted again", *problem));
      std::error_code failed;
      fs::remove(path, failed);
      if (failed) fail_by_system("cannot remove " + path.string(), failed.value());
    }
    return whole;
  }

  void merge() const {
    std::vector<fs::path> parts;
    for (std::size_t number = 0; number < pieces.count(); ++number)
      parts.push_back(folder.part(number));
    if (spec.csv)
      publish_unless_there(folder.csv(),
                           [&] { return publish_csv(folder.csv(), parts, columns, spec.classes); });
    publish_unless_there(folder.merged(), [&] {
      return publish_merged(folder.merged(), parts, columns, all(), spec.classes);
    });
    clear_away();
  }

  /// The claims, and what workers that were killed had begun to write.
  void clear_away() const {
    std::error_code none;
    fs::remove_all(folder.claims(), none);
    remove_temporaries(folder.parts(), ".h5");
    for (const char* result : {"predictions.h5", "predictions.csv"})
      remove_temporaries(folder.root, result);
  }
};

/// One worker's time in a job: what it holds, and what it did.
class PredictJob::Stay {
 public:
  Stay(Impl& job, const PredictWorker& worker)
      : job_(job),
        worker_(worker),
        claims_({.claims = job.folder.claims(),
                 .beat_s = job.spec.beat_s,
                 .stale_s = job.spec.stale_s}),
        predictor_({.columns = job.columns,
                    .classes = job.spec.classes.size(),
                    .batch = job.spec.batch,
                    .workers = worker.readers,
                    .bind_worker = worker.bind_reader,
                    .skip_unread = job.spec.skip_unread,
                    .said = {.task = job.spec.task,
                             .target_mean = job.spec.target_mean,
                             .target_stddev = job.spec.target_stddev}},
                   worker.model, worker.device, job.rows) {}

  /// Everything until the result is there, or this worker stops.
  Predicted work() {
    while (!job_.finished() && !stops(held_.empty() ? longest_s_ : 0)) {
      if (!held_.empty()) {
        predict_one();
        continue;
      }
      const std::vector<std::size_t> left = job_.pieces_left();
      const bool moved = left.empty() ? merge() : begin_one(left);
      moved ? void(nap_s_ = shortest_nap_s) : nap();
    }
    log::end_progress();
    return done_;
  }

 private:
  static constexpr double shortest_nap_s = 0.05, longest_nap_s = 1, look_s = 2;

  /// `needed_s`: for what would begin now.
  bool stops(double needed_s) {
    show_progress();
    stopped_ = stopped_ || worker_.stop(needed_s);
    return stopped_;
  }

  void nap() {
    std::this_thread::sleep_for(std::chrono::duration<double>(nap_s_));
    nap_s_ = std::min(2 * nap_s_, longest_nap_s);
  }

  /// Holds and begins one of `left`; false where others hold them all.
  bool begin_one(const std::vector<std::size_t>& left) {
    const std::optional<std::size_t> number = claims_.take_any(left);
    if (!number) return false;
    if (fs::exists(job_.folder.part(*number))) {  // its holder has published it just now
      claims_.release(*number);
      return true;
    }
    if (began_s_ == 0) began_s_ = now_s();
    held_.push_back(*number);
    predictor_.begin(job_.pieces.piece(*number));
    return true;
  }

  void predict_one() {
    const double start_s = now_s();
    const auto begin_next = [this] {
      if (worker_.stop(longest_s_)) return;
      std::vector<std::size_t> left = job_.pieces_left();
      std::erase(left, held_.front());
      if (!left.empty()) begin_one(left);
    };
    const std::size_t number = held_.front();
    const auto was_overtaken = [&] { return job_.there[number]; };
    const auto part = predictor_.finish(begin_next, [&] { return stops(0) || was_overtaken(); });
    if (!part && !was_overtaken()) return;
    const fs::path path = job_.folder.part(number);
    if (part && publish_unless_there(path, [&] { return publish_part(path, *part, job_.job); })) {
      ++done_.own_pieces;
      done_.own_rows += part->rows();
    }
    claims_.release(number);
    held_.pop_front();
    done_.own_s = now_s() - began_s_;
    longest_s_ = std::max(longest_s_, now_s() - start_s);
  }

  bool merge() {
    const std::size_t after_pieces = job_.pieces.count();
    if (!claims_.take_any({after_pieces})) return false;
    if (!job_.finished() && job_.parts_are_whole()) job_.merge();
    claims_.release(after_pieces);
    return true;
  }

  /// Of all workers together.
  void show_progress() {
    if (now_s() < looked_s_ + look_s) return;
    job_.look_at_parts();
    looked_s_ = now_s();
    const std::size_t all = job_.rows.info().rows, rows = job_.rows_there();
    const double more = static_cast<double>(rows) - static_cast<double>(job_.rows_at_start);
    const double rate = std::max(more, 0.0) / (looked_s_ - job_.start_s);
    log::progress(
        fmt::format("predicting {:3.0f} %  {} of {} rows, {:.0f} rows/s, {}, {} left",
                    100 * static_cast<double>(rows) / static_cast<double>(all), rows, all, rate,
                    counted(claims_.workers(), "worker"),
                    rate > 0 ? human_seconds(static_cast<double>(all - rows) / rate) : "?"));
  }

  Impl& job_;
  const PredictWorker& worker_;
  WorkFolder claims_;
  std::deque<std::size_t> held_;  ///< pieces that were begun, the first is next
  Predictor predictor_;
  Predicted done_;
  bool stopped_ = false;
  double began_s_ = 0, longest_s_ = 0, looked_s_ = now_s(), nap_s_ = shortest_nap_s;
};

bool holds_job(const fs::path& folder) {
  return fs::exists(SwarmFolder{folder}.note()) || fs::exists(SwarmFolder{folder}.parts());
}

PredictJob::PredictJob(PredictSpec spec, const InputRows& rows)
    : impl_(std::make_unique<Impl>(std::move(spec), rows)) {}
PredictJob::~PredictJob() = default;

bool PredictJob::finished() const { return impl_->finished(); }

Predicted PredictJob::work(const PredictWorker& worker) {
  const Predicted own = Stay(*impl_, worker).work();
  if (!impl_->finished()) return own;
  Predicted all = result();
  all.own_pieces = own.own_pieces;
  all.own_rows = own.own_rows;
  all.own_s = own.own_s;
  return all;
}

Predicted PredictJob::result() const {
  PredictionCounts counts;
  try {
    counts = count_predictions(impl_->folder.merged(), impl_->columns, impl_->all());
    if (impl_->spec.csv)
      require_whole_csv(impl_->folder.csv(), counts.rows, impl_->columns, impl_->spec.classes);
  } catch (const InputError& error) {
    throw InputError(fmt::format("{}; remove it, and the next start makes it again", error.what()));
  }
  return {.finished = true,
          .rows = counts.rows,
          .labelled = counts.labelled,
          .right = counts.right,
          .unread = counts.unread,
          .no_numbers = counts.no_numbers,
          .pieces = impl_->pieces.count()};
}

}  // namespace lockstep::serve
