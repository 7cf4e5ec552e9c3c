#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/cli/command_line.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "app/start/meeting_options.hpp"
#include "app/trained/members.hpp"
#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/comm/agreement.hpp"
#include "lockstep/data/loading/row_reader.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/model/model.hpp"
#include "lockstep/observe/report.hpp"
#include "lockstep/train/agreement.hpp"
#include "lockstep/train/decide/packed_sets.hpp"
#include "lockstep/train/evaluator.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

struct EvalOptions {
  std::string checkpoint;          ///< the model's first file
  std::vector<std::string> words;  ///< that continue the model
  std::string data, json;
  std::size_t batch = 64, threads = 0;
  double deadline_s = 120;
  std::string backend = "auto";
  bool share_gpu = false;
  std::string precision;  ///< empty: as trained
  bool ema = false;
  bool of_training = false;  ///< the data are those on which the training validated
  DataKeys keys;
};

void take_given(const EvalOptions& options, config::Config& config) {
  if (!options.precision.empty()) config::set_key(config, "precision", options.precision);
  take_data_keys(options.keys, config);
}

/// The validation set of the checkpoint's training.
std::string data_of_training(const EvalOptions& options) {
  require(!model::is_weights_file(options.checkpoint),
          fmt::format("{}: does not say on what it was trained: name the data by --data",
                      options.checkpoint));
  const std::string data = infer::settings_of(options.checkpoint, options.precision).data.val;
  require(!data.empty(),
          fmt::format("{} was trained without a validation set: name the data by --data",
                      options.checkpoint));
  const auto run = std::filesystem::absolute(options.checkpoint).parent_path().parent_path();
  train::require_here(train::RunDirectory(run), data, "--data");
  return data;
}

/// Completes what was given by what the checkpoint and folders say.
EvalOptions settled(const EvalOptions& asked, const std::vector<std::string>& files) {
  EvalOptions options = asked;
  options.checkpoint = files.front();
  options.of_training = options.data.empty();
  if (options.of_training) options.data = data_of_training(options);
  options.data = train::given_set(options.data, train::PackedPart::validation);
  if (options.checkpoint != asked.checkpoint || options.data != asked.data)
    log::info(fmt::format("evaluating {} on {}", join(files, ", "), options.data));
  return options;
}

/// The networks and their weights. What another program's file does not say is as in the data set.
infer::MemberModels load_members(const EvalOptions& options, const infer::ModelWords& words,
                                 const std::vector<std::string>& files) {
  std::optional<data::DataSetInfo> rows;
  if (std::ranges::any_of(files, model::is_weights_file)) {
    config::Config given;
    take_given(options, given);
    rows = data::DataSet(options.data, train::external_spec(given)).info();
  }
  return infer::read_members(
      words, files,
      {.average = options.ema, .precision = options.precision, .rows = rows ? &*rows : nullptr});
}

infer::ModelWords words_of(const EvalOptions& options) {
  std::vector<std::string> rest = options.words;
  infer::ModelWords words = infer::take_model(options.checkpoint, rest);
  require(rest.empty(),
          fmt::format("{}: is not expected after {}", rest.empty() ? "" : rest[0], words.text()));
  return words;
}

/// Numbers that mean nothing are null.
Json number_or_null(double value) { return std::isnan(value) ? Json(nullptr) : Json(value); }

Json outputs_as_json(const train::Evaluation& result, const data::DataSetInfo& rows) {
  Json outputs = Json::array();
  for (std::size_t k = 0; k < result.outputs.size(); ++k) {
    const train::OutputFigures& of = result.outputs[k];
    Json& one = outputs.emplace_back(Json{{"name", rows.classes.at(k)}, {"known", of.known}});
    if (rows.task == data::Task::labels)
      one.update({{"right", of.right},
                  {"wrong", of.wrong},
                  {"missed", of.missed},
                  {"rightly_not", of.rightly_not},
                  {"precision", number_or_null(of.precision)},
                  {"recall", number_or_null(of.recall)},
                  {"F1", number_or_null(of.f1)},
                  {"AP", number_or_null(of.ap)},
                  {"AUC", number_or_null(of.auc)}});
    else
      one.update({{"RMSE", number_or_null(of.rmse)},
                  {"MAE", number_or_null(of.mae)},
                  {"R2", number_or_null(of.r2)},
                  {"bias", number_or_null(of.bias)}});
  }
  return outputs;
}

