#include "serve/service/infer.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "lockstep/backend/answers.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/element_bytes.hpp"
#include "serve/predictor.hpp"
#include "serve/protocol/infer_request.hpp"
#include "serve/protocol/route.hpp"

namespace lockstep::serve {
namespace {

constexpr const char* json_length_header = "inference-header-content-length";

std::optional<std::string> header(const HttpRequest& request, const char* name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? std::nullopt : std::optional(found->second);
}

void require_rows(std::size_t rows, const ServeSpec& spec) {
  expect(rows <= spec.waiting_rows, "a request has at most {} images, but this has {}",
         spec.waiting_rows, rows);
}

void take_pixels(const InputTensor& tensor, const Version& version, const ServeSpec& spec,
                 RowsJob& job) {
  const data::DataSetInfo& input = version.input();
  const auto& shape = tensor.shape;
  expect(shape.size() == 4 && shape[1] == input.height && shape[2] == input.width &&
             shape[3] == input.channels,
         "input '{}': its shape is [{}], but the model '{}' takes [rows, {}, {}, {}]", tensor.name,
         join(std::vector<std::uint64_t>(shape.begin(), shape.end()), ", "), version.name(),
         input.height, input.width, input.channels);
  require_rows(shape[0], spec);
  job.rows = shape[0];
}

/// Of its rows and their logits.
void take_room(Inferring& inferring, const Version& version) {
  const std::size_t of_a_row = version.row_bytes() + version.classes() * sizeof(float);
  if (!inferring.share.grow(inferring.job->rows * of_a_row)) throw RequestError(503, no_bytes_left);
}

/// As in a data set, no number may be infinite, or NaN where that is not no data, and each has a
/// value on its curve.
void require_numbers(std::span<const std::uint8_t> bytes, const data::DataSetInfo& input) {
  if (const auto place = data::find_uncurved(input, bytes))
    expect(false, "input '{}': row {} {}", pixels_input, *place / input.row_values(),
           data::say_uncurved(input, bytes, *place));
  if (!data::is_float(input.element)) return;
  data::for_each_value(input.element, bytes, [&](std::size_t i, float value) {
    expect(std::isfinite(value) || (std::isnan(value) && input.no_data),
           "input '{}': row {} has {} in channel {}", pixels_input, i / input.row_values(),
           std::isnan(value) ? "NaN (not a number)" : "an infinite number", i % input.channels);
  });
}

/// Takes the bytes of rows, which have the right length.
void take_rows(std::span<const std::uint8_t> bytes, const Version& version, Inferring& to) {
  require_numbers(bytes, version.input());
  take_room(to, version);
  to.job->images.assign(bytes.begin(), bytes.end());
}

void take_input(std::vector<InputTensor> inputs, const Version& version, const ServeSpec& spec,
                Inferring& to) {
  const bool files = version.takes_files();
  const std::string or_files = files ? fmt::format(" or '{}'", files_input) : "",
                    and_files = files ? fmt::format(" and '{}' are", files_input) : " is";
  expect(inputs.size() == 1, "give one input, '{}'{}, and not {}", pixels_input, or_files,
         inputs.size());
  to.input = std::move(inputs.front());
  const InputTensor& tensor = to.input;
  const bool pixels = tensor.name == pixels_input;
  expect(pixels || (files && tensor.name == files_input), "there is no input '{}'; '{}'{}",
         tensor.name, pixels_input, and_files);
  expect(pixels == tensor.pixels, "input '{}': its datatype is {}", tensor.name,
         pixels ? datatype_of(version.input().element) : "BYTES");
  if (pixels) {
    take_pixels(tensor, version, spec, *to.job);
    return take_rows(tensor.values, version, to);
  }
  const auto& shape = tensor.shape;
  expect(shape.size() == 1 || (shape.size() == 2 && shape[1] == 1),
         "input '{}': its shape is [rows] or [rows, 1]", tensor.name);
  require_rows(tensor.strings.size(), spec);
  to.files = tensor.strings;
}

/// A body without JSON: the pixels of one image, or a file.
void take_raw(const std::string& body, const Version& version, Inferring& to) {
  const data::DataSetInfo& input = version.input();
  const bool fits = body.size() == version.row_bytes();
  expect(fits || version.takes_files(),
         "the body has {} bytes, but an image of the model '{}' has {}: {} x {} x {} of {}",
         body.size(), version.name(), version.row_bytes(), input.height, input.width,
         input.channels, datatype_of(input.element));
  const bool file = version.takes_files() && (!fits || body.starts_with("\xff\xd8\xff") ||
                                              body.starts_with("\x89PNG\r\n\x1a\n"));
  to.job->rows = 1;
  if (file)
    to.files = {body};
  else
    take_rows({reinterpret_cast<const std::uint8_t*>(body.data()), body.size()}, version, to);
}

/// Its rows are taken.
void forget_body(Inferring& inferring) {
  inferring.files.clear();
  inferring.input = {};
  inferring.body = {};
}

/// What the client wants, with what it leaves open filled in.
std::vector<WantedOutput> settle_outputs(std::vector<WantedOutput> outputs, bool binary,
                                         const Version& version) {
  const data::Task task = version.input().task;
  const std::string answers = backend::name_of_answers(task);
  if (outputs.empty())
    outputs = {{.name = logits_output, .binary = {}}, {.name = answers, .binary = {}}};
  for (WantedOutput& output : outputs) {
    expect(output.name == logits_output || output.name == answers,
           "there is no output '{}'; '{}' and '{}' are", output.name, logits_output, answers);
    expect(output.classification == 0 || task != data::Task::values,
           "output '{}': values have no classification", output.name);
    output.binary = output.binary.value_or(binary);
    output.classification = std::min(output.classification, version.classes());
  }
  return outputs;
}

/// Triton's form of a classification: "VALUE:INDEX:LABEL".
void classify(std::span<const float> values, const Version& version, std::size_t top,
              std::vector<std::string>& to) {
  if (std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); }))
    throw RequestError(500, "the network's outputs are not numbers");
  for (const std::size_t k : likeliest(values, top))
    to.push_back(fmt::format("{}:{}:{}", values[k], k, version.input().classes[k]));
}

