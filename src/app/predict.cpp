#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "app/cli/command_line.hpp"
#include "app/cli/pack_options.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "app/trained/members.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/cluster/identity/walltime.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/model/network_text.hpp"
#include "lockstep/pack/source/source.hpp"
#include "lockstep/serve/input_rows.hpp"
#include "lockstep/serve/predict_job.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/ending/stop_signal.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

struct PredictOptions {
  std::string checkpoint;
  std::vector<std::string> data;  ///< at first after the words that continue the model
  serve::PredictSpec spec;
  pack::SourceSpec source;
  FormOptions given_form;
  data::ImageForm form;
  std::size_t threads = 0;
  std::string backend = "auto", precision;
  DataKeys keys;
  bool share_gpu = false, ema = false, unlabelled = false, features = false, held_out = false;
  double margin_s = 20;

  void add_to(Arguments app) {
    app.add("checkpoint", checkpoint,
            "checkpoint, .safetensors, .pth, .npz or .onnx file, or the folder of a run: its "
            "best.h5, or its newest")
        .required();
    app.add("data", data,
            std::string(infer::several_help) +
                ". Then the data: a shard or a folder of shards; or images: a folder, a list of "
                "paths (also .csv), tars, one image")
        .required();
    app.add("--out", spec.out, "folder for predictions.h5; all workers name the same one")
        .called("FOLDER")
        .required();
    add_count(app, "--top", spec.top, {1, 1000},
              "classes to keep of each row, the likeliest first");
    app.add_flag("--logits", spec.logits, "also keep the outputs for all classes");
    app.add_flag("--features", features, "also keep what the network's last layer reads");
    app.add_flag("--csv", spec.csv, "also write predictions.csv");
    app.add_flag("--unlabelled", unlabelled, "do not use the labels: they mean nothing");
    app.add_flag("--held-out-rows", held_out,
                 "of the training set only the rows that the training held out (data.held-out)");
    app.add_flag("--skip-bad", spec.skip_unread, "a row that cannot be read gets no class");
    app.add_flag("--ema", ema, "use the average of the weights that training kept (optim.ema)");
    add_precision(app, precision);
    app.add("--from", source.kind, "kind of data")
        .one_of({"shards", "classes", "list", "tar"})
        .shows("detected");
    app.add("--root", source.root, "what a list's paths are relative to")
        .called("FOLDER")
        .shows("its folder");
    app.add("--class-names", source.class_names,
            "file with a name in each line: of classes 0, 1, ... of a list");
    add_data_keys(app, keys);
    add_form_options(app, given_form, form);
    add_count(app, "--batch", spec.batch, a_batch, "rows that a rank computes at once");
    add_count(app, "--piece-rows", spec.piece_rows, {1, 1'000'000'000},
              "rows that a worker takes at a time, in whole batches")
        .shows("4096, or fewer of a small data set");
    add_count(app, "--threads", threads, threads_or_all,
              "compute threads of each worker; auto: one for each core of its share");
    add_backend(app, backend);
    app.add_flag("--comm.share-gpu,--share-gpu", share_gpu, "workers may use one GPU together");
    app.add("--margin-s", margin_s, "stop that long before the time limit of a Slurm job")
        .within(0.0, 1e6)
        .shows_default();
    app.add("--stale-s", spec.stale_s,
            "take over the rows of a worker that has shown no life for this long")
        .within(1.0, 1e6)
        .shows_default();
  }
};

std::uint32_t hash(const std::string& text) { return crc32c(text.data(), text.size()); }

/// Of the tensors that were read: the file may be another one by now.
std::string tensors_text(const model::Model& model) {
  std::string tensors;
  for (const model::Weight& weight : model.weights)
    tensors +=
        fmt::format("{} {:08x}\n", weight.tensor.name,
                    crc32c(weight.values.data(), weight.values.size() * sizeof weight.values[0]));
  return tensors;
}

/// What of the model the predictions follow from.
std::string identify_model(const PredictOptions& options, const infer::ModelWords& words,
                           const std::vector<infer::MemberModel>& members) {
  std::string text;
  const auto line = [&](const std::string& key, const std::string& value) {
    text += fmt::format("{} = {}\n", key, value);
  };
  infer::ModelWords numbered = words;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const model::Description& about = members[m].model.about;
    const std::string of = m == 0 ? "" : fmt::format(" of {}", m + 1);
    numbered.files[m] = std::to_string(m + 1);
    line("network" + of,
         fmt::format("{} {:08x}", about.network.name, hash(model::network_text(about.network))));
    line("weights" + of, fmt::format("{:08x}", hash(tensors_text(members[m].model))));
    line("precision" + of, choice_name(members[m].config.precision));
    if (about.input.shaping.any()) line("values" + of, data::say_shaping(about.input.shaping));
    line("mean" + of, join(about.input.mean, " "));
    line("deviation" + of, join(about.input.stddev, " "));
  }
  if (words.is_several()) line("model", numbered.text());
  const model::Preparation& preparation = members.front().model.about.preparation;
  line("fit", fmt::format("{} {}", choice_name(preparation.fit), preparation.short_side));
  const data::ImageForm& form = options.form;
  line("packed", options.source.kind == "shards" ? "yes"
                 : form.jpeg ? fmt::format("--jpeg --short-side {} --quality {}", form.short_side,
                                           form.quality)
                             : fmt::format("--resize {}x{}", form.height, form.width));
  line("exif_orientation", form.exif_orientation ? "yes" : "no");
  for (const auto& [key, value] : options.keys) line(key, value);
  return text;
}

