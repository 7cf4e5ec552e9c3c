#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "app/cli/pack_options.hpp"
#include "app/commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/join.hpp"
#include "lockstep/comm/activity.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/comm/record.hpp"
#include "lockstep/data/pack/pack_folder.hpp"
#include "lockstep/data/pack/pack_note.hpp"
#include "lockstep/data/pack/pack_row.hpp"
#include "lockstep/data/pack/packer.hpp"
#include "lockstep/data/shard/shard_normalisation.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using comm::Control;

constexpr double round_s = 0.1;           // between two exchanges with the other ranks
constexpr double shard_deadline_s = 600;  // for an image from a slow disk, or a shard to it
constexpr std::size_t listed = 20;        // the most unreadable images to name on the screen

/// Why a rank could not do its part.
struct Failure {
  bool input = false;  ///< the input was at fault
  std::string text;
  static void fields(auto& self, auto&& visit) { visit(self.input, self.text); }
};

/// Runs `work` on every rank. If it fails on any, all throw the same error, that of the lowest
/// failing rank. So no rank waits for one that is gone, and all can tidy up.
template <class Work>
void together(Control& control, std::string_view phase, Work work) {
  std::optional<Failure> failure;
  try {
    work();
  } catch (const InputError& error) {
    failure = {true, error.what()};
  } catch (const std::exception& error) {
    failure = {false, error.what()};
  }
  const std::string none = comm::write_record(std::optional<Failure>());
  const auto first = [&none](const std::vector<std::string>& all) {
    return *std::find_if(all.begin(), all.end() - 1, [&](auto& one) { return one != none; });
  };
  const auto found = comm::read_record<std::optional<Failure>>(
      control.combine(comm::write_record(failure), phase, first));
  if (found && found->input) throw InputError(found->text);
  if (found) throw Error(found->text);
}

/// The ranks share the pieces of the source, so that each is searched and unpacked once. A piece
/// may take long, so a thread does it while the ranks stay in touch.
void make_index(Control& control, const data::SourceSpec& source, const fs::path& folder) {
  std::size_t pieces = 0;
  together(control, "pack: index", [&] { pieces = data::index_count(source); });
  if (pieces == 0) return;
  const auto rank = static_cast<std::size_t>(control.rank());
  const auto world = static_cast<std::size_t>(control.world());
  std::atomic<std::size_t> finished = 0;
  std::atomic<bool> given_up = false;
  std::future<void> own = std::async(std::launch::async, [&] {
    for (std::size_t piece = rank; piece < pieces && !given_up; piece += world) {
      data::index_piece(source, piece, folder);
      ++finished;
    }
  });
  // Stops the thread before its future waits for it, also when another rank has failed.
  const struct Stop {
    std::atomic<bool>& flag;
    ~Stop() { flag = true; }
  } stop{given_up};
  const std::chrono::duration<double> round(round_s);
  for (bool all = false; !all;) {
    if (!own.valid()) std::this_thread::sleep_for(round);
    const bool ready = own.valid() && own.wait_for(round) == std::future_status::ready;
    together(control, "pack: index", [&] {
      if (ready) own.get();
    });
    const std::vector<double> state =
        control.sum({static_cast<double>(finished), own.valid() ? 0.0 : 1.0}, "pack: index");
    all = state[1] == control.world();
    if (!all)
      log::progress(fmt::format("looking for images: {:.0f} of {} {} done", state[0], pieces,
                                source.kind == "tar" ? "tars" : "sources"));
  }
  log::end_progress();
}

/// The ranks divide the rows by number, so they must all see the same files.
void require_same_files(Control& control, const std::string& images) {
  const std::string differs = comm::disagreement(control, images, "pack: files");
  require(differs.empty(), fmt::format("the ranks do not see the same files: {}", differs));
}