/// "12.5 %  fish", a line for each of the likeliest classes or labels; or a line for each value.
std::string answer_text(std::span<const float> logits, const Version& version) {
  constexpr std::size_t most = 5;
  const data::DataSetInfo& input = version.input();
  const std::vector<float> answers = backend::answers_of(input, logits);
  if (std::ranges::any_of(answers, [](float value) { return std::isnan(value); }))
    throw RequestError(500, "the network's outputs are not numbers");
  std::string text;
  if (input.task == data::Task::values)
    for (std::size_t k = 0; k < answers.size(); ++k)
      text += fmt::format("{:>12}  {}\n", answers[k], input.classes[k]);
  else
    for (const std::size_t k : likeliest(answers, std::min(most, answers.size())))
      text += fmt::format("{:5.1f} %  {}\n", 100 * answers[k], input.classes[k]);
  return text;
}

OutputTensor output_tensor(const WantedOutput& wanted, const RowsJob& job, const Version& version) {
  OutputTensor tensor{.name = wanted.name,
                      .shape = {job.rows, version.classes()},
                      .values = {},
                      .strings = {},
                      .binary = *wanted.binary};
  if (wanted.classification > 0) tensor.shape[1] = wanted.classification;
  for (std::size_t row = 0; row < job.rows; ++row) {
    const std::span<const float> logits =
        std::span(job.logits).subspan(row * version.classes(), version.classes());
    const std::vector<float> values = wanted.name == logits_output
                                          ? std::vector<float>(logits.begin(), logits.end())
                                          : backend::answers_of(version.input(), logits);
    if (wanted.classification > 0)
      classify(values, version, wanted.classification, tensor.strings);
    else
      tensor.values.insert(tensor.values.end(), values.begin(), values.end());
  }
  return tensor;
}

}  // namespace

