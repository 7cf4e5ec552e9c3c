#include "app/cli/pack_options.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "app/cli/command_line.hpp"
#include "app/cli/run_options.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_rows = 100'000'000;

/// Reads "224" or "192x256", height first.
void parse_size(const std::string& text, data::ImageForm& form) {
  const auto number = [&](std::string_view part) {
    const auto value = whole_number<std::size_t>(part);
    require(value && *value >= 1 && *value <= 16384,
            fmt::format("--resize {}: expected a side like 224, or height x width like 192x256, "
                        "each at most 16384",
                        text));
    return *value;
  };
  const std::string_view view = text;
  const std::size_t cross = view.find('x');
  form.height = number(view.substr(0, cross));
  form.width = cross == view.npos ? form.height : number(view.substr(cross + 1));
}

void settle_generated(const PackOptions& options) {
  require(options.sources.empty() && options.validation_sources.empty(),
          fmt::format("--from shapes generates its images; what is {} for?",
                      join(options.sources, " ")));
}

/// True for keys about an HDF5 file that is not a shard, of the training or the validation set.
bool says_how_to_read(const config::ConfigKey& key) {
  return key.for_external || key.name == "data.val-images" || key.name == "data.val-labels";
}

/// The next pack would take shards among images for class folders, and a set that is being read
/// must not be replaced.
void require_apart(const PackOptions& options) {
  for (const auto& files : {options.source.files, options.source.validation_files})
    for (const fs::path& file : files)
      require(!(fs::is_directory(file) && lies_in(options.out, file)) &&
                  !(options.repack && lies_in(file, options.out)),
              fmt::format(
                  "--out {}: is inside the source {}, or the source is inside it; choose another",
                  options.out.string(), file.string()));
}

/// An HDF5 file may hold both sets; anything else would be validated on what was trained.
void require_two_sources(const pack::SourceSpec& source) {
  if (source.kind == "shards") return;
  std::set<fs::path> training;
  for (const fs::path& file : source.files) training.insert(fs::weakly_canonical(file));
  for (const fs::path& file : source.validation_files)
    require(!training.contains(fs::weakly_canonical(file)),
            fmt::format("--val {}: is the source of the training rows, too; give another, or leave "
                        "out --val to hold some rows out",
                        file.string()));
}

/// Shards are packed again in their order, and nothing is held out unless asked for.
void settle_repack(PackOptions& options) {
  const bool shards = options.source.kind == "shards";
  require(
      shards == options.repack,
      shards ? fmt::format("{}: holds shards or other HDF5 files; use --repack to write them again",
                           options.source.files[0].string())
             : fmt::format("--repack is for shards, not for {}", options.source.kind));
  require(!options.shuffle || shards,
          "--shuffle is for --repack; other sources are always shuffled");
  if (!shards) return;
  options.spec.keep_order = !options.shuffle;
  options.default_held_out = 0;
  // Several files of one data set are a pattern, which the data set expands.
  const auto one = [](const std::vector<std::string>& names, std::vector<fs::path>& files) {
    if (names.size() == 1 && files.size() > 1) files = {names[0]};
  };
  one(options.sources, options.source.files);
  one(options.validation_sources, options.source.validation_files);
  const data::DataSetInfo none;
  options.source.external = train::external_spec(options.external);
  options.source.validation_external = train::external_spec(options.external, &none);
  options.source.validation_external.like = nullptr;  // known once the training set is open
}

/// Numbers in place of labels, for images that come as files.
void settle_targets(PackOptions& options) {
  pack::SourceSpec& source = options.source;
  if (source.targets.empty()) return;
  const std::string targets = source.targets.string();
  require(source.kind == "classes" || source.kind == "list" || source.kind == "tar",
          fmt::format("--targets {}: is for images in files, not for {}", targets, source.kind));
  require(source.validation_files.empty() && source.class_names.empty(),
          fmt::format("--targets {}: has the names of its labels or values, and rows are held out "
                      "(--held-out): not with --val or --class-names",
                      targets));
  require(fs::is_regular_file(source.targets), fmt::format("{}: no such file", targets));
  source.labelled = false;
  source.targets_task = find_choice<data::Task>(choice_name(options.external.data.task));
}