/// Sums integers over the ranks exactly: in halves, because doubles hold 53 bits.
std::vector<std::uint64_t> sum(Control& control, const std::vector<std::uint64_t>& values) {
  std::vector<double> halves;
  for (const std::uint64_t value : values) {
    halves.push_back(static_cast<double>(value >> 32));
    halves.push_back(static_cast<double>(value & 0xFFFFFFFFu));
  }
  halves = control.sum(halves, "pack: totals");
  std::vector<std::uint64_t> total;
  for (std::size_t i = 0; i < halves.size(); i += 2)
    total.push_back((static_cast<std::uint64_t>(halves[i]) << 32) +
                    static_cast<std::uint64_t>(halves[i + 1]));
  return total;
}

void show_progress(double done, double before, double all, double seconds) {
  const double rate = (done - before) / std::max(seconds, 1e-3);
  log::progress(fmt::format("packing {:3.0f} %  {:.0f} of {:.0f} images, {:.0f} images/s, {} left",
                            100 * done / all, done, all, rate,
                            rate > 0 ? human_seconds((all - done) / rate) : "?"));
}

/// `before`: rows of the shards that were already finished.
void write_all(Control& control, data::Packer& packer, std::size_t before, std::size_t rows) {
  const double start = now_s();
  const auto finished_rows = static_cast<double>(before);
  for (bool finished = false; !finished;) {
    together(control, "pack: rows", [&] { packer.advance(round_s); });
    const std::vector<double> state = control.sum(
        {static_cast<double>(packer.rows_done()), packer.finished() ? 1.0 : 0.0}, "pack: rows");
    show_progress(finished_rows + state[0], finished_rows, static_cast<double>(rows),
                  now_s() - start);
    finished = state[1] == control.world();
  }
  log::end_progress();
}

/// What all ranks wrote together, without the list of skipped rows.
data::Tally add_up(Control& control, const data::Tally& own) {
  std::vector<std::uint64_t> values{own.training_rows, own.validation_rows, own.bytes,
                                    own.sums.pixels};
  values.insert(values.end(), own.sums.sum.begin(), own.sums.sum.end());
  values.insert(values.end(), own.sums.squares.begin(), own.sums.squares.end());
  values = sum(control, values);
  const std::size_t channels = own.sums.sum.size();
  data::Tally all(channels);
  all.training_rows = values[0];
  all.validation_rows = values[1];
  all.bytes = values[2];
  all.sums.pixels = values[3];
  std::copy_n(values.begin() + 4, channels, all.sums.sum.begin());
  std::copy_n(values.begin() + 4 + static_cast<std::ptrdiff_t>(channels), channels,
              all.sums.squares.begin());
  return all;
}

/// All ranks' unreadable images in the source's order.
std::vector<data::SkippedRow> gather_skipped(Control& control, const data::Tally& tally) {
  std::vector<data::SkippedRow> skipped =
      comm::join_records(control, tally.skipped, "pack: skipped");
  std::sort(skipped.begin(), skipped.end(),
            [](const data::SkippedRow& a, const data::SkippedRow& b) { return a.row < b.row; });
  return skipped;
}

/// Classes without any training image left.
std::vector<std::string> lost_classes(const data::Source& source,
                                      const std::vector<data::ShardPlan>& plan,
                                      const std::vector<data::SkippedRow>& skipped) {
  std::vector<bool> out(source.rows(), false);
  for (const data::SkippedRow& bad : skipped) out[bad.row] = true;
  std::vector<std::size_t> rows(source.classes().size(), 0), left = rows;
  for (const data::ShardPlan& shard : plan) {
    if (!shard.training) continue;
    for (const std::size_t row : shard.rows) {
      const auto label = static_cast<std::size_t>(source.label(row));
      ++rows[label];
      if (!out[row]) ++left[label];
    }
  }
  std::vector<std::string> lost;
  for (std::size_t c = 0; c < rows.size(); ++c)
    if (rows[c] > 0 && left[c] == 0)
      lost.push_back(fmt::format("'{}' ({})", source.classes()[c], rows[c]));
  return lost;
}