Json to_json(const EvalOptions& options, const infer::ModelWords& words,
             const train::Evaluation& result, const data::DataSetInfo& rows,
             const std::vector<infer::MemberFigures>& figures) {
  const std::vector<std::string>& classes = rows.classes;
  Json members = Json::array();
  for (const infer::MemberFigures& one : figures)
    members.push_back({{"name", one.name}, {"rows", one.rows}, {"seconds", one.seconds}});
  if (rows.task != data::Task::classes)
    return {{"checkpoint", words.is_several() ? words.text() : options.checkpoint},
            {"data", options.data},
            {"rows", result.rows},
            {"loss", result.mean.loss},
            {"scores", result.mean.scores},
            {"members", std::move(members)},
            {choice_name(rows.task), outputs_as_json(result, rows)}};
  Json per_class = Json::array(), confusion = Json::array();
  for (std::size_t c = 0; c < classes.size(); ++c) {
    const double accuracy = result.accuracy_of(c);
    per_class.push_back({{"name", classes[c]},
                         {"rows", result.rows_of(c)},
                         {"top1", std::isnan(accuracy) ? Json(nullptr) : Json(accuracy)}});
  }
  for (const train::Confused& one : result.confusion)
    confusion.push_back(std::array<std::uint64_t, 3>{one.label, one.predicted, one.count});
  return {{"checkpoint", words.is_several() ? words.text() : options.checkpoint},
          {"data", options.data},
          {"rows", result.rows},
          {"loss", result.mean.loss},
          {"top1", result.mean.top1},
          {"top5", result.mean.top5},
          {"scores", result.mean.scores},
          {"members", std::move(members)},
          {"classes", std::move(per_class)},
          {"confusion", std::move(confusion)}};
}

/// The wrong class that rows of `label` are most often taken for.
std::string usual_mistake(const train::Evaluation& result, std::size_t label,
                          const std::vector<std::string>& classes) {
  std::size_t worst = label;
  std::uint64_t most = 0;
  for (const train::Confused& one : result.confusion_of(label))
    if (one.predicted != label && one.count > most) worst = one.predicted, most = one.count;
  return most == 0 ? "" : fmt::format("  {} taken for {}", counted(most, "time"), classes[worst]);
}

void print_outputs(const train::Evaluation& result, const data::DataSetInfo& rows, double seconds) {
  log::info(fmt::format("{}: loss {:.4f}, {}, {:.0f} images/s", counted(result.rows, "row"),
                        result.mean.loss, observe::say_scores(result.mean.scores),
                        static_cast<double>(result.rows) / seconds));
  std::size_t width = 0;
  for (const std::string& name : rows.classes) width = std::max(width, name.size());
  for (std::size_t k = 0; k < result.outputs.size(); ++k) {
    const train::OutputFigures& of = result.outputs[k];
    const std::string figures =
        rows.task == data::Task::labels
            ? fmt::format(
                  "{:>6} of {}: AP {:.4f}, AUC {:.4f}, precision {:.4f}, recall {:.4f}, "
                  "F1 {:.4f}",
                  of.right + of.missed, of.known, of.ap, of.auc, of.precision, of.recall, of.f1)
            : fmt::format("{:>6} known: RMSE {:.6g}, MAE {:.6g}, R2 {:.4f}, bias {:.6g}", of.known,
                          of.rmse, of.mae, of.r2, of.bias);
    log::info(fmt::format("  {:<{}}  {}", rows.classes.at(k), width, figures));
  }
}

