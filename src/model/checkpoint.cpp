#include "lockstep/model/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <sstream>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/model/model.hpp"
#include "model/description.hpp"
#include "model/seal.hpp"

namespace lockstep::model {
namespace {

/// Limits of a header: an attribute's 64 KiB; two paths and a reason in a text; an image's side.
inline constexpr std::size_t most_numbers = 1 << 14, longest_text = 1 << 16, longest_side = 1 << 16;

/// A checkpoint that is open for reading. The checksum proves that it is unchanged, but not who
/// wrote it, so sizes and types are not trusted.
class CheckpointReader {
 public:
  explicit CheckpointReader(const std::filesystem::path& path)
      : path_(path), file_(h5::open_file(path)) {}

  bool has(const char* name) const { return h5::has_attribute(file_, name); }
  std::uint64_t count(const char* name) const { return attribute(name).number<std::uint64_t>(); }
  double real(const char* name) const { return attribute(name).number<double>(); }
  std::string text(const char* name) const { return attribute(name).text(longest_text); }
  std::vector<float> reals(const char* name, std::size_t channels) const {
    const h5::Item item = attribute(name);
    if (item.count() != channels)
      item.refuse(fmt::format("does not have one value for each of {} channels", channels));
    return item.numbers<float>(most_numbers);
  }

  std::vector<std::string> names(const std::string& group) const {
    return h5::names_in(file_, path_, group);
  }
  std::vector<std::size_t> shape(const std::string& name) const { return data_set(name).shape(); }
  void read(const std::string& name, std::span<float> values) const { data_set(name).read(values); }
  std::vector<float> tensor(const std::string& name) const {
    const h5::Item item = data_set(name);
    return item.numbers<float>(item.count());
  }
  std::vector<std::string> texts(const char* name) const {
    const h5::Item item = data_set(name);
    item.expect_rank(1);
    return item.read_fixed_strings(longest_text);
  }
  bool has_data_set(std::string_view name) const {
    const auto all = names("/");
    return std::binary_search(all.begin(), all.end(), name);
  }
  Preparation preparation() const {
    const h5::Item fit = attribute("fit"), side = attribute("short_side");
    const auto short_side = side.number<std::uint64_t>();
    if (short_side > longest_side)
      side.refuse(fmt::format("is {}; at most {} is possible", short_side, longest_side));
    if (const auto value = find_choice<Resized>(fit.text(longest_text)))
      return {*value, short_side};
    fit.refuse(fmt::format("is not {}", join(choice_names<Resized>(), ", ")));
  }
  data::Element element() const { return choice<data::Element>("element"); }
  data::Task task() const { return choice<data::Task>("task"); }
  data::Curve curve() const { return choice<data::Curve>("curve"); }
  void read_sums(std::span<double> sums) const { attribute("epoch_sums").read(sums); }
  std::string bytes(const std::string& name) const {
    const h5::Item item = data_set(name);
    std::string found(item.expect_rank(1)[0], '\0');
    item.read(std::span(reinterpret_cast<std::uint8_t*>(found.data()), found.size()));
    return found;
  }

 private:
  template <class Chosen>
  Chosen choice(const char* name) const {
    const h5::Item item = attribute(name);
    if (const auto found = find_choice<Chosen>(item.text(longest_text))) return *found;
    item.refuse(fmt::format("is not {}", join(choice_names<Chosen>(), ", ")));
  }
  h5::Item attribute(const char* name) const {
    return h5::Item::attribute(file_.get(), path_, name);
  }
  h5::Item data_set(const std::string& name) const {
    h5::Item item = h5::Item::data_set(file_.get(), path_, name);
    item.expect_plain();
    return item;
  }
  const std::filesystem::path& path_;
  h5::Session session_;  // outlives the open file
  h5::File file_;
};

}  // namespace

namespace {

void read_loss_scale(const CheckpointReader& file, backend::Parameters& parameters) {
  if (!file.has("loss_scale")) return;
  backend::LossScale then;
  then.scale = static_cast<float>(file.real("loss_scale"));
  then.good_steps = static_cast<std::uint32_t>(file.count("loss_scale_good_steps"));
  then.skipped_in_a_row = static_cast<std::uint32_t>(file.count("skipped_in_a_row"));
  then.skipped = file.count("skipped");
  parameters.set_loss_scale(then);
}

void read_average(const CheckpointReader& file, backend::Parameters& parameters,
                  backend::Part into) {
  const auto& slices = parameters.layout().slices;
  std::vector<float> plain;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    plain.resize(slices[i].tensor.count());
    file.read("ema/" + slices[i].tensor.name, plain);
    parameters.import_slice(into, i, plain);
  }
}

std::vector<nn::Tensor> tensors_of(const nn::ArenaLayout& layout) {
  std::vector<nn::Tensor> tensors;
  for (const nn::Slice& slice : layout.slices) tensors.push_back(slice.tensor);
  return tensors;
}

/// Throws InputError unless the file has these tensors, by name and shape.
void require_same_model(const std::filesystem::path& path, const CheckpointReader& file,
                        std::vector<nn::Tensor> tensors) {
  const auto names = file.names("weights");
  const auto other = [&](const std::string& what) {
    throw InputError(fmt::format("{}: a checkpoint of another model: {}", path.string(), what));
  };
  // The error names the first tensor in the order of forward.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const auto& a, const auto& b) { return a.node < b.node; });
  for (const nn::Tensor& tensor : tensors) {
    if (!std::binary_search(names.begin(), names.end(), tensor.name))
      other(fmt::format("it has no tensor '{}'", tensor.name));
    const auto shape = file.shape("weights/" + tensor.name);
    if (shape != tensor.shape)
      other(fmt::format("tensor '{}' is {} there and {} here", tensor.name, shape_text(shape),
                        shape_text(tensor.shape)));
  }
  if (names.size() == tensors.size()) return;
  for (const std::string& name : names) {
    const auto same = [&name](const nn::Tensor& tensor) { return tensor.name == name; };
    if (std::none_of(tensors.begin(), tensors.end(), same))
      other(fmt::format("it has a tensor '{}' that this model lacks", name));
  }
}

}  // namespace