/// One folder or list, or any number of tars.
void settle_files(PackOptions& options) {
  pack::SourceSpec& source = options.source;
  require(!options.sources.empty(),
          "nothing to pack: name the folder of images, a list or tars, or use --from shapes");
  source.files = pack::expand_patterns(options.sources);
  source.validation_files = pack::expand_patterns(options.validation_sources);
  if (options.repack && source.kind.empty()) source.kind = "shards";
  if (source.kind.empty()) source.kind = pack::guess_source(source.files[0]);
  settle_repack(options);
  require_apart(options);
  require_two_sources(source);
  require(source.files.size() == 1 || source.kind == "tar",
          fmt::format("{} and {}: only tars may be more than one", source.files[0].string(),
                      source.files.back().string()));
  require(source.root.empty() || source.kind == "list", "--root is for lists");
  settle_targets(options);
}

std::string text_of(const std::vector<fs::path>& files) {
  std::string text;
  for (const fs::path& file : files)
    text += (text.empty() ? "" : " ") + fs::absolute(file).lexically_normal().string();
  return text;
}

/// All that determines the shards, one "key = value" per line.
std::string describe_pack(const PackOptions& options) {
  const pack::SourceSpec& source = options.source;
  const pack::PackSpec& spec = options.spec;
  std::string text;
  const auto line = [&](const char* key, const auto& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  line("from", source.kind);
  line("source", text_of(source.files));
  line("val", text_of(source.validation_files));
  line("root", source.root.string());
  if (!source.targets.empty()) line("targets", text_of({source.targets}));
  line("class-names", source.class_names.string());
  line("train-rows", options.training_rows.value_or(0));
  line("val-rows", options.validation_rows.value_or(0));
  line("resize", fmt::format("{}x{}", spec.height, spec.width));
  line("jpeg", spec.jpeg);
  line("short-side", spec.short_side);
  line("quality", spec.quality);
  if (spec.exif_orientation) line("exif-orientation", true);
  line("channels", spec.channels);
  if (spec.element) line("element", options.element);
  line("held-out", options.held_out.value_or(options.default_held_out));
  line("seed", spec.seed);
  line("shuffle", !spec.keep_order);
  line("rows-per-shard", spec.rows_per_shard);
  for (const config::ConfigKey& key : config::config_keys())
    if (says_how_to_read(key)) line(key.name.c_str(), key.get(options.external));
  return text;
}

}  // namespace

bool lies_in(const fs::path& inner, const fs::path& outer) {
  const fs::path in = fs::weakly_canonical(inner), out = fs::weakly_canonical(outer);
  return std::mismatch(out.begin(), out.end(), in.begin(), in.end()).first == out.end();
}

void add_form_options(Arguments app, FormOptions& options, data::ImageForm& form) {
  app.add("--resize", options.resize,
          "stretch every image to S x S, or to HxW (antialiased); needed when sizes differ");
  app.add_flag("--jpeg", form.jpeg,
               "keep JPEGs as they are, of any size, and encode other images; training decodes");
  app.add_flag("--exif-orientation", form.exif_orientation,
               "turn and mirror images as their Exif data say; else pixels are as they are stored");
  add_count(app, "--short-side", form.short_side, {1, 16384},
            "with --jpeg: encode larger images again, with this shorter side");
  add_count(app, "--quality", options.quality, {1, 100}, "with --jpeg: quality of encoded images")
      .shows("90");
}

void settle_form(const FormOptions& options, data::ImageForm& form) {
  if (!options.resize.empty()) parse_size(options.resize, form);
  form.quality = options.quality.value_or(form.quality);
  if (form.jpeg)
    return require(options.resize.empty(),
                   "--resize makes pixels of one size, --jpeg keeps JPEGs of any size: give one of "
                   "the two (--short-side makes JPEGs smaller)");
  require(form.short_side == 0, "--short-side is for --jpeg; for pixels give --resize");
  require(!options.quality, "--quality is for --jpeg");
}

