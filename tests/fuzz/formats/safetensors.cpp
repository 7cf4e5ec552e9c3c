// Fuzzes safetensors. The first byte says whether the header's length is corrected first, because
// otherwise hardly any change would get past it.
#include "model/formats/readers.hpp"

#include "tests/fuzz/formats/tensors.hpp"

namespace lockstep::fuzz {
namespace {

constexpr std::size_t length_bytes = 8;

std::string with_length(const std::string& header, const std::string& values) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + values;
}

/// The header ends after its last brace.
std::string repaired(const std::string& file) {
  const std::size_t end = file.rfind('}');
  if (end == file.npos || end < length_bytes) return file;
  return with_length(file.substr(length_bytes, end + 1 - length_bytes), file.substr(end + 1));
}

}  // namespace

std::vector<std::string> seeds() {
  const std::string one = R"({"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  const std::string more =
      R"({"__metadata__":{"format":"pt","producer":"lockstep","mean":"[0.5]"},)"
      R"("module.fc.weight":{"dtype":"F16","shape":[2,2],"data_offsets":[8,16]},)"
      R"("module.bn1.num_batches_tracked":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("module.conv1.weight":{"dtype":"F64","shape":[1,1,1,1],"data_offsets":[16,24]}} )";
  std::vector<std::string> all;
  for (const char repair : {0, 1}) {
    all.push_back(repair + with_length(one, std::string(8, 'v')));
    all.push_back(repair + with_length(more, std::string(24, 'v')));
  }
  return all;
}

void one(std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;
  std::string file = text_of(bytes.subspan(1));
  if (bytes[0] % 2 == 1) file = repaired(file);
  const auto content = std::make_shared<const std::string>(std::move(file));
  const AllocationLaw law(content->size());
  read_all(model::read_safetensors(content), content->size());
}

}  // namespace lockstep::fuzz