/// When this process is killed, on the clock of now_s(); never outside of a job.
double end_of_allocation() {
  const auto left_s = cluster::allocation_left_s(cluster::process_environment());
  return left_s ? now_s() + *left_s : INFINITY;
}

void tell_result(const serve::Predicted& all, const PredictOptions& options) {
  const std::string out = options.spec.out.string();
  std::string text = fmt::format("{} rows in {}: ", all.rows, counted(all.pieces, "piece"));
  if (all.labelled > 0)
    text += fmt::format("top-1 {:.2f} %, ",
                        100 * static_cast<double>(all.right) / static_cast<double>(all.labelled));
  text += fmt::format("{}/predictions.h5", out);
  if (options.spec.csv) text += fmt::format(" and {}/predictions.csv", out);
  log::info(text);
  if (all.unread > 0)
    log::warn(
        fmt::format("{} could not be read and got no class: see unread_reason in "
                    "{}/predictions.h5",
                    counted(all.unread, "row"), out));
  if (all.no_numbers > 0)
    log::warn(fmt::format("{}: for {} the network's outputs are not numbers: they got no class",
                          options.checkpoint, counted(all.no_numbers, "row")));
}

int end_status(const serve::Predicted& all, const PredictOptions& options,
               infer::Classifier& model) {
  if (all.own_pieces > 0) {
    log::info(fmt::format("this worker predicted {} of {} rows, {:.0f} images/s",
                          counted(all.own_pieces, "piece"), all.own_rows,
                          static_cast<double>(all.own_rows) / all.own_s));
    for (const infer::MemberFigures& one : model.take_figures())
      log::info("  " + figures_text(one));
  }
  if (all.finished) return tell_result(all, options), status_done;
  log::info(fmt::format("stopped before the end: start it again to continue in {}",
                        options.spec.out.string()));
  return status_stopped;
}

/// The rest of a start that has something to do.
int work(Launch& launch, const PredictOptions& options, infer::MemberModels& members,
         serve::PredictJob& job) {
  const double end_s = end_of_allocation();
  const std::string backend = decide_backend(launch, options.backend);
  const Compute compute = prepare_compute(
      launch, {.backend = backend, .threads = options.threads, .share_gpu = options.share_gpu});
  const infer::RunningModel running =
      infer::run_members(members, *compute.backend, options.spec.batch);
  const serve::Predicted all =
      job.work({.model = *running.model,
                .device = compute.backend->device(),
                .readers = std::clamp<std::size_t>(compute.spare_cores, 1, 8),
                .bind_reader = compute.bind_worker,
                .stop = [&](double needed_s) {
                  return train::stop_requested() || now_s() + needed_s + options.margin_s > end_s;
                }});
  return end_status(all, options, *running.model);
}