pack::PackRequest resolve_pack_options(PackOptions& options) {
  settle_form(options.form, options.spec);
  options.spec.element = find_choice<data::Element>(options.element);
  const bool generated = options.source.kind == "shapes";
  require(generated || (!options.training_rows && !options.validation_rows),
          "--train-rows and --val-rows are for --from shapes; other sources are packed whole");
  generated ? settle_generated(options) : settle_files(options);
  pack::ShapesSpec shapes;
  shapes.seed = options.spec.seed;
  shapes.training_rows = options.training_rows.value_or(shapes.training_rows);
  shapes.validation_rows = options.validation_rows.value_or(shapes.validation_rows);
  return {.source = options.source,
          .shapes = shapes,
          .spec = options.spec,
          .held_out = options.held_out,
          .default_held_out = options.default_held_out,
          .out = options.out,
          .force = options.force,
          .options = describe_pack(options)};
}

void add_pack_options(Arguments app, PackOptions& options) {
  pack::SourceSpec& source = options.source;
  app.add("source", options.sources,
          "folder of images, list of paths and labels (also .csv), or tars (patterns such as "
          "'train-{000..063}.tar' may be quoted); none for --from shapes");
  app.add("--from", source.kind, "kind of source").one_of(pack::source_kinds()).shows("detected");
  app.add("--val", options.validation_sources,
          "the same for validation, if separate, and of the same kind: a folder, a list, tars");
  app.add("--root", source.root, "what a list's paths are relative to")
      .called("FOLDER")
      .shows("its folder");
  app.add(
      "--class-names", source.class_names,
      "file with a name in each line, in the order of the classes: where a list's or a tar's "
      "labels are numbers they count its lines from 0; words, and folders, are found in it, and "
      "it says which folders are classes");
  app.add("--targets", source.targets,
          "CSV file with a line for each image, in place of labels: its header names a column "
          "'path' or 'file', and the others are labels, which are 0 or 1, or values")
      .called("FILE");
  app.add("--out", options.out, "folder for train/ and val/ with the shards")
      .called("FOLDER")
      .required();
  add_form_options(app, options.form, options.spec);
  app.add("--channels", options.spec.channels, "1 (grey) or 3 (RGB)")
      .one_of({"1", "3"})
      .shows("1 for idx, those of the first of PNGs of 16 bits, else 3");
  app.add("--element", options.element,
          "numbers of images in files: uint8, for which PNGs of 16 bits lose their low 8 bits, or "
          "uint16, which all images then must have")
      .one_of({"uint8", "uint16"})
      .shows("as the first image");
  app.add("--held-out", options.held_out,
          "share of each class held out for validation when there is no test split")
      .within(0.0, 0.9)
      .shows("0.1, and 0 with --repack");
  add_count(app, "--seed", options.spec.seed, {},
            "seed of the order of rows, the held-out rows and the generated shapes");
  add_count(app, "--rows-per-shard", options.spec.rows_per_shard, {1, most_rows},
            "most rows of a shard")
      .shows("8 shards, or as many as keep each under 256 MB");
  add_count(app, "--train-rows", options.training_rows, {1, most_rows}, "shapes to train on")
      .shows("20000");
  add_count(app, "--val-rows", options.validation_rows, {0, most_rows}, "shapes to validate on")
      .shows("4000");
  app.add_flag("--repack", options.repack,
               "the source is a data set of shards: write them again, with another size, form or "
               "number; rows keep their order");
  for (const config::ConfigKey& key : config::config_keys())
    if (says_how_to_read(key)) add_key(app, key, options.external);
  app.add_flag("--shuffle", options.shuffle, "with --repack: shuffle the rows, by --seed");
  app.add_flag("--skip-bad", options.spec.skip_bad,
               "leave out unreadable images and list them, instead of stopping at the first");
  app.add_flag("--force", options.force, "replace the data set in --out");
}

}  // namespace lockstep::app
