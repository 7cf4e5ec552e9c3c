#include "model/formats/readers.hpp"

#include <catch2/catch.hpp>

#include "model/formats/torch/pickle.hpp"
#include "tests/unit/model/formats/pickle_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;
using namespace std::string_literals;

namespace {

using Values = std::map<std::string, std::vector<float>>;

Values read(const TensorFile& file) {
  Values values;
  for (const StoredTensor& tensor : file.tensors) values[tensor.name] = values_of(tensor);
  return values;
}

Values values_in_pickle(const std::string& codes, const Members& storages) {
  const std::string zip = pth_file(pickle_of(codes), storages);
  return read(read_pth(std::make_shared<const ZipReader>(zip)));
}

std::string pickle_refusal(const std::string& codes, const Members& storages = {}) {
  return error_of([&] { values_in_pickle(codes, storages); });
}

const Members six = {{"0", floats({1, 2, 3, 4, 5, 6})}};
const TensorForm plain_form = {.count = 6, .shape = {2, 3}, .strides = {3, 1}};

/// The form before PyTorch 1.6.
std::string old_pth(const std::string& codes, const std::vector<std::string>& keys,
                    const std::string& storages, bool little_endian = true) {
  std::string list = "](";
  for (const std::string& key : keys) list += text_code(key);
  return "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."s + pickle_of("M\xe9\x03") +
         pickle_of("}" + text_code("little_endian") + (little_endian ? "\x88" : "\x89") + "s") +
         pickle_of(codes) + pickle_of(list + "e") + storages;
}

Values values_in_old_pth(const std::string& bytes) {
  REQUIRE(looks_like_old_pth(bytes));
  return read(read_old_pth(std::make_shared<const std::string>(bytes)));
}

}  // namespace

