#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "commands.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/shapes.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;
using comm::Control;

struct Options {
  std::string from, resize;
  fs::path source, out;
  std::optional<double> held_out;
  std::optional<std::size_t> training_rows, validation_rows;
  std::optional<int> quality;
  data::PackSpec spec;
  bool force = false;
};

constexpr double default_held_out = 0.1;
constexpr double round_s = 0.1;     // between two looks at the other ranks
constexpr double deadline_s = 600;  // one image from a slow disk, one shard's way to it
constexpr std::size_t listed = 20;  // unreadable images that are named on the screen

/// Runs `work` on every rank. When it fails on any, all throw the same error, that of the lowest
/// failing rank: nobody waits for a rank that is gone, and what was begun is removed in peace.
template <class Work>
void together(Control& control, std::string_view phase, Work work) {
  std::string failure;  // its kind, then its text
  try {
    work();
  } catch (const InputError& error) {
    failure = std::string("input ") + error.what();
  } catch (const std::exception& error) {
    failure = std::string("error ") + error.what();
  }
  if (!control.any(!failure.empty(), phase)) return;
  for (const std::string& text : control.gather(failure, phase)) {
    if (text.empty()) continue;
    if (text.starts_with("input ")) throw InputError(text.substr(6));
    throw Error(text.substr(6));
  }
}

/// "224" or "192x256", height first.
void parse_size(const std::string& text, data::PackSpec& spec) {
  const auto number = [&](std::string_view part) {
    std::size_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    require(
        error == std::errc() && end == part.data() + part.size() && value >= 1 && value <= 16384,
        fmt::format("--resize {}: expected a side like 224, or height x width like 192x256, "
                    "each at most 16384",
                    text));
    return value;
  };
  const std::string_view view = text;
  const std::size_t cross = view.find('x');
  spec.height = number(view.substr(0, cross));
  spec.width = cross == view.npos ? spec.height : number(view.substr(cross + 1));
}

void settle_form(Options& options) {
  if (!options.resize.empty()) parse_size(options.resize, options.spec);
  options.spec.quality = options.quality.value_or(options.spec.quality);
  if (options.spec.jpeg)
    return require(options.resize.empty(),
                   "--resize makes pixels of one size, --jpeg keeps JPEGs of any size: give one of "
                   "the two (--short-side makes JPEGs smaller)");
  require(options.spec.short_side == 0, "--short-side is for --jpeg; for pixels give --resize");
  require(!options.quality, "--quality is for --jpeg");
}

std::unique_ptr<data::Source> open(Options& options) {
  const bool generated = options.from == "shapes";
  require(generated || !options.source.empty(),
          "nothing to pack: name the folder of images, or use --from shapes");
  if (generated) {
    require(options.source.empty(),
            fmt::format("--from shapes generates its images; what is {} for?",
                        options.source.string()));
    data::ShapesSpec shapes;
    shapes.seed = options.spec.seed;
    shapes.training_rows = options.training_rows.value_or(shapes.training_rows);
    shapes.validation_rows = options.validation_rows.value_or(shapes.validation_rows);
    return data::make_shapes(shapes);
  }
  require(!options.training_rows && !options.validation_rows,
          "--train-rows and --val-rows are for --from shapes; other sources are packed whole");
  if (options.from.empty()) options.from = data::guess_source(options.source);
  return data::open_source(options.from, options.source);
}

void settle_held_out(const data::Source& source, Options& options) {
  const bool own_split = source.training_rows() < source.rows();
  require(!own_split || !options.held_out,
          "--held-out is for sources without a test split; this one has its own");
  options.spec.held_out = own_split ? 0 : options.held_out.value_or(default_held_out);
  if (!own_split)
    log::info(
        fmt::format("no test split there: {:g} % of each class's rows are held out for "
                    "validation (--held-out)",
                    options.spec.held_out * 100));
}

/// The ranks divide the rows by number, so they must all see the same files.
void require_same_files(Control& control, const data::Source& source, const fs::path& folder) {
  std::uint32_t hash = 0;
  for (std::size_t row = 0; row < source.rows(); ++row) {
    const std::string name = source.name(row) + std::to_string(source.label(row));
    hash = crc32c(name.data(), name.size(), hash);
  }
  const std::vector<std::string> seen =
      control.gather(fmt::format("{} images, hash {:08x}", source.rows(), hash), "pack: files");
  for (std::size_t rank = 1; rank < seen.size(); ++rank)
    require(seen[rank] == seen[0],
            fmt::format("{}: rank 0 sees {}, rank {} sees {}: all ranks must see the same files",
                        folder.string(), seen[0], rank, seen[rank]));
}