CheckpointHeader read_header(const std::filesystem::path& path) {
  CheckpointHeader header;
  header.format = verified_format(path);
  const CheckpointReader file(path);
  Progress& at = header.progress;
  at.step = file.count("step");
  at.epoch = file.count("epoch");
  at.batch = file.count("batch");
  at.loss_sum = file.real("epoch_loss_sum");
  at.rows = file.count("epoch_rows");
  at.top1 = file.count("epoch_top1");
  if (file.has("score")) at.score = file.text("score");
  at.best_score = file.real(at.score.empty() ? "best_top1" : "best_score");
  at.best_epoch = file.count("best_epoch");
  if (file.has("epoch_bad_rows")) at.bad_rows = file.texts("bad_rows");
  if (header.explains_itself()) {
    header.network = file.bytes("network");
    header.preparation = file.preparation();
  }
  if (!header.explains_itself() || file.has_data_set("config"))
    header.config = file.bytes("config");
  header.backend = file.text("backend");
  header.build = file.text("build");
  header.world = file.count("world");
  header.replicas = file.has("replicas") ? file.count("replicas") : header.world;
  if (file.has_data_set("placement")) header.placement = file.bytes("placement");
  header.input.rows = file.count("train_rows");
  if (file.has("train_rows_hash")) header.input.rows_hash = file.count("train_rows_hash");
  header.metrics_bytes = file.count("metrics_bytes");
  header.input.channels = file.count("channels");
  header.input.height = file.count("height");
  header.input.width = file.count("width");
  header.input.classes = file.texts("classes");
  if (file.has("element")) header.input.element = file.element();
  if (file.has("no_data")) header.input.no_data = file.reals("no_data", 1)[0];
  if (file.has("task")) {
    header.input.task = file.task();
    file.read_sums(at.sums);
    if (header.input.task == data::Task::values) {
      header.input.target_mean = file.tensor("target_mean");
      header.input.target_stddev = file.tensor("target_stddev");
    }
  }
  if (file.has("curve")) {
    header.input.shaping.curve = file.curve();
    if (file.has("clip_low")) {
      header.input.shaping.low = file.reals("clip_low", header.input.channels);
      header.input.shaping.high = file.reals("clip_high", header.input.channels);
    }
  }
  header.input.mean = file.reals("mean", header.input.channels);
  header.input.stddev = file.reals("stddev", header.input.channels);
  if (file.has("exchange")) header.exchange = file.text("exchange");
  return header;
}

std::vector<std::string> list_exchange_state(const std::filesystem::path& path) {
  const CheckpointReader file(path);
  return file.has("exchange") ? file.names("exchange") : std::vector<std::string>();
}

std::vector<ExchangePart> list_exchange_parts(const std::filesystem::path& path) {
  const CheckpointReader file(path);
  std::vector<ExchangePart> parts;
  if (!file.has_data_set(parts_name)) return parts;
  std::istringstream text(file.bytes(parts_name));
  std::uint64_t left = std::filesystem::file_size(path);
  for (ExchangePart part; text >> part.name >> part.bytes >> std::hex >> part.crc32c >> std::dec;
       left -= parts.back().bytes) {
    require(part.bytes <= left, fmt::format("{}: the part {} of the exchange's state is not there",
                                            path.string(), part.name));
    parts.push_back(part);
  }
  return parts;
}

