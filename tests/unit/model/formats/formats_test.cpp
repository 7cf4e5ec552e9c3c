#include "lockstep/model/formats/formats.hpp"

#include <limits>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "lockstep/base/files/files.hpp"
#include "lockstep/nn/partition.hpp"
#include "model/formats/readers.hpp"
#include "tests/support/folder_fixture.hpp"
#include "tests/unit/model/formats/pickle_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;

namespace {

void check_weights(const Model& found, const Model& wanted) {
  REQUIRE(found.weights.size() == wanted.weights.size());
  for (std::size_t i = 0; i < found.weights.size(); ++i) {
    CAPTURE(wanted.weights[i].tensor.name);
    CHECK(found.weights[i].tensor.name == wanted.weights[i].tensor.name);
    CHECK(found.weights[i].tensor.shape == wanted.weights[i].tensor.shape);
    CHECK(floats(found.weights[i].values) == floats(wanted.weights[i].values));
  }
}

/// A safetensors file of float32: (name, shape) and zeros, or `value`.
std::string file_of(const std::vector<nn::Tensor>& tensors, float value = 0,
                    const std::string& prefix = "") {
  std::string header = "{", values;
  for (const nn::Tensor& tensor : tensors) {
    std::string shape;
    for (const std::size_t extent : tensor.shape) shape += std::to_string(extent) + ",";
    if (!shape.empty()) shape.pop_back();
    const std::size_t begin = values.size();
    values += floats(std::vector<float>(tensor.count(), value));
    header += fmt::format(R"("{}{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}},)",
                          prefix, tensor.name, shape, begin, values.size());
  }
  header.back() = '}';
  return safetensors_file(header, values);
}

struct Reading {
  Model read(const std::string& bytes, const data::DataSetInfo* rows = nullptr) const {
    write_file(path, bytes);
    return read_weights(path, rows).model;
  }
  /// Without the path that each error begins with.
  std::string refusal(const std::string& bytes) const {
    const std::string error = error_of([&] { read(bytes); });
    const std::string begin = path.string() + ": ";
    return error.starts_with(begin) ? error.substr(begin.size()) : "no path: " + error;
  }
  const Folder folder;
  const std::filesystem::path path = folder.path / "some.file";
};

}  // namespace

TEST_CASE("a model comes back from each format, bit for bit, with what explains it", "[formats]") {
  Model model = resnet_model();
  model.settings = {{"precision", "bf16"}, {"winograd", "auto"}};
  const Folder folder;
  for (const Format& format : formats()) {
    CAPTURE(format.ending);
    const std::filesystem::path path = folder.path / ("model" + std::string(format.ending));
    write_file(path, format_of(path).bytes(model));
    CHECK(is_weights_file(path));
    const auto [found, what] = read_weights(path);
    CHECK(what == format.what);
    check_weights(found, model);
    CHECK(found.steps == 4711);
    CHECK(found.settings == model.settings);
    CHECK(same(found.about.network, model.about.network));
    CHECK(found.about.input.classes == model.about.input.classes);
    CHECK(found.about.input.mean == model.about.input.mean);
    CHECK(found.about.input.stddev == model.about.input.stddev);
    CHECK(found.about.preparation == model.about.preparation);
    CHECK(format.bytes(found) == read_text(path));
  }
}

TEST_CASE("an element, no data, a task and the units of values come back from each format",
          "[formats]") {
  const Folder folder;
  for (const data::Task task : {data::Task::labels, data::Task::values})
    for (const std::size_t outputs : {1, 3}) {
      nn::ResNetSpec spec = nn::usual_resnet("resnet20", 0, outputs);
      spec.classifies = false;
      spec.channels = 5;
      Model model = model_of(nn::resnet(spec));
      data::DataSetInfo& input = model.about.input;
      input.element = data::Element::i16;
      input.no_data = task == data::Task::labels ? -9999 : std::numeric_limits<float>::quiet_NaN();
      input.task = task;
      if (task == data::Task::values) {
        input.target_mean.assign(outputs, 101325.1f);
        input.target_stddev.assign(outputs, 1.f / 3);
      }
      for (const Format& format : formats()) {
        CAPTURE(format.ending, choice_name(task), outputs);
        const std::filesystem::path path = folder.path / ("model" + std::string(format.ending));
        write_file(path, format.bytes(model));
        const Model found = read_weights(path).model;
        check_weights(found, model);
        CHECK(found.about.input.element == input.element);
        CHECK(data::say_no_data(found.about.input) == data::say_no_data(input));
        CHECK(found.about.input.task == task);
        CHECK(found.about.input.target_mean == input.target_mean);
        CHECK(found.about.input.target_stddev == input.target_stddev);
        CHECK(format.bytes(found) == read_text(path));
      }
    }
}