void report_skipped(const std::vector<data::SkippedRow>& skipped, const fs::path& out) {
  for (std::size_t i = 0; i < std::min(listed, skipped.size()); ++i)
    log::warn(fmt::format("skipped {}", skipped[i].reason));
  log::warn(fmt::format("{} unreadable image{} skipped; all are listed in {}", skipped.size(),
                        skipped.size() == 1 ? " was" : "s were", (out / "skipped.txt").string()));
}

void summarise(const PackOptions& options, const data::DataSetInfo& info, const data::Tally& all,
               const std::vector<data::ShardPlan>& plan, std::size_t rows_now, double seconds) {
  const std::size_t rows = all.training_rows + all.validation_rows;
  const auto training_shards = static_cast<std::size_t>(std::count_if(
      plan.begin(), plan.end(), [](const data::ShardPlan& shard) { return shard.training; }));
  const std::string form =
      options.spec.jpeg ? std::string("JPEGs")
                        : fmt::format("{} x {} x {}", info.height, info.width, info.channels);
  log::info(fmt::format("packed {} of {} as {}, {}, in {} ({:.0f} images/s)",
                        counted(rows, "image"), counted(info.classes.size(), "class"), form,
                        human_bytes(static_cast<double>(all.bytes)), human_seconds(seconds),
                        static_cast<double>(rows_now) / seconds));
  const auto part = [&](const char* name, std::size_t part_rows, std::size_t shards) {
    log::info(fmt::format("  {}: {} in {}", (options.out / name).string(),
                          counted(part_rows, "row"), counted(shards, "shard")));
  };
  part("train", all.training_rows, training_shards);
  if (all.validation_rows > 0) part("val", all.validation_rows, plan.size() - training_shards);
  log::info(fmt::format("  mean {:.4f}, deviation {:.4f}; peak memory {} a rank",
                        fmt::join(all.sums.mean(), " "), fmt::join(all.sums.stddev(), " "),
                        human_bytes(static_cast<double>(peak_resident_bytes()))));
}