void print(const train::Evaluation& result, const data::DataSetInfo& rows, double seconds) {
  if (rows.task != data::Task::classes) return print_outputs(result, rows, seconds);
  const std::vector<std::string>& classes = rows.classes;
  log::info(fmt::format("{}: loss {:.4f}, top-1 {:.2f} %, top-5 {:.2f} %, {:.0f} images/s",
                        counted(result.rows, "row"), result.mean.loss, 100 * result.mean.top1,
                        100 * result.mean.top5, static_cast<double>(result.rows) / seconds));
  log::info("  " + observe::say_scores(result.mean.scores));
  std::size_t width = 0;
  for (const std::string& name : classes) width = std::max(width, name.size());
  for (std::size_t c = 0; c < classes.size(); ++c)
    if (result.rows_of(c) > 0)
      log::info(fmt::format("  {:<{}}  {:6.2f} % of {:>6}{}", classes[c], width,
                            100 * result.accuracy_of(c), result.rows_of(c),
                            usual_mistake(result, c, classes)));
}

void show_progress(std::size_t rows_done, std::size_t rows, double began_s) {
  const auto done = static_cast<double>(rows_done), all = static_cast<double>(rows);
  const double rate = done / (now_s() - began_s);
  log::progress(fmt::format("evaluating {:3.0f} % of {:.0f} rows, {:.0f} images/s, {} left",
                            100 * done / all, all, rate, human_seconds((all - done) / rate)));
}

/// How the rows reach the model. Throws InputError where they do not belong to it.
train::EvaluatorSpec evaluator_spec(const EvalOptions& options, const infer::MemberModels& members,
                                    const data::DataSet& rows) {
  const model::Description& about = members.all.front().model.about;
  train::EvaluatorSpec spec;
  spec.augment = model::evaluation_augment(about.preparation, about.input, rows.info());
  infer::require_alike(infer::input_of(members, &rows.info()), options.checkpoint,
                       data::delivered(rows.info(), spec.augment, options.data), options.data);
  spec.program.batch = options.batch;
  return spec;
}

void require_same_weights(const infer::RunningModel& model, const std::string& what,
                          comm::Control& control) {
  const std::string who = comm::disagreement(control, model.hash, "checkpoint");
  require(
      who.empty(),
      fmt::format("{}: the ranks read different checkpoints: the weights' hash is {}", what, who));
}

/// The rows to evaluate. How the training read its data counts where the options say nothing.
data::DataSet open_rows(const EvalOptions& options, const infer::MemberModels& members) {
  config::Config config = train::for_other_data(members.all.front().config, options.data);
  take_given(options, config);
  if (!options.of_training) config.data.held_out = 0;
  const data::DataSetInfo input = infer::input_of(members, nullptr);
  data::DataSet rows(options.data, train::external_spec(config, &input));
  require(rows.external() || options.keys.empty(),
          fmt::format("--{} would have no effect: {} holds shards",
                      options.keys.empty() ? "" : options.keys.begin()->first, options.data));
  return rows;
}

void check_options(const EvalOptions& asked, const Supposed& supposed) {
  const infer::ModelWords words = words_of(asked);
  if (!std::ranges::all_of(words.files, supposed.shows)) return;
  const std::vector<std::string> files = member_files(words);
  const bool sees_data = asked.data.empty() || supposed.shows(asked.data);
  if (!supposed.whole || !sees_data) {
    infer::read_members(words, files, {.average = asked.ema, .precision = asked.precision});
    return;
  }
  const EvalOptions options = settled(asked, files);
  const infer::MemberModels members = load_members(options, words, files);
  evaluator_spec(options, members, open_rows(options, members));
}