TEST_CASE("one output of a network whose task its file does not say is an error", "[formats]") {
  nn::ResNetSpec spec = nn::usual_resnet("resnet20", 0, 1);
  spec.classifies = false;
  CHECK_THAT(Reading().refusal(file_of(nn::tensors(nn::resnet(spec)), 1)),
             Contains("its network has one output, which tells no classes apart"));
}

TEST_CASE("names of classes that do not fit into a zip's comment are left out", "[formats]") {
  Model model = resnet_model();
  model.about.input.classes[3] = std::string(70000, 'c');
  const Folder folder;
  for (const char* name : {"a.pth", "a.npz", "a.safetensors"}) {
    write_file(folder.path / name, format_of(name).bytes(model));
    const data::DataSetInfo found = read_weights(folder.path / name).model.about.input;
    CHECK(found.mean == model.about.input.mean);
    CHECK(found.classes.empty() == (std::string(name) != "a.safetensors"));
  }
}

TEST_CASE("an ONNX file is found by its ending, or by how it begins when its producer is named",
          "[formats][onnx]") {
  const Reading reading;
  const Model model = resnet_model();
  const std::string file = format_of("a.onnx").bytes(model);
  check_weights(reading.read(file), model);
  CHECK(is_weights_file(reading.path));
  const std::string nameless = replaced(file, "\x12\x08lockstep", "");
  CHECK_THAT(reading.refusal(nameless), Contains("no tensors in a form that is known"));
  CHECK_FALSE(is_weights_file(reading.path));
  write_file(reading.folder.path / "a.onnx", nameless);
  CHECK(read_weights(reading.folder.path / "a.onnx").format == "ONNX");
  write_file(reading.path, "\x08\x07\x12\x08lock\x01tep");
  CHECK_FALSE(is_weights_file(reading.path));
}

TEST_CASE("each ResNet is found by its tensors", "[formats][large]") {
  const Reading reading;
  for (const std::string& name : nn::resnet_models()) {
    const nn::ResNetSpec spec = nn::usual_resnet(name, 0, 7);
    const Model found = reading.read(file_of(nn::tensors(nn::resnet(spec))));
    CHECK(same(found.about.network, nn::resnet(spec)));
    CHECK(found.about.input.mean.empty());
  }
  nn::ResNetSpec spec = nn::usual_resnet("resnet20", 0, 7);
  spec.shortcut = nn::Shortcut::conv;
  spec.channels = 1;
  CHECK(same(reading.read(file_of(nn::tensors(nn::resnet(spec)))).about.network, nn::resnet(spec)));
}

TEST_CASE("a ResNet of a design without a name is found by its tensors", "[formats]") {
  const Reading reading;
  const nn::Design designs[] = {{.stem = nn::Stem::small, .blocks = {1, 2, 1}, .width = 32},
                                {.block = nn::BlockKind::bottleneck, .blocks = {1, 1}, .inner = 96},
                                {.block = nn::BlockKind::bottleneck, .blocks = {1}, .groups = 8},
                                {.stem = nn::Stem::small, .blocks = {1, 1, 1, 1, 1}},
                                {.stem = nn::Stem::deep, .blocks = {1, 1, 2}, .width = 96}};
  for (const nn::Design& design : designs)
    for (const char* model : {"resnet20", "resnet18"}) {
      nn::ResNetSpec spec = nn::usual_resnet(model, 64, 7);
      spec.design = design;
      if (design.stem == nn::Stem::deep) spec.shortcut = nn::Shortcut::average;
      const nn::Network network = nn::resnet(spec);
      const Model found = reading.read(file_of(nn::tensors(network)));
      CHECK(nn::numbers(found.about.network) == nn::numbers(network));
      CHECK(nn::cut_points(found.about.network).size() == nn::cut_points(network).size());
    }
}

TEST_CASE("names may have the prefixes of people's programs", "[formats]") {
  const Reading reading;
  const auto tensors = nn::tensors(nn::resnet({}));
  for (const char* prefix : {"module.", "model.", "_orig_mod.", "module._orig_mod.model."})
    CHECK(reading.read(file_of(tensors, 0, prefix)).about.network.name == "resnet20");
  CHECK_THAT(reading.refusal(file_of(tensors, 0, "other.")),
             Contains("it has no tensor 'conv1.weight'"));
}

TEST_CASE("what a file does not say about its input is as in the rows", "[formats]") {
  const Reading reading;
  data::DataSetInfo rows;
  rows.height = rows.width = 48;
  rows.channels = 3;
  rows.mean = {0.1f, 0.2f, 0.3f};
  rows.stddev = {0.4f, 0.5f, 0.6f};
  const Model found = reading.read(file_of(nn::tensors(nn::resnet({}))), &rows);
  CHECK(found.about.network.input == nn::Shape{3, 48, 48});
  CHECK(found.about.input.mean == rows.mean);
  rows.encoding = data::Encoding::jpeg;
  const Model jpegs = reading.read(file_of(nn::tensors(nn::resnet({}))), &rows);
  CHECK(jpegs.about.network.input == nn::Shape{3, 32, 32});
}