/// A folder of data that also holds predictions would not be read as data again.
void require_apart(const PredictOptions& options, const std::filesystem::path& data) {
  const std::filesystem::path& out = options.spec.out;
  std::error_code none;
  const bool inside = std::filesystem::is_directory(data, none) && lies_in(out, data);
  const bool around = !serve::holds_job(out) && train::holds_data_set(out);
  require(!inside && !around, fmt::format("--out {}: {}{}; choose another folder", out.string(),
                                          inside ? "is inside" : "holds a data set",
                                          inside ? " " + data.string() : ""));
}

/// All rows are meant, unless --held-out-rows is given.
void keep_held_out(const PredictOptions& options, const std::string& path, config::Config& config) {
  if (!options.held_out) {
    config.data.held_out = 0;
    return;
  }
  std::error_code none;
  require(config.data.held_out > 0,
          fmt::format("--held-out-rows: the training of {} held out no rows (data.held-out)",
                      options.checkpoint));
  require(path == config.data.train || std::filesystem::equivalent(path, config.data.train, none),
          fmt::format("--held-out-rows: {} was trained on {}, not on {}", options.checkpoint,
                      config.data.train, path));
}

std::unique_ptr<serve::InputRows> open_packed(PredictOptions& options,
                                              const infer::MemberModels& members) {
  const model::Description& about = members.all.front().model.about;
  require(options.data.size() == 1,
          fmt::format("{} and {}: name one folder of shards, or a pattern in quotes",
                      options.data.front(), options.data.back()));
  const data::ImageForm& form = options.form;
  require(
      !form.jpeg && form.height == 0 && !form.exif_orientation && options.source.root.empty() &&
          options.source.class_names.empty(),
      fmt::format("{}: holds shards, for which --resize, --jpeg, --exif-orientation, --root and "
                  "--class-names would have no effect",
                  options.data[0]));
  const std::string path = train::given_set(options.data[0], train::PackedPart::validation);
  require_apart(options, path);
  const data::DataSetInfo input = infer::input_of(members, nullptr);
  config::Config config = train::for_other_data(members.all.front().config, path);
  take_data_keys(options.keys, config);
  keep_held_out(options, path, config);
  data::DataSet rows(path, train::external_spec(config, &input));
  require(rows.external() || options.keys.empty(),
          fmt::format("{}: holds shards, for which --{} would have no effect", path,
                      options.keys.empty() ? "" : options.keys.begin()->first));
  train::say_what_is_read(rows, path);
  const data::AugmentSpec augment =
      model::evaluation_augment(about.preparation, about.input, rows.info());
  data::DataSetInfo delivered = data::delivered(rows.info(), augment, path);
  const data::DataSetInfo wanted = infer::input_of(members, &rows.info());
  if (options.unlabelled) delivered.classes = wanted.classes;
  infer::require_alike(wanted, options.checkpoint, delivered, path);
  options.spec.classes = wanted.classes;
  return serve::packed_rows(std::move(rows), augment, !options.unlabelled);
}

/// Throws InputError where these are no images that can be predicted.
void require_images(const PredictOptions& options) {
  const pack::SourceSpec& source = options.source;
  const std::string first = source.files.front().string();
  for (const std::filesystem::path& file : source.files) require_apart(options, file);
  require(source.kind == "classes" || source.kind == "list" || source.kind == "tar",
          fmt::format("{}: is of kind {}, which has no images in files: pack it first", first,
                      source.kind));
  require(source.files.size() == 1 || source.kind == "tar",
          fmt::format("{} and {}: only tars may be more than one", first,
                      source.files.back().string()));
  require(!options.held_out,
          fmt::format("--held-out-rows: {} is not the set that was trained on", first));
  require(options.keys.empty(),
          fmt::format("{}: holds images in files, for which --{} would have no effect", first,
                      options.keys.empty() ? "" : options.keys.begin()->first));
}

std::unique_ptr<serve::InputRows> open_images(PredictOptions& options,
                                              const infer::MemberModels& members) {
  pack::SourceSpec& source = options.source;
  const std::string first = source.files.front().string();
  require_images(options);
  source.labelled = !options.unlabelled && !pack::is_image_file(source.files.front()) &&
                    options.spec.task == data::Task::classes;
  std::string name = fmt::format("{} {} {} {}", source.kind, source.labelled, source.root.string(),
                                 source.class_names.string());
  for (const std::filesystem::path& file : source.files) name += '\n' + file.string();
  // A list that was changed has another index, and so is not what an earlier start predicted.
  if (source.kind == "list") name += fmt::format(" {:08x}", hash(read_text(first)));
  const data::DataSetInfo input = infer::input_of(members, nullptr);
  options.spec.classes = input.classes;
  if (source.labelled && members.classes.empty())
    log::warn(fmt::format("{}: names no classes: the labels of {} are taken as their numbers",
                          options.checkpoint, first));
  return serve::image_rows({.source = source,
                            .form = options.form,
                            .preparation = members.all.front().model.about.preparation,
                            .input = input,
                            .index = options.spec.out / fmt::format("index-{:08x}", hash(name)),
                            .beat_s = options.spec.beat_s,
                            .stale_s = options.spec.stale_s});
}