/// The first of them, and how many more there are.
std::string first_of(std::vector<std::string> names) {
  const std::size_t more = names.size() - std::min(listed, names.size());
  names.resize(names.size() - more);
  return join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

/// The work of one call of `lockstep pack`.
class PackJob {
 public:
  PackJob(PackOptions& options, Control& control)
      : options_(options), control_(control), partial_(data::PackFolder::partial(options.out)) {}

  void run() {
    const double start = now_s();
    together(control_, "pack: command", [&] { resolve_pack_options(options_); });
    if (take_folder()) return;
    comm::activity::enter(comm::Phase::data);
    read_source();
    const std::size_t before = take_up();
    write(before);
    finish();
    summarise(options_, info_, totals_, plan_, source_->rows() - before, now_s() - start);
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
      if (first()) folder_.emplace(options_.out, options_.force, describe_pack(options_));
    });
    if (!control_.any(first() && folder_->was_complete(), "pack: folder")) return false;
    log::info(
        fmt::format("{}: the previous, interrupted pack had finished; its shards are now in place",
                    options_.out.string()));
    return true;
  }

  void read_source() {
    make_index(control_, options_.source, partial_ / "index");
    std::string images;
    together(control_, "pack: source", [&] {
      source_ = open_pack_source(options_, partial_ / "index");
      images = source_->fingerprint();
    });
    for (const std::string& remark : source_->remarks()) log::info(remark);
    together(control_, "pack: files", [&] { require_same_files(control_, images); });
    std::size_t row_bytes = 0;
    together(control_, "pack: source", [&] {
      info_ = data::packed_info(*source_, options_.spec);
      row_bytes = data::packed_row_bytes(*source_, options_.spec, info_);
    });
    plan_ = data::plan_shards(*source_, options_.spec, row_bytes);
    const std::string none = data::say_none_held_out(*source_, options_.spec, plan_);
    if (first() && !none.empty()) log::warn(none);
    images_ = fmt::format("images = {}\nshape = {} x {} x {}\nshards = {}\n", images, info_.height,
                          info_.width, info_.channels, plan_.size());
  }

  /// Takes over what an interrupted pack has finished, and returns the number of rows.
  std::size_t take_up() {
    tally_.emplace(info_.channels);
    std::string done(plan_.size(), '0');
    together(control_, "pack: plan", [&] {
      if (!first() || !folder_->resume(images_)) return;
      for (std::size_t s = 0; s < plan_.size(); ++s)
        if (const auto note = data::read_note(partial_, plan_[s], info_.channels)) {
          require_welcome(*note);
          tally_->add(plan_[s], *note);
          done[s] = '1';
        }
    });
    done = control_.broadcast(done, "pack: plan");
    std::size_t rows = 0, finished = 0;
    std::vector<data::ShardPlan> own;
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
    packer_.emplace(*source_, options_.spec, info_, partial_, std::move(own));
    return rows;
  }

  void require_welcome(const data::FinishedShard& note) const {
    require(
        options_.spec.skip_bad || note.skipped.empty(),
        fmt::format("an interrupted pack left images out, the first: {}; continue with --skip-bad",
                    note.skipped.empty() ? "" : note.skipped[0].reason));
  }

  void write(std::size_t before) {
    try {
      write_all(control_, *packer_, before, source_->rows());
    } catch (const InputError&) {
      if (first() && folder_->finished_shards() > 0)
        log::info(fmt::format(
            "{} of {} finished, kept in {}: run the same command again for the others",
            folder_->finished_shards(), counted(plan_.size(), "shard"), partial_.string()));
      throw;
    }
  }

  void finish() {
    tally_->add(packer_->tally());
    totals_ = add_up(control_, *tally_);
    require(totals_.training_rows > 0,
            fmt::format("none of the images is readable; the first: {}", source_->name(0)));
    const std::vector<data::SkippedRow> skipped = gather_skipped(control_, *tally_);
    together(control_, "pack: normalisation", [&] {
      const std::vector<float> mean = totals_.sums.mean(), stddev = totals_.sums.stddev();
      for (std::size_t s = 0; s < plan_.size(); ++s)
        if (mine(s) && fs::exists(partial_ / plan_[s].file))
          data::set_normalisation(partial_ / plan_[s].file, mean, stddev);
    });
    together(control_, "pack: in place", [&] {
      if (!first()) return;
      std::string reasons;
      for (const data::SkippedRow& bad : skipped) reasons += bad.reason + "\n";
      if (!skipped.empty()) write_text_atomically(partial_ / "skipped.txt", reasons);
      folder_->commit();
    });
    if (skipped.empty() || !first()) return;
    report_skipped(skipped, options_.out);
    const std::vector<std::string> lost = lost_classes(*source_, plan_, skipped);
    if (!lost.empty())
      log::warn(
          fmt::format("{} of {} lost all of their training images, nothing is left to learn them "
                      "from: {}",
                      lost.size(), counted(info_.classes.size(), "class"), first_of(lost)));
  }

  PackOptions& options_;
  Control& control_;
  fs::path partial_;
  std::optional<data::PackFolder> folder_;  ///< on rank 0
  std::unique_ptr<data::Source> source_;
  data::DataSetInfo info_;
  std::vector<data::ShardPlan> plan_;
  std::string images_;  ///< what determines the shards
  std::optional<data::Packer> packer_;
  std::optional<data::Tally> tally_;
  data::Tally totals_{0};
};

}  // namespace

Command add_pack(Arguments root) {
  Arguments app = root.add_command(
      "pack",
      "make shards from class folders of JPEG or PNG images, lists of paths and labels, tars "
      "(WebDataset's, too), CIFAR-10/100 binary files, MNIST-style IDX files, or generated shapes; "
      "under mpirun or srun all ranks share the work; resumes after an interruption");
  const auto options = std::make_shared<PackOptions>();
  add_pack_options(app, *options);
  return {app, [options](Launch& launch) {
            launch.start(shard_deadline_s);
            PackJob(*options, *launch.control).run();
            return 0;
          }};
}

}  // namespace lockstep::app