TEST_CASE("tensors of a .pth come back with their offsets and strides", "[formats]") {
  CHECK(values_in_pickle(dictionary_code(tensor_code(plain_form)), six)["a"] ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
  // Two tensors in one storage, one of them transposed.
  const std::string both =
      tensor_code({.name = "turned", .count = 6, .shape = {3, 2}, .strides = {1, 3}}) +
      tensor_code({.name = "tail", .count = 6, .first = 4, .shape = {2}, .strides = {1}}) +
      tensor_code({.name = "one", .count = 6, .first = 5, .shape = {}, .strides = {}});
  const Values values = values_in_pickle(dictionary_code(both), six);
  CHECK(values.at("turned") == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(values.at("tail") == std::vector<float>{5, 6});
  CHECK(values.at("one") == std::vector<float>{6});
}

TEST_CASE("halves in a .pth become floats", "[formats]") {
  CHECK(values_in_pickle(
            dictionary_code(
                tensor_code({.type = "HalfStorage", .count = 2, .shape = {2}, .strides = {1}})),
            {{"0", little(std::uint16_t{0x3c00}) + little(std::uint16_t{0x8000})}})["a"] ==
        std::vector<float>{1, -0.f});
}

TEST_CASE("a state dict is found below the keys that people use", "[formats]") {
  const std::string state = dictionary_code(tensor_code(plain_form));
  for (const char* key : {"state_dict", "model", "model_state_dict", "net"}) {
    const std::string codes =
        dictionary_code(text_code("epoch") + number_code(90) + text_code("best") + "G" +
                        std::string(8, '\0') + text_code(key) + state);
    CHECK(values_in_pickle(codes, six).size() == 1);
  }
  // With other tensors next to it: a loss, a best accuracy, an optimizer's.
  const std::string other =
      tensor_code({.name = "best_acc1", .count = 6, .shape = {}, .strides = {}});
  const std::string moments = text_code("optimizer") + dictionary_code(other);
  for (const char* key : {"state_dict", "model", "model_state_dict", "net", "model_ema"}) {
    const std::string below = text_code(key) + state;
    for (const std::string& codes : {other + below, below + other, moments + other + below,
                                     text_code("model") + "N" + other + below})
      CHECK(values_in_pickle(dictionary_code(codes), six).contains("a"));
  }
  CHECK(values_in_pickle(dictionary_code(other + moments), six).contains("best_acc1"));
  // An OrderedDict with attributes, of a Parameter, in protocol 4.
  const std::string call = tensor_code(plain_form).substr(text_code("a").size());
  const std::string parameter = "\x8c\x05w.one" +
                                global_code("torch._utils", "_rebuild_parameter") + "(" + call +
                                "\x88" + global_code("collections", "OrderedDict") + ")RtR";
  const std::string ordered =
      "\x8c\x0b"
      "collections\x94\x8c\x0b"
      "OrderedDict\x94\x93)R\x94(" +
      parameter + "u}" + text_code("_metadata") + "}sb";
  CHECK(values_in_pickle("\x80\x04\x95" + std::string(8, '\0') + ordered, six).contains("w.one"));
}

TEST_CASE("a pickle that calls anything but what makes tensors is an error that names it",
          "[formats]") {
  CHECK(pickle_refusal(global_code("posix", "system") + "(" + text_code("touch owned") + "tR") ==
        "its pickle would call 'posix.system', which lockstep does not; save only the tensors, by "
        "torch.save(model.state_dict(), FILE)");
  CHECK_THAT(pickle_refusal(global_code("os", "system")), Contains("would call 'os.system'"));
  CHECK_THAT(pickle_refusal("\x8c\x08"
                            "builtins\x8c\x04"
                            "eval\x93"),
             Contains("would call 'builtins.eval'"));
  CHECK_THAT(pickle_refusal(global_code("torch.nn.modules.conv", "Conv2d")),
             Contains("would call 'torch.nn.modules.conv.Conv2d'"));
  CHECK_THAT(pickle_refusal("i"), Contains("opcode 0x69, which is not known"));       // INST
  CHECK_THAT(pickle_refusal(dictionary_code("") + "\x81"), Contains("opcode 0x81"));  // NEWOBJ
}

TEST_CASE("a pickle that is cut off anywhere is an error", "[formats]") {
  const std::string pickle = pickle_of(dictionary_code(tensor_code(plain_form)));
  for (std::size_t bytes = 0; bytes < pickle.size(); ++bytes)
    CHECK(!error_of([&] {
             const std::string zip = pth_file(pickle.substr(0, bytes), six);
             read_pth(std::make_shared<const ZipReader>(zip));
           }).empty());
}

TEST_CASE("a pickle whose opcodes do not fit each other is an error", "[formats]") {
  for (const char* codes :
       {"",      "0",     "t", "(0", "\x87",  "R",      "))R", "b",  "s",  "}NNNs0s", "](Nu",
        "h\x05", "q\x05", "Q", "NQ", "N\x93", "NN\x93", "a",   "(a", "((", "}(Nu"})
    CHECK(!pickle_refusal(codes).empty());
  CHECK_THAT(pickle_refusal(std::string(300000, 'N')), Contains("more than 262144 values"));
}

TEST_CASE("a tensor that does not lie in its storage is an error that names it", "[formats]") {
  const auto with = [&](TensorForm form, const Members& storages = six) {
    return pickle_refusal(dictionary_code(tensor_code(form)), storages);
  };
  CHECK(with({.count = 6, .shape = {7}, .strides = {1}}) ==
        "tensor 'a' reaches beyond its 24 bytes");
  CHECK(with({.count = 6, .first = 1, .shape = {2, 3}, .strides = {3, 1}}) ==
        "tensor 'a' reaches beyond its 24 bytes");
  CHECK(with({.count = 6, .shape = {3}, .strides = {1 << 30}}) ==
        "tensor 'a' reaches beyond its 24 bytes");
  CHECK(with({.count = 7, .shape = {7}, .strides = {1}}) ==
        "tensor 'a' has a storage of 7 numbers in 24 bytes");
  CHECK(with({.storage = "1", .count = 6, .shape = {6}, .strides = {1}}) ==
        "tensor 'a' has no storage '1'");
  CHECK(with({.count = 6, .shape = {-1}, .strides = {1}}) ==
        "tensor 'a' has a size that cannot be read");
  CHECK(with({.count = 6, .shape = {6}, .strides = {}}) ==
        "tensor 'a' has other strides than dimensions");
  CHECK_THAT(with({.type = "LongStorage", .count = 3, .shape = {3}, .strides = {1}}),
             Contains("'a' holds I64"));
}

TEST_CASE("a pickle without a state dict is an error", "[formats]") {
  for (const std::string& codes :
       {"}"s, "N"s, dictionary_code(text_code("model") + "}"),
        dictionary_code(text_code("other") + dictionary_code(tensor_code(plain_form)))})
    CHECK_THAT(pickle_refusal(codes, six), Contains("it has no state dict"));
}

TEST_CASE("a .pth of the form before PyTorch 1.6 comes back", "[formats]") {
  TensorForm form = plain_form;
  form.old = true;
  const std::string codes = dictionary_code(tensor_code(form));
  const std::string storage = little(std::int64_t{6}) + six[0].second;
  CHECK(values_in_old_pth(old_pth(codes, {"0"}, storage))["a"] ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto refuse = [](const std::string& bytes) {
    return error_of([&] { values_in_old_pth(bytes); });
  };
  const std::string whole = old_pth(codes, {"0"}, storage);
  for (std::size_t bytes = 20; bytes < whole.size(); ++bytes)
    CHECK(!refuse(whole.substr(0, bytes)).empty());
  CHECK(refuse(whole + "1") == "1 bytes after its last storage");
  CHECK(refuse(old_pth(codes, {"0"}, storage, false)) == "its numbers are big-endian");
  CHECK(refuse(old_pth(codes, {"1"}, storage)) == "storage '1' belongs to no tensor");
  CHECK(refuse(old_pth(codes, {}, "")) == "tensor 'a' has no storage '0'");
  CHECK(refuse(old_pth(codes, {"0"}, little(std::int64_t{7}) + six[0].second)) ==
        "storage '0' has 7 numbers, not 6");
}