/// Settles the options that depend on what is to be predicted.
void settle_source(PredictOptions& options) {
  pack::SourceSpec& source = options.source;
  settle_form(options.given_form, options.form);
  source.files = pack::expand_patterns(options.data);
  if (source.kind.empty())
    source.kind =
        pack::is_image_file(source.files[0]) ? "classes" : pack::guess_source(source.files[0]);
}

std::unique_ptr<serve::InputRows> open_rows(PredictOptions& options,
                                            const infer::MemberModels& members) {
  settle_source(options);
  if (options.source.kind == "shards") return open_packed(options, members);
  return open_images(options, members);
}

/// The words of the model, which are before the data.
infer::ModelWords take_words(PredictOptions& options) {
  const infer::ModelWords words = infer::take_model(options.checkpoint, options.data);
  infer::require_fitted(words);
  require(!options.data.empty(), fmt::format("{}: the data must follow", words.text()));
  require(!options.features || !words.is_several(),
          fmt::format("{}: --features are what one network's last layer reads", words.text()));
  return words;
}

void take_task(const data::DataSetInfo& input, const infer::ModelWords& words,
               serve::PredictSpec& spec) {
  spec.task = input.task;
  require(spec.task == data::Task::classes || spec.top == serve::PredictSpec().top,
          fmt::format("--top {} would have no effect: {} was trained on {}", spec.top, words.text(),
                      choice_name(spec.task)));
  spec.target_mean = input.target_mean;
  spec.target_stddev = input.target_stddev;
}

void check_options(PredictOptions options, const Supposed& supposed) {
  if (!supposed.whole) return;
  const infer::ModelWords words = take_words(options);
  if (!std::ranges::all_of(words.files, supposed.shows)) return;
  infer::MemberModels members = infer::read_members(
      words, member_files(words), {.average = options.ema, .precision = options.precision});
  infer::require_normalised(members);
  take_task(members.all.front().model.about.input, words, options.spec);
  if (supposed.shows(options.spec.out.string())) require_makable(options.spec.out);
  if (!std::ranges::all_of(options.data, supposed.shows)) return;
  settle_source(options);
  options.source.kind == "shards" ? (void)open_packed(options, members) : require_images(options);
}

int predict(Launch& launch, const PredictOptions& asked) {
  launch.stay_independent();
  train::catch_stop_signals(false);
  PredictOptions options = asked;
  options.spec.beat_s = options.spec.stale_s / 12;
  const infer::ModelWords words = take_words(options);
  const std::vector<std::string> files = member_files(words);
  options.checkpoint = words.is_several() ? words.text() : files.front();
  infer::MemberModels members =
      infer::read_members(words, files, {.average = options.ema, .precision = options.precision});
  infer::require_normalised(members);
  take_task(members.all.front().model.about.input, words, options.spec);
  const auto rows = open_rows(options, members);
  options.spec.model = identify_model(options, words, members.all);
  if (options.features) options.spec.features = serve::add_features(members.all.front().model);
  serve::PredictJob job(options.spec, *rows);
  if (!job.finished()) return work(launch, options, members, job);
  const serve::Predicted result = job.result();
  log::info(fmt::format("{}: is complete; nothing is left to do", options.spec.out.string()));
  tell_result(result, options);
  return status_done;
}

}  // namespace

Command add_predict(Arguments root) {
  auto options = std::make_shared<PredictOptions>();
  Arguments app = root.add_command(
      "predict",
      "Predict a whole data set by any number of processes that share a folder: each takes pieces "
      "of it, may be killed or started at any time, and each row is in the result once");
  options->add_to(app);
  return {app, [options](Launch& launch) { return predict(launch, *options); },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
