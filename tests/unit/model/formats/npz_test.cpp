#include "model/formats/readers.hpp"

#include <catch2/catch.hpp>

#include "lockstep/model/network_text.hpp"
#include "tests/unit/model/formats/zip_fixture.hpp"
#include "tests/unit/model/network_fixture.hpp"

using namespace lockstep;
using namespace lockstep::model;
using namespace lockstep::test;
using Catch::Contains;
using namespace std::string_literals;

namespace {

std::string npy_file(const std::string& header, const std::string& values, char major = 1) {
  const std::string length = major == 1 ? little(static_cast<std::uint16_t>(header.size()))
                                        : little(static_cast<std::uint32_t>(header.size()));
  return "\x93NUMPY"s + major + '\0' + length + header + values;
}

std::string npy_dictionary(const std::string& descr, const std::string& order,
                           const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

/// The values of array `a` in a zip, and of no other.
std::vector<float> array_in(const std::string& array, const ZipForm& form = {}) {
  const std::string zip = zip_file({{"a.npy", array}}, form);
  const TensorFile file = read_npz(std::make_shared<const ZipReader>(zip));
  REQUIRE(file.tensors.size() == 1);
  CHECK(file.tensors[0].name == "a");
  return values_of(file.tensors[0]);
}

std::string array_refusal(const std::string& array) {
  return error_of([&] { array_in(array); });
}

}  // namespace

TEST_CASE("an .npz is a zip of arrays with the header that numpy writes, at multiples of 64",
          "[formats]") {
  const Model model = model_of(parse_network(small_network_text));
  const std::string zip = npz_bytes(model);
  const ZipReader reader(zip);
  REQUIRE(reader.members().size() == 8);
  CHECK(reader.members()[0].name == "conv1.weight.npy");
  CHECK(reader.members()[5].name == "bn1.num_batches_tracked.npy");
  CHECK(reader.members()[7].name == "fc.bias.npy");
  std::string buffer;
  const auto expect = [&](std::size_t member, std::string header, const std::string& values) {
    header.resize(117, ' ');
    CHECK((reader.read(reader.members()[member], buffer) == npy_file(header + '\n', values)));
  };
  const auto values = [&](const char* name) {
    for (const Weight& weight : model.weights)
      if (weight.tensor.name == name) return floats(weight.values);
    return ""s;
  };
  expect(0, "{'descr': '<f4', 'fortran_order': False, 'shape': (16, 3, 3, 3), }",
         values("conv1.weight"));
  expect(7, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", values("fc.bias"));
  expect(5, "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", little(std::int64_t{4711}));
}

TEST_CASE("arrays come back from all versions of numpy's format, packed or not", "[formats]") {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const std::string header = npy_dictionary("<f4", "False", "(2, 3)");
  for (const char major : {1, 2, 3}) {
    CHECK(array_in(npy_file(header, floats(values), major)) == values);
    CHECK(array_in(npy_file(header, floats(values), major), {.deflated = true}) == values);
  }
  CHECK(array_in(npy_file(header, floats(values)), {.zip64 = true}) == values);
  CHECK(array_in(npy_file("{'shape': (6,), 'fortran_order': False, 'descr': '<f4'}",
                          floats(values))) == values);
  CHECK(array_in(npy_file(npy_dictionary("<f4", "False", "()"), floats({7}))) ==
        std::vector<float>{7});
}

TEST_CASE("an array in Fortran's order comes back row by row", "[formats]") {
  CHECK(array_in(npy_file(npy_dictionary("<f4", "True", "(2, 3)"), floats({1, 4, 2, 5, 3, 6}))) ==
        std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(array_in(npy_file(npy_dictionary("<f4", "True", "(2, 1, 2, 2)"),
                          floats({1, 5, 3, 7, 2, 6, 4, 8}))) ==
        std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a damaged array is an error that names it", "[formats]") {
  const std::string values = floats({1, 2});
  const auto with = [&](const std::string& descr, const std::string& order,
                        const std::string& shape) {
    return array_refusal(npy_file(npy_dictionary(descr, order, shape), values));
  };
  CHECK(with("<f4", "False", "(2,)").empty());
  CHECK(with("<f4", "False", "(3,)") ==
        "'a.npy' has 8 bytes of values, which do not fit its shape");
  CHECK(with("|O", "False", "(2,)") == "'a.npy' has numbers of type '|O'");
  CHECK(with(">f4", "False", "(2,)") == "'a.npy' has numbers of type '>f4'");
  CHECK(with("<i4", "False", "(2,)") == "tensor 'a' holds I32, which are no floats");
  CHECK(with("<f4", "Maybe", "(2,)") == "'a.npy' has a damaged header");
  CHECK(with("<f4", "False", "(-2,)") == "'a.npy' has a shape that cannot be read");
  CHECK(with("<f4", "False", "(1,1,1,1,1,1,1,1,2)") == "'a.npy' has a shape that cannot be read");
  CHECK(with("<f4", "False", "(99999999999999999999,)") ==
        "'a.npy' has a shape that cannot be read");
  CHECK_THAT(with("<f4", "False", "(4294967296,4294967296,2)"), Contains("too many numbers"));
  CHECK(array_refusal(npy_file("{'descr': '<f4', 'shape': (2,)}", values)) ==
        "'a.npy' has a header without descr, fortran_order or shape");
  CHECK(array_refusal(npy_file("{'descr': '<f4', 'descr': '<f4'}", values)) ==
        "'a.npy' has a damaged header");
  CHECK(array_refusal("\x93NUMPY\x01\x00\xff\xff{}"s + values) ==
        "'a.npy' has a header that is cut off");
  CHECK(array_refusal("\x93NUMPY\x04\x00\x02\x00\x00\x00{}"s) ==
        "'a.npy' has version 4 of the format");
  CHECK(array_refusal("some text, no array") == "'a.npy' has no array of numpy's");
}
