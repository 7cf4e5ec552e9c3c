#include "lockstep/data/external/external.hpp"

namespace lockstep::data {

LabelsPlace labels_place(const ExternalSpec& spec) {
  const std::size_t colon = spec.labels.rfind(':');
  if (colon == std::string::npos) return {"", spec.labels};
  return {spec.labels.substr(0, colon), spec.labels.substr(colon + 1)};
}

std::string first_setting(const ExternalSpec& spec) {
  if (!spec.images.empty()) return "data.images = " + spec.images;
  if (!spec.labels.empty()) return "data.labels = " + spec.labels;
  if (spec.layout != "auto") return "data.layout = " + spec.layout;
  if (spec.range != "auto") return "data.range = " + spec.range;
  return {};
}

}  // namespace lockstep::data