/// Sums integers over the ranks, exactly: in halves, because doubles carry 53 bits.
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

void show_progress(double done, double all, double seconds) {
  const double rate = done / std::max(seconds, 1e-3);
  log::progress(fmt::format("packing {:3.0f} %  {:.0f} of {:.0f} images, {:.0f} images/s, {} left",
                            100 * done / all, done, all, rate,
                            done > 0 ? human_seconds((all - done) / rate) : "?"));
}

void write_all(Control& control, data::Packer& packer, std::size_t rows) {
  const double start = now_s();
  for (bool finished = false; !finished;) {
    together(control, "pack: rows", [&] { packer.advance(round_s); });
    const std::vector<double> state = control.sum(
        {static_cast<double>(packer.rows_done()), packer.finished() ? 1.0 : 0.0}, "pack: rows");
    show_progress(state[0], static_cast<double>(rows), now_s() - start);
    finished = state[1] == control.world();
  }
  log::end_progress();
}

/// What all ranks wrote together.
struct Totals {
  std::size_t training_rows = 0, validation_rows = 0;
  std::uint64_t bytes = 0;
  data::ChannelSums sums;
};

Totals add_up(Control& control, const data::Packer& packer) {
  const data::ChannelSums& own = packer.training_sums();
  std::vector<std::uint64_t> values{packer.training_rows(), packer.validation_rows(),
                                    packer.bytes(), own.pixels};
  values.insert(values.end(), own.sum.begin(), own.sum.end());
  values.insert(values.end(), own.squares.begin(), own.squares.end());
  values = sum(control, values);
  const std::size_t channels = own.sum.size();
  Totals totals{values[0], values[1], values[2], data::ChannelSums(channels)};
  totals.sums.pixels = values[3];
  std::copy_n(values.begin() + 4, channels, totals.sums.sum.begin());
  std::copy_n(values.begin() + 4 + static_cast<std::ptrdiff_t>(channels), channels,
              totals.sums.squares.begin());
  return totals;
}

/// All ranks' unreadable images in the source's order, one line each.
std::vector<std::string> gather_skipped(Control& control, const data::Packer& packer) {
  std::string own;
  for (const data::Packer::BadRow& bad : packer.skipped())
    own += fmt::format("{:012} {}\n", bad.row, bad.reason);
  std::vector<std::string> lines;
  for (const std::string& text : control.gather(own, "pack: skipped"))
    for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
      end = text.find('\n', at);
      lines.push_back(text.substr(at, end - at));
    }
  std::sort(lines.begin(), lines.end());
  for (std::string& line : lines) line.erase(0, line.find(' ') + 1);
  return lines;
}

void report_skipped(const std::vector<std::string>& skipped, const fs::path& out) {
  if (skipped.empty()) return;
  for (std::size_t i = 0; i < std::min(listed, skipped.size()); ++i)
    log::warn(fmt::format("skipped {}", skipped[i]));
  log::warn(fmt::format("{} unreadable image{} skipped; all are listed in {}", skipped.size(),
                        skipped.size() == 1 ? " was" : "s were", (out / "skipped.txt").string()));
}

void summarise(const Options& options, const data::DataSetInfo& info, const Totals& totals,
               std::size_t training_shards, std::size_t shards, double seconds) {
  const std::size_t rows = totals.training_rows + totals.validation_rows;
  const std::string form =
      options.spec.jpeg ? std::string("JPEGs")
                        : fmt::format("{} x {} x {}", info.height, info.width, info.channels);
  log::info(fmt::format("packed {} images of {} classes as {}, {}, in {} ({:.0f} images/s)", rows,
                        info.classes.size(), form, human_bytes(static_cast<double>(totals.bytes)),
                        human_seconds(seconds), static_cast<double>(rows) / seconds));
  log::info(fmt::format("  {}: {} rows in {} shards", (options.out / "train").string(),
                        totals.training_rows, training_shards));
  if (totals.validation_rows > 0)
    log::info(fmt::format("  {}: {} rows in {} shards", (options.out / "val").string(),
                          totals.validation_rows, shards - training_shards));
  log::info(fmt::format("  mean {:.4f}, deviation {:.4f}", fmt::join(totals.sums.mean(), " "),
                        fmt::join(totals.sums.stddev(), " ")));
}