void verify_exchange_parts(const std::filesystem::path& path, std::size_t share,
                           std::size_t shares) {
  const std::vector<ExchangePart> parts = list_exchange_parts(path);
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::size_t i = share; i < parts.size(); i += shares) {
    ExchangePartReader reader(path, parts[i].name);
    for (std::uint64_t left = parts[i].bytes; left > 0;) {
      const auto now = std::span(piece).first(std::min<std::uint64_t>(piece.size(), left));
      reader.read(now);
      left -= now.size();
    }
  }
}

/// The parts are the file's last bytes.
ExchangePartReader::ExchangePartReader(const std::filesystem::path& path, const std::string& name)
    : path_(path), file_(open_regular(path)) {
  offset_ = std::filesystem::file_size(path);
  bool after = false;
  for (const ExchangePart& part : list_exchange_parts(path)) {
    after = after || part.name == name;
    if (part.name == name) part_ = part;
    if (after) offset_ -= part.bytes;
  }
  left_ = part_.bytes;
  require(after && file_,
          fmt::format("{}: has no part {} of its exchange's state, or cannot be read",
                      path.string(), name));
}

void ExchangePartReader::read(std::span<std::byte> to) {
  const bool there =
      to.size() <= left_ && read_all_at(file_.get(), to.data(), to.size(), offset_) == to.size();
  sum_ = crc32c(to.data(), to.size(), sum_);
  offset_ += to.size();
  left_ -= to.size();
  require(
      there && (left_ > 0 || sum_ == part_.crc32c),
      fmt::format("{}: the part {} of the exchange's state is torn or was altered: its checksum "
                  "does not fit",
                  path_.string(), part_.name));
}

std::string read_exchange_state(const std::filesystem::path& path, const std::string& name) {
  return CheckpointReader(path).bytes("exchange/" + name);
}

std::vector<TensorEntry> list_tensors(const std::filesystem::path& path) {
  verify_checkpoint(path);
  verify_exchange_parts(path);
  const CheckpointReader file(path);
  std::vector<TensorEntry> tensors;
  std::vector<std::string> groups{"weights/", "momentum/"};
  if (file.has(average_attribute)) groups.emplace_back("ema/");
  if (file.has(moments_attribute)) groups.emplace_back("second_moments/");
  for (const std::string& group : groups)
    for (const std::string& name : file.names(group)) {
      TensorEntry tensor{group + name, file.shape(group + name), 0};
      const std::vector<float> values = file.tensor(tensor.name);
      tensor.crc32c = crc32c(values.data(), values.size() * sizeof(float));
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

void require_tensors_of(const nn::Network& network, const std::filesystem::path& path) {
  require_same_model(path, CheckpointReader(path), nn::tensors(network));
}

void load_tensors(const std::filesystem::path& path, backend::Parameters& parameters, bool momentum,
                  const std::optional<FileStamp>& verified) {
  if (!verified || stamp_of(path) != *verified) verify_checkpoint(path);
  const CheckpointReader file(path);
  const nn::ArenaLayout& layout = parameters.layout();
  require_same_model(path, file, tensors_of(layout));
  const bool moments = momentum && parameters.has_second_moments();
  require(!moments || file.has(moments_attribute),
          fmt::format("{}: holds no second moments: it was not trained with optim.rule = lamb",
                      path.string()));
  if (momentum) read_loss_scale(file, parameters);
  std::vector<float> plain;
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    const nn::Tensor& tensor = layout.slices[i].tensor;
    plain.resize(tensor.count());
    file.read("weights/" + tensor.name, plain);
    parameters.import_slice(backend::Part::weights, i, plain);
    if (!momentum || !has_momentum(layout, i)) continue;
    file.read("momentum/" + tensor.name, plain);
    parameters.import_slice(backend::Part::momentum, i, plain);
    if (!moments) continue;
    file.read("second_moments/" + tensor.name, plain);
    parameters.import_slice(backend::Part::second_moments, i, plain);
  }
  if (!momentum || !parameters.has_average()) return;
  if (file.has(average_attribute))
    read_average(file, parameters, backend::Part::average);
  else
    parameters.start_average();
}

void load_average(const std::filesystem::path& path, backend::Parameters& parameters) {
  verify_checkpoint(path);
  const CheckpointReader file(path);
  require(file.has(average_attribute),
          fmt::format("{}: holds no average of the weights: it was trained with optim.ema = 0",
                      path.string()));
  require_same_model(path, file, tensors_of(parameters.layout()));
  read_average(file, parameters, backend::Part::weights);
}

}  // namespace lockstep::model