bool is_soon_read(const HttpRequest& request) {
  constexpr std::size_t most_json = 4096, most_bytes = 256 * 1024;
  const auto json_length = header(request, json_length_header);
  return json_length && whole_number<std::uint64_t>(*json_length).value_or(most_json) < most_json &&
         request.body.size() <= most_bytes && !header(request, "content-encoding");
}

void read_infer(HttpRequest request, const Version& version, const ServeSpec& spec,
                Inferring& inferring) {
  inferring.body =
      decode_content(std::move(request.body), header(request, "content-encoding").value_or(""),
                     spec.http.most_body_bytes, inferring.share);
  const auto json_length = header(request, json_length_header);
  inferring.job = std::make_shared<RowsJob>();
  if (is_raw(json_length)) {
    inferring.outputs = settle_outputs({}, true, version);
    inferring.for_people = header(request, "accept").value_or("").starts_with("text/plain");
    return take_raw(inferring.body, version, inferring);
  }
  ByteBudget::Share while_it_reads(spec.http.budget);
  InferRequest read = parse_infer_request(
      inferring.body, json_length,
      {.element = version.input().element, .files = version.takes_files()}, while_it_reads);
  inferring.id = std::move(read.id);
  inferring.timeout_s = read.timeout_s;
  inferring.outputs = settle_outputs(std::move(read.outputs), read.binary, version);
  take_input(std::move(read.inputs), version, spec, inferring);
  if (inferring.files.empty()) forget_body(inferring);
}

void make_room(Inferring& inferring, const Version& version) {
  RowsJob& job = *inferring.job;
  job.rows = inferring.files.size();
  take_room(inferring, version);
  job.images.resize(job.rows * version.row_bytes());
}

bool prepare_next(Inferring& inferring, const Version& version) {
  const std::size_t row = inferring.prepared;
  version.prepare(
      inferring.files[row], fmt::format("image {}", row),
      std::span(inferring.job->images).subspan(row * version.row_bytes(), version.row_bytes()));
  if (++inferring.prepared < inferring.files.size()) return true;
  forget_body(inferring);
  return false;
}

double reading_cost_s(const HttpRequest& request, const ServeSpec& spec) {
  constexpr double json_byte_s = 5e-8, inflated_byte_s = 4e-9, byte_s = 1e-9, most_inflated = 1032;
  const auto bytes = static_cast<double>(request.body.size());
  const auto json_length = header(request, json_length_header);
  const double json_bytes =
      json_length
          ? std::min<double>(
                static_cast<double>(whole_number<std::uint64_t>(*json_length).value_or(0)), bytes)
          : bytes;
  if (!header(request, "content-encoding")) return bytes * byte_s + json_bytes * json_byte_s;
  const double inflated =
      std::min(bytes * most_inflated, static_cast<double>(spec.http.most_body_bytes));
  return inflated * inflated_byte_s + json_bytes * json_byte_s;
}

double next_cost_s(const Inferring& inferring) {
  return Version::cost_s(inferring.files[inferring.prepared]);
}

double writing_cost_s(const Inferring& inferring, const Version& version) {
  constexpr double value_s = 1e-7;
  return value_s *
         static_cast<double>(inferring.job->rows * version.classes() * inferring.outputs.size());
}

bool is_soon_written(const Inferring& inferring, const Version& version) {
  constexpr std::size_t most_values = 2048;
  return inferring.job->rows * version.classes() * inferring.outputs.size() <= most_values;
}

HttpResponse infer_response(const Inferring& inferring, const Version& version) {
  if (inferring.for_people) return {.body = answer_text(inferring.job->logits, version)};
  InferResponse response{
      .model = version.name(), .version = version.number(), .id = inferring.id, .outputs = {}};
  bool binary = false;
  for (const WantedOutput& wanted : inferring.outputs) {
    response.outputs.push_back(output_tensor(wanted, *inferring.job, version));
    binary = binary || *wanted.binary;
  }
  std::size_t json_length = 0;
  HttpResponse answer{.type = "application/json",
                      .body = infer_response_body(response, json_length)};
  if (binary) {
    answer.type = "application/octet-stream";
    answer.headers["Inference-Header-Content-Length"] = std::to_string(json_length);
  }
  return answer;
}

}  // namespace lockstep::serve