int evaluate(Launch& launch, const EvalOptions& asked) {
  launch.start(asked.deadline_s);
  infer::ModelWords words = words_of(asked);
  const std::vector<std::string> files = member_files(words);
  const EvalOptions options = settled(asked, files);
  const bool writes = launch.rank.rank == 0 && !options.json.empty();
  if (writes) {
    std::vector<std::filesystem::path> read(files.begin(), files.end());
    read.emplace_back(options.data);
    require_report_fits(options.json, read);
  }
  infer::MemberModels members = load_members(options, words, files);
  const data::DataSet rows = open_rows(options, members);
  train::require_same_data(rows, "--data", *launch.control);
  train::say_what_is_read(rows, options.data);
  train::EvaluatorSpec spec = evaluator_spec(options, members, rows);
  const std::string backend = decide_backend(launch, options.backend);
  Compute compute = prepare_compute(
      launch, {.backend = backend, .threads = options.threads, .share_gpu = options.share_gpu});
  spec.replicas = comm::Grid(launch.rank.rank, {.replicas = launch.rank.world}).replicas;
  spec.workers = std::clamp<std::size_t>(compute.spare_cores, 1, 8);
  spec.bind_worker = compute.bind_worker;
  infer::RunningModel running = infer::run_members(members, *compute.backend, options.batch);
  require_same_weights(running, words.text(), *launch.control);

  double began_s = 0;
  const auto run = [&](std::function<void(const data::Batch&)> seen) {
    began_s = now_s();
    spec.progress = [&](std::size_t done) { show_progress(done, rows.info().rows, began_s); };
    spec.seen = std::move(seen);
    train::Evaluator evaluator(spec, compute.backend->device(), *running.model, *launch.control,
                               rows);
    const train::Evaluation result = evaluator.evaluate(true);
    log::end_progress();
    return result;
  };
  if (words.fits) fit_first_threshold(words, running, *launch.control, run);
  const train::Evaluation result = run({});
  print(result, rows.info(), now_s() - began_s);
  const auto figures = figures_of_all(*running.model, *launch.control);
  for (const infer::MemberFigures& one : figures) log::info("  " + figures_text(one));
  if (!std::isfinite(result.mean.loss))
    log::warn(
        fmt::format("{}: on some rows the network's outputs are not numbers; these count as wrong",
                    words.text()));
  if (writes)
    write_report(options.json,
                 json_text(to_json(options, words, result, rows.info(), figures), 2) + "\n");
  return 0;
}

}  // namespace

Command add_eval(Arguments root) {
  auto options = std::make_shared<EvalOptions>();
  Arguments app = root.add_command(
      "eval", "Measure a checkpoint on a data set: each row counts once, for any number of ranks");
  add_meeting(app);
  app.add("checkpoint", options->checkpoint,
          "checkpoint, .safetensors, .pth, .npz or .onnx file, or the folder of a run: its "
          "best.h5, or its newest")
      .required();
  app.add("words", options->words,
          std::string(infer::several_help) +
              "; `SMALL above auto else LARGE` finds the smallest number by which the validation "
              "set's top-1 is within 0.2 points of LARGE's");
  app.add("--data", options->data, "a shard or a folder of shards")
      .shows("the validation set of the training");
  add_json_file(
      app, options->json,
      "write loss, top-1, top-5, accuracy per class and confusion matrix to this file; the "
      "matrix as [class, taken for, rows] of each entry above 0");
  add_data_keys(app, options->keys);
  add_count(app, "--batch", options->batch, a_batch, "rows that a rank computes at once");
  add_count(app, "--threads", options->threads, threads_or_all,
            "compute threads of each rank; auto: one for each core of its share");
  app.add("--comm.deadline-s,--deadline-s", options->deadline_s,
          "how long a rank waits for the others before the job ends")
      .within(1.0, 1e6)
      .shows_default();
  add_backend(app, options->backend);
  app.add_flag("--comm.share-gpu,--share-gpu", options->share_gpu,
               "ranks may use one GPU together (for tests)");
  app.add_flag("--ema", options->ema,
               "measure the average of the weights that training kept (optim.ema)");
  add_precision(app, options->precision);
  return {app, [options](Launch& launch) { return evaluate(launch, *options); },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
