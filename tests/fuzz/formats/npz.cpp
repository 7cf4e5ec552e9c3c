// Fuzzes .npz: a zip, as it is, or an array that this puts into a zip, because a zip has sums that
// hardly any change keeps. The first byte says which, and whether the array is deflated.
#include "model/formats/readers.hpp"

#include "tests/fuzz/formats/tensors.hpp"
#include "tests/unit/model/formats/zip_fixture.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::uint8_t array_flag = 1, deflated_flag = 2;

std::string array(const std::string& text, std::size_t values) {
  return std::string("\x93NUMPY\x01\x00", 8) +
         test::little(static_cast<std::uint16_t>(text.size())) + text + std::string(values, 'v');
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string row =
      array("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  const std::string turned =
      array("{'descr': '<f8', 'fortran_order': True, 'shape': (3, 1), }", 24);
  const std::string count = array("{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 8);
  std::vector<std::string> all;
  for (const std::string& one : {row, turned, count})
    for (const char how : {array_flag, static_cast<std::uint8_t>(array_flag | deflated_flag)})
      all.push_back(how + one);
  const test::Members members = {{"fc.weight.npy", row}, {"bn1.num_batches_tracked.npy", count}};
  for (const test::ZipForm form :
       {test::ZipForm{}, test::ZipForm{.deflated = true}, test::ZipForm{.zip64 = true}})
    all.push_back('\0' + test::zip_file(members, form, R"({"producer":"lockstep"})"));
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  const std::uint8_t how = bytes[0];
  std::string file = text_of(bytes.subspan(1));
  if ((how & array_flag) != 0)
    file = test::zip_file({{"a.npy", file}}, {.deflated = (how & deflated_flag) != 0});
  const AllocationLaw law(file.size());
  const auto zip = std::make_shared<const model::ZipReader>(file);
  if (!model::is_npz(*zip)) return;
  read_all(model::read_npz(zip), file.size());
}

}  // namespace lockstep::fuzz
