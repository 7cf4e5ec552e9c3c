#include <filesystem>

#include <fmt/format.h>

#include "app/commands.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/model/formats/formats.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

struct ExportOptions {
  std::string checkpoint;
  std::vector<std::string> to;
  bool average = false, force = false;
  std::string input = pixels;
  bool fold = false;

  model::GraphOptions graph() const { return {.float_input = input != pixels, .fold = fold}; }
  bool needs_graph() const { return fold || input != pixels; }

  static constexpr const char* pixels = "pixels";
};

void require_fit(const ExportOptions& options) {
  for (const std::string& path : options.to)
    require(!options.needs_graph() || model::format_of(path).bytes_of_graph != nullptr,
            fmt::format("{}: --fold and --input are for files that hold the network: .onnx", path));
}

model::Model load(const ExportOptions& options, const std::filesystem::path& checkpoint) {
  return model::load_any(checkpoint, infer::describe_by_config,
                         options.average ? backend::Part::average : backend::Part::weights);
}

void check_options(const ExportOptions& options, const Supposed& supposed) {
  if (supposed.shows(options.checkpoint))
    load(options, train::choose_checkpoint(options.checkpoint));
  if (supposed.whole) require_fit(options);
  for (const std::string& path : options.to) model::format_of(path);
}

int export_model(const ExportOptions& options) {
  const std::filesystem::path checkpoint = train::choose_checkpoint(options.checkpoint);
  require_fit(options);  // before anything is read
  for (const std::string& path : options.to) require_new_report(path, {checkpoint}, options.force);
  model::Model model = load(options, checkpoint);
  infer::keep_settings(model, infer::settings_of(checkpoint.string(), model));
  for (const std::string& path : options.to) {
    const std::filesystem::path file(path);
    const model::Format& format = model::format_of(file);
    const std::string bytes = format.bytes_of_graph != nullptr
                                  ? format.bytes_of_graph(model, options.graph())
                                  : format.bytes(model);
    write_report(file, bytes);
    log::info(fmt::format("{}: {} of {} with {} tensors from {}, {}", path, format.what,
                          model.about.network.name, model.weights.size(), checkpoint.string(),
                          human_bytes(static_cast<double>(bytes.size()))));
  }
  return status_done;
}

}  // namespace

Command add_export(Arguments root) {
  auto options = std::make_shared<ExportOptions>();
  Arguments app =
      root.add_command("export", "Write a model for other programs: PyTorch, numpy, ONNX");
  app.add("checkpoint", options->checkpoint,
          "checkpoint, .safetensors, .pth, .npz or .onnx file, or the folder of a run: its "
          "best.h5, or its newest")
      .required();
  app.add("--to", options->to,
          "the file to write, or several; its name ends in " + model::format_endings())
      .called("FILE")
      .required();
  app.add_flag("--ema,--average", options->average,
               "the average of the weights that training kept (optim.ema)");
  app.add("--input", options->input,
          ".onnx: the file takes pixels [N, height, width, channels] and normalises them, or takes "
          "normalised values [N, channels, height, width]")
      .one_of({ExportOptions::pixels, "float"})
      .shows_default();
  app.add_flag("--fold", options->fold,
               ".onnx: make batch norms part of the convolutions before them");
  app.add_flag("--force", options->force, "write over files that are there");
  return {app,
          [options](Launch& launch) {
            return launch.leave_to_rank_0() ? status_done : export_model(*options);
          },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
