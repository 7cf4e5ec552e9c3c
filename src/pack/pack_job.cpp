#include "lockstep/pack/pack_job.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/data/shard/data_set.hpp"
#include "pack/pack_folder.hpp"
#include "pack/packer.hpp"

namespace lockstep::pack {
namespace {

namespace fs = std::filesystem;
using comm::Control, comm::together;

constexpr std::size_t listed = 20;  // the most unreadable images to name on the screen

/// The ranks divide the rows by number, so they must all see the same files.
void require_same_files(Control& control, const std::string& images) {
  const std::string differs = comm::disagreement(control, images, "pack: files");
  require(differs.empty(), fmt::format("the ranks do not see the same files: {}", differs));
}

void show_progress(double done, double before, double all, double seconds) {
  const double rate = (done - before) / std::max(seconds, 1e-3);
  log::progress(fmt::format("packing {:3.0f} %  {:.0f} of {:.0f} images, {:.0f} images/s, {} left",
                            100 * done / all, done, all, rate,
                            rate > 0 ? human_seconds((all - done) / rate) : "?"));
}

/// `folder`: on rank 0. `before`: rows of the shards that were already finished. False if it was
/// stopped.
bool write_all(Control& control, Packer& packer, const std::optional<PackFolder>& folder,
               std::size_t before, std::size_t rows, const std::function<bool()>& stop) {
  const double start = now_s();
  const auto finished_rows = static_cast<double>(before);
  for (bool finished = false; !finished;) {
    together(control, "pack: rows", [&] {
      packer.advance(round_s);
      if (folder) folder->require_own();
    });
    const std::vector<double> state =
        control.sum({static_cast<double>(packer.rows_done()), packer.finished() ? 1.0 : 0.0,
                     stop() ? 1.0 : 0.0},
                    "pack: rows");
    show_progress(finished_rows + state[0], finished_rows, static_cast<double>(rows),
                  now_s() - start);
    finished = state[1] == control.world();
    if (!finished && state[2] > 0) return false;
  }
  log::end_progress();
  return true;
}

void report_skipped(const std::vector<SkippedRow>& skipped, const fs::path& out) {
  for (std::size_t i = 0; i < std::min(listed, skipped.size()); ++i)
    log::warn(fmt::format("skipped {}", skipped[i].reason));
  log::warn(fmt::format("{} unreadable image{} skipped; all are listed in {}", skipped.size(),
                        skipped.size() == 1 ? " was" : "s were", (out / "skipped.txt").string()));
}

/// " of uint16"; empty for uint8.
std::string of_element(const data::DataSetInfo& info) {
  return info.element == data::Element::u8 ? "" : fmt::format(" of {}", choice_name(info.element));
}

void summarise(const fs::path& out, bool jpeg, const data::DataSetInfo& info, const Totals& all,
               const std::vector<ShardPlan>& plan, std::size_t rows_now, double seconds) {
  const std::size_t rows = all.training_rows + all.validation_rows;
  const auto training_shards = static_cast<std::size_t>(std::count_if(
      plan.begin(), plan.end(), [](const ShardPlan& shard) { return shard.training; }));
  const std::string form = jpeg ? std::string("JPEGs")
                                : fmt::format("{} x {} x {}{}", info.height, info.width,
                                              info.channels, of_element(info));
  log::info(fmt::format("packed {} of {} as {}, {}, in {} ({:.0f} images/s)",
                        counted(rows, "image"), data::say_outputs(info.classes.size(), info.task),
                        form, human_bytes(static_cast<double>(all.bytes)), human_seconds(seconds),
                        static_cast<double>(rows_now) / seconds));
  const auto part = [&](const char* name, std::size_t part_rows, std::size_t shards) {
    log::info(fmt::format("  {}: {} in {}", (out / name).string(), counted(part_rows, "row"),
                          counted(shards, "shard")));
  };
  part("train", all.training_rows, training_shards);
  if (all.validation_rows > 0) part("val", all.validation_rows, plan.size() - training_shards);
  const auto in_units = [&](const std::vector<float>& values) {
    return info.element == data::Element::u8 ? fmt::format("{:.4f}", fmt::join(values, " "))
                                             : join(values, " ");
  };
  log::info(fmt::format("  mean {}, deviation {}; peak memory {} a rank", in_units(all.sums.mean()),
                        in_units(all.sums.stddev()),
                        human_bytes(static_cast<double>(peak_resident_bytes()))));
}

/// The first of them, and how many more there are.
std::string first_of(std::vector<std::string> names) {
  const std::size_t more = names.size() - std::min(listed, names.size());
  names.resize(names.size() - more);
  return join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

/// Other programs read class names as text: shards, checkpoints and JSON have them.
void require_utf8(const Source& source) {
  const std::vector<std::string>& names = source.classes();
  for (std::size_t c = 0; c < names.size(); ++c) {
    if (valid_utf8(names[c]) == names[c]) continue;
    std::size_t row = 0;
    while (row < source.rows() && static_cast<std::size_t>(source.label(row)) != c) ++row;
    throw InputError(fmt::format(
        "{}: the class \"{}\" has a name that is not UTF-8: rename the folder (convmv -f latin1 -t "
        "utf8), or convert the list or the names (iconv -f latin1 -t utf8)",
        row < source.rows() ? as_bytes(source.where(row)) : "class " + std::to_string(c),
        as_bytes(names[c])));
  }
}

/// The work of one call of `lockstep pack`.
class PackJob {
 public:
  PackJob(PackRequest request, Control& control, const std::function<bool()>& stop)
      : request_(std::move(request)),
        spec_(request_.spec),
        control_(control),
        stop_(stop),
        partial_(PackFolder::partial(request_.out)) {}

  /// False if it was stopped.
  bool run() {
    const double start = now_s();
    if (take_folder()) return true;
    control_.activity.enter(comm::Phase::data);
    read_source();
    const std::size_t before = take_up();
    if (!write(before)) return false;
    finish();
    summarise(request_.out, spec_.jpeg, info_, totals_, plan_, source_->rows() - before,
              now_s() - start);
    return true;
  }

 private:
  bool first() const { return control_.rank() == 0; }
  bool mine(std::size_t shard) const {
    return shard % static_cast<std::size_t>(control_.world()) ==
           static_cast<std::size_t>(control_.rank());
  }

  /// True when there is nothing left to do.
  bool take_folder() {
    together(control_, "pack: folder", [&] {
      if (first()) folder_.emplace(request_.out, request_.force, request_.options);
    });
    if (!control_.any(first() && folder_->was_complete(), "pack: folder")) return false;
    log::info(
        fmt::format("{}: the previous, interrupted pack had finished; its shards are now in place",
                    request_.out.string()));
    return true;
  }

  /// Opens the source and decides what is held out.
  std::unique_ptr<Source> open() {
    std::unique_ptr<Source> source = request_.source.kind == "shapes"
                                         ? make_shapes(request_.shapes)
                                         : open_source(request_.source, partial_ / "index");
    require_utf8(*source);
    const bool own_split = source->training_rows() < source->rows();
    require(!own_split || !request_.held_out,
            "--held-out is for sources without a test split; this one has its own");
    spec_.held_out = own_split ? 0 : request_.held_out.value_or(request_.default_held_out);
    if (!own_split && spec_.held_out > 0)
      log::info(
          fmt::format("the source has no test split: {:g} % of each class's rows are held out for "
                      "validation (--held-out)",
                      spec_.held_out * 100));
    return source;
  }

  void read_source() {
    share_index(control_, request_.source, partial_ / "index");
    std::string images;
    together(control_, "pack: source", [&] {
      source_ = open();
      images = source_->fingerprint();
    });
    for (const std::string& remark : source_->remarks()) log::info(one_line(remark));
    together(control_, "pack: files", [&] { require_same_files(control_, images); });
    std::size_t row_bytes = 0;
    together(control_, "pack: source", [&] {
      info_ = packed_info(*source_, spec_);
      row_bytes = packed_row_bytes(*source_, spec_, info_);
    });
    if (info_.element != data::Element::u8 && source_->stored() == nullptr && !spec_.element)
      log::info(
          fmt::format("{}: is a PNG of 16 bits, so images are packed as {} (--element uint8 "
                      "drops their low 8 bits)",
                      source_->name(0), choice_name(info_.element)));
    plan_ = plan_shards(*source_, spec_, row_bytes);
    const std::string none = say_not_held_out(*source_, spec_, plan_);
    if (first() && !none.empty()) log::warn(none);
    images_ =
        fmt::format("images = {}\nshape = {} x {} x {}{}\nshards = {}\n", images, info_.height,
                    info_.width, info_.channels, of_element(info_), plan_.size());
  }

  /// Takes over what an interrupted pack has finished, and returns the number of rows.
  std::size_t take_up() {
    std::string done(plan_.size(), '0');
    together(control_, "pack: plan", [&] {
      if (!first() || !folder_->resume(images_)) return;
      for (std::size_t s = 0; s < plan_.size(); ++s)
        if (const auto note = read_note(partial_, plan_[s], info_)) {
          require_welcome(*note);
          done[s] = '1';
        }
    });
    done = control_.broadcast(done, "pack: plan");
    std::size_t rows = 0, finished = 0;
    std::vector<ShardPlan> own;
    for (std::size_t s = 0, left = 0; s < plan_.size(); ++s) {
      if (done[s] == '1') {
        rows += plan_[s].rows.size();
        ++finished;
      } else if (mine(left++)) {
        own.push_back(plan_[s]);
      }
    }
    if (finished > 0)
      log::info(fmt::format("resuming an interrupted pack: {} of {} finished", finished,
                            counted(plan_.size(), "shard")));
    packer_.emplace(*source_, spec_, info_, partial_, std::move(own));
    return rows;
  }

  void require_welcome(const FinishedShard& note) const {
    require(
        spec_.skip_bad || note.skipped.empty(),
        fmt::format("an interrupted pack left images out, the first: {}; continue with --skip-bad",
                    note.skipped.empty() ? "" : note.skipped[0].reason));
  }

  bool write(std::size_t before) {
    try {
      const bool finished = write_all(control_, *packer_, folder_, before, source_->rows(), stop_);
      if (!finished) say_kept("stopped on a signal: ");
      return finished;
    } catch (const Error&) {
      say_kept("");
      throw;
    }
  }

  void say_kept(const std::string& why) const {
    if (first() && (!why.empty() || folder_->finished_shards() > 0))
      log::info(fmt::format(
          "{}{} of {} finished, kept in {}: run the same command again for the others", why,
          folder_->finished_shards(), counted(plan_.size(), "shard"), partial_.string()));
  }

  void finish() {
    together(control_, "pack: totals", [&] {
      if (!first()) return;
      totals_ = read_totals(partial_, plan_, info_);
      require(totals_.training_rows > 0,
              fmt::format("none of the images is readable; the first: {}", source_->name(0)));
    });
    const std::vector<SkippedRow>& skipped = totals_.skipped;
    const auto of_first = [&](const std::vector<float>& values) {
      return comm::broadcast_record(control_, values, "pack: totals");
    };
    const std::vector<float> mean = of_first(totals_.sums.mean());
    const std::vector<float> stddev = of_first(totals_.sums.stddev());
    together(control_, "pack: normalisation", [&] {
      for (std::size_t s = 0; s < plan_.size(); ++s)
        if (mine(s) && fs::exists(partial_ / plan_[s].file))
          data::set_normalisation(partial_ / plan_[s].file, mean, stddev);
    });
    std::vector<std::string> equal;
    together(control_, "pack: in place", [&] {
      if (!first()) return;
      equal = say_equal_images(*source_, plan_, partial_);
      std::string reasons;
      for (const SkippedRow& bad : skipped) reasons += bad.reason + "\n";
      if (!skipped.empty()) write_text_atomically(partial_ / "skipped.txt", reasons);
      folder_->commit();
    });
    for (const std::string& text : equal) log::warn(one_line(text));
    if (skipped.empty() || !first()) return;
    report_skipped(skipped, request_.out);
    if (source_->task() != data::Task::classes) return;
    const std::vector<std::string> lost = lost_classes(*source_, plan_, skipped);
    if (!lost.empty())
      log::warn(
          fmt::format("{} of {} lost all of their training images, nothing is left to learn them "
                      "from: {}",
                      lost.size(), counted(info_.classes.size(), "class"), first_of(lost)));
  }

  const PackRequest request_;
  PackSpec spec_;  ///< with what is held out
  Control& control_;
  const std::function<bool()>& stop_;
  fs::path partial_;
  std::optional<PackFolder> folder_;  ///< on rank 0
  std::unique_ptr<Source> source_;
  data::DataSetInfo info_;
  std::vector<ShardPlan> plan_;
  std::string images_;  ///< what determines the shards
  std::optional<Packer> packer_;
  Totals totals_;  ///< on rank 0
};

}  // namespace

bool run_pack(Control& control, const std::function<PackRequest()>& resolve,
              const std::function<bool()>& stop) {
  PackRequest request;
  together(control, "pack: command", [&] { request = resolve(); });
  return PackJob(std::move(request), control, stop).run();
}

}  // namespace lockstep::pack