void pack(Options& options, Control& control) {
  const double start = now_s();
  std::unique_ptr<data::Source> source;
  data::DataSetInfo info;
  std::size_t row_bytes = 0;
  together(control, "pack: source", [&] {
    settle_form(options);
    source = open(options);
    settle_held_out(*source, options);
    info = data::packed_info(*source, options.spec);
    row_bytes = data::packed_row_bytes(*source, options.spec, info);
  });
  for (const std::string& remark : source->remarks()) log::info(remark);
  together(control, "pack: files", [&] { require_same_files(control, *source, options.source); });

  std::optional<data::PackFolder> folder;
  together(control, "pack: folder", [&] {
    if (control.rank() == 0) folder.emplace(options.out, options.force);
  });
  const fs::path partial = data::PackFolder::partial(options.out);
  const std::vector<data::ShardPlan> plan = data::plan_shards(*source, options.spec, row_bytes);
  std::vector<data::ShardPlan> own;
  for (std::size_t s = 0; s < plan.size(); ++s)
    if (s % static_cast<std::size_t>(control.world()) == static_cast<std::size_t>(control.rank()))
      own.push_back(plan[s]);
  data::Packer packer(*source, options.spec, info, partial, std::move(own));
  write_all(control, packer, source->rows());

  const Totals totals = add_up(control, packer);
  const std::vector<std::string> skipped = gather_skipped(control, packer);
  together(control, "pack: normalisation",
           [&] { packer.normalise(totals.sums.mean(), totals.sums.stddev()); });
  together(control, "pack: in place", [&] {
    if (control.rank() != 0) return;
    if (!skipped.empty())
      write_text_atomically(partial / "skipped.txt", fmt::format("{}\n", fmt::join(skipped, "\n")));
    folder->commit();
  });
  report_skipped(skipped, options.out);
  const auto training_shards = std::count_if(
      plan.begin(), plan.end(), [](const data::ShardPlan& shard) { return shard.training; });
  summarise(options, info, totals, static_cast<std::size_t>(training_shards), plan.size(),
            now_s() - start);
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("source", options.source, "folder of images (none for --from shapes)");
  app.add_option("--from", options.from, "what the folder holds; found out when not given")
      ->check(CLI::IsMember(data::source_kinds()));
  app.add_option("--out", options.out, "folder for train/ and val/ with the shards")->required();
  app.add_option("--resize", options.resize,
                 "stretch every image to S x S, or to HxW (antialiased); needed when sizes differ");
  app.add_flag("--jpeg", options.spec.jpeg,
               "keep JPEGs as they are, of any size, and encode other images; training decodes");
  app.add_option("--short-side", options.spec.short_side,
                 "with --jpeg: encode larger images anew, with this shorter side")
      ->check(CLI::Range(1, 16384));
  app.add_option("--quality", options.quality, "with --jpeg: of what is encoded; default: 90")
      ->check(CLI::Range(1, 100));
  app.add_option("--channels", options.spec.channels,
                 "1 (grey) or 3 (RGB); default: 1 for idx, else 3")
      ->check(CLI::IsMember({1, 3}));
  app.add_option("--held-out", options.held_out,
                 "share of each class held out for validation when there is no test split; "
                 "default: 0.1, none: 0")
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--seed", options.spec.seed,
                 "of the order of rows, the held-out rows and the generated shapes")
      ->capture_default_str();
  app.add_option("--rows-per-shard", options.spec.rows_per_shard,
                 "at most; default: 8 shards, or as many as keep one under 256 MB")
      ->check(CLI::PositiveNumber);
  app.add_option("--train-rows", options.training_rows, "shapes to train on; default: 20000")
      ->check(CLI::PositiveNumber);
  app.add_option("--val-rows", options.validation_rows, "shapes to validate on; default: 4000");
  app.add_flag("--skip-bad", options.spec.skip_bad,
               "leave out unreadable images and list them, instead of stopping at the first");
  app.add_flag("--force", options.force, "replace the data set that stands in --out");
}

}  // namespace

Command add_pack(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "pack",
      "make shards from class folders of JPEG or PNG images, CIFAR-10/100 binary files, "
      "MNIST-style "
      "IDX files, or generated shapes; shared by all ranks under mpirun or srun");
  const auto options = std::make_shared<Options>();
  add_options(*app, *options);
  return {app, [options](Launch& launch) {
            launch.start(deadline_s);
            pack(*options, *launch.control);
            return 0;
          }};
}

}  // namespace lockstep::app