TEST_CASE("tensors of another network are an error that names one of them", "[formats]") {
  const Reading reading;
  const auto tensors = nn::tensors(nn::resnet({}));
  auto some = tensors;
  some.erase(some.begin() + 1);
  const std::string begin =
      "its tensors are not those of a ResNet that lockstep knows: compared with resnet20, ";
  CHECK(reading.refusal(file_of(some)) == begin + "it has no tensor 'bn1.weight'");
  some = tensors;
  some.push_back({"aux.weight", nn::Role::linear_weight, 0, {1}});
  CHECK(reading.refusal(file_of(some)) ==
        begin + "it has a tensor 'aux.weight' that this model lacks");
  some = tensors;
  some[0].shape = {16, 3, 5, 5};
  CHECK(reading.refusal(file_of(some)) ==
        begin + "tensor 'conv1.weight' is [16, 3, 5, 5] there and [16, 3, 3, 3] here");
  some = tensors;
  for (nn::Tensor& tensor : some) tensor.name = "trunk." + tensor.name;
  CHECK_THAT(reading.refusal(file_of(some)),
             Contains("it has no tensor 'conv1.weight'; its names begin with 'trunk.': save it "
                      "without that"));
  CHECK(reading.refusal(safetensors_file("{}", "")) == "it has no tensors");
}

TEST_CASE("values that are not finite, or not those of the checksum, are an error", "[formats]") {
  const Reading reading;
  const auto tensors = nn::tensors(nn::resnet({}));
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
    CHECK(reading.refusal(file_of(tensors, value)) ==
          "tensor 'fc.weight' has a value that is not finite");
  std::string bytes = safetensors_bytes(resnet_model());
  bytes.back() ^= 1;
  CHECK(reading.refusal(bytes) ==
        "its values were altered: they do not have the checksum that it names");
  const auto with_note = [](const std::string& from, const std::string& to) {
    Model model = resnet_model();
    model.about.input.mean.assign(3, 0.5f);
    return replaced(safetensors_bytes(model), from, to);
  };
  CHECK(reading.refusal(with_note("[0.5,0.5,0.5]", "[0.5,    0.5]")) ==
        "its notes 'mean' and 'stddev' do not have one value for each of 3 channels");
  CHECK(reading.refusal(with_note("[0.5,0.5,0.5]", "[0.5,0.5,0.5}")) ==
        "its note 'mean' cannot be read");
  CHECK(reading.refusal(with_note(R"("height":"32")", R"("height":" 0")")) ==
        "its note 'height' is not a number from 1 to 65536");
  CHECK(reading.refusal(with_note(R"("height":"32")", R"("steps": "-1")")) ==
        "its note 'steps' is not a whole number");
}

TEST_CASE("a file whose floats would take far more memory than it has bytes is an error",
          "[formats]") {
  // One number, which is each of them: strides of 0.
  std::string codes;
  for (const nn::Tensor& tensor : nn::tensors(nn::resnet(nn::usual_resnet("resnet18", 0, 10)))) {
    TensorForm form{.name = tensor.name, .count = 1, .shape = {}, .strides = {}};
    for (const std::size_t extent : tensor.shape) form.shape.push_back(static_cast<int>(extent));
    form.strides.assign(form.shape.size(), 0);
    codes += tensor_code(form);
  }
  CHECK_THAT(Reading().refusal(pth_file(pickle_of(dictionary_code(codes)), {{"0", floats({1})}})),
             Contains("bytes of floats, too many for a file of"));
}

TEST_CASE("a file of no known format is an error, and a checkpoint is not one of these",
          "[formats]") {
  const Reading reading;
  CHECK_THAT(reading.refusal("some text"), Contains("no tensors in a form that is known"));
  CHECK_THAT(reading.refusal(""), Contains("no tensors in a form that is known"));
  CHECK(reading.refusal(zip_file({{"a.txt", "text"}})) ==
        "it is a zip, but neither PyTorch's nor numpy's");
  CHECK_FALSE(is_weights_file(reading.path.parent_path()));
  write_file(reading.folder.path / "text", "some text");
  CHECK_FALSE(is_weights_file(reading.folder.path / "text"));
  write_file(reading.folder.path / "a.pth", "lockstep checkpoint 3\n");
  CHECK_FALSE(is_weights_file(reading.folder.path / "a.pth"));
  write_file(reading.folder.path / "b.pth", "some text");
  CHECK(is_weights_file(reading.folder.path / "b.pth"));
  CHECK_THROWS_WITH(format_of("model.onyx"),
                    Contains("model.onyx: the name must end in .safetensors, .pth"));
}
