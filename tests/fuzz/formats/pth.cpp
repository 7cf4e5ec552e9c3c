// Fuzzes .pth: a pickle that this puts into a zip with two storages, because a zip has sums that
// hardly any change keeps; a zip as it is; or a file of the form before PyTorch 1.6. The first byte
// says which.
#include "model/formats/readers.hpp"

#include "tests/fuzz/formats/tensors.hpp"
#include "tests/unit/model/formats/pickle_fixture.hpp"

namespace lockstep::fuzz {
namespace {

using namespace test;

constexpr std::size_t kinds = 3;
// A pickle may have 2^18 values of some 72 bytes, whatever they are good for.
constexpr std::size_t pickle_bytes = std::size_t{24} << 20;

const Members storages = {{"0", std::string(24, 'v')}, {"1", std::string(16, '\0')}};

std::string state(bool old) {
  TensorForm form{.count = 6, .shape = {2, 3}, .strides = {3, 1}, .old = old};
  TensorForm other{.name = "fc.weight",
                   .storage = "1",
                   .type = "LongStorage",
                   .count = 2,
                   .first = 1,
                   .shape = {},
                   .strides = {},
                   .old = old};
  return dictionary_code(tensor_code(form) + tensor_code(other));
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string plain = pickle_of(state(false)),
                    nested = pickle_of(dictionary_code(text_code("epoch") + number_code(9) +
                                                       text_code("state_dict") + state(false)) +
                                       "q\x01h\x01"
                                       "0");
  const std::string frame = "\x80\x04\x95" + std::string(8, '\0') +
                            "\x8c\x0b"
                            "collections\x94\x8c\x0b"
                            "OrderedDict\x94\x93)R\x94}sb.";
  const std::string old =
      std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15) +
      pickle_of("M\xe9\x03") + pickle_of("}" + text_code("little_endian") + "\x88s") +
      pickle_of(state(true)) + pickle_of("](" + text_code("0") + text_code("1") + "e") +
      little(std::int64_t{6}) + storages[0].second + little(std::int64_t{2}) + storages[1].second;
  std::vector<std::string> all;
  for (const std::string& pickle : {plain, nested, frame}) all.push_back('\0' + pickle);
  all.push_back('\1' + pth_file(plain, storages));
  all.push_back('\2' + old);
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::size_t kind = bytes[0] % kinds;
  std::string file = text_of(bytes.subspan(1));
  if (kind == 2) {
    const auto content = std::make_shared<const std::string>(file);
    const AllocationLaw law(file.size(), pickle_bytes);
    return read_all(model::read_old_pth(content), file.size());
  }
  if (kind == 0) file = pth_file(file, storages);
  const AllocationLaw law(file.size(), pickle_bytes);
  const auto zip = std::make_shared<const model::ZipReader>(file);
  if (!model::is_pth(*zip)) return;
  read_all(model::read_pth(zip), file.size());
}

}  // namespace lockstep::fuzz
