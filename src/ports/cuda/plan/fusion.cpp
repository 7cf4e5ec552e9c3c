#include "ports/cuda/plan/fusion.hpp"

#include <fmt/format.h>

#include <array>
#include <exception>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "ports/cuda/plan/plan.hpp"

namespace lockstep::cuda {

namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();

/// True when nothing else needs this unit's value, so that its only reader can compute it as it
/// reads.
bool applicable(const Unit& norm) {
  return norm.kind == UnitKind::norm && norm.relu && !norm.skip && norm.readers.size() == 1;
}

/// All fusions, those that fuse more first. No engine can normalise its input without making the
/// sums of its output.
std::vector<ConvFusion> fusions_of(bool is_applicable) {
  std::vector<ConvFusion> all;
  for (const ConvFusion& forward : {ConvFusion{true, true}, ConvFusion{false, true}, ConvFusion{}})
    for (const bool norm_gradient : {true, false})
      if (is_applicable || !(forward.normalised || norm_gradient))
        all.push_back({forward.normalised, forward.sums, norm_gradient});
  return all;
}

class Chooser {
 public:
  Chooser(const nn::Network& network, const std::vector<Unit>& units,
          const backend::ProgramSpec& spec, ConvPlanner& planner)
      : network_(network), units_(units), spec_(spec), planner_(planner) {}

  std::vector<ConvFusion> run() {
    return fuse_norms(units_, [&](std::size_t u, const ConvFusion& fusion) {
      if (const ConvFusion* known = find(u)) return fusion == *known ? 0. : impossible;
      return planner_.tuning() ? seconds(u, fusion) : parts_apart(u, fusion);
    });
  }

  /// Keeps what was measured.
  void keep(const std::vector<ConvFusion>& chosen) {
    const ConvTuning* tuning = planner_.tuning();
    for (std::size_t u = 0; u < units_.size() && tuning; ++u)
      if (units_[u].kind == UnitKind::conv && !find(u)) {
        planner_.fusions()[name_of(u)] = chosen[u];
        tuning->cache.keep(name_of(u), to_string(chosen[u]));
      }
  }

 private:
  std::vector<ConvRequest> requests(std::size_t u, const ConvFusion& fusion) const {
    return conv_requests(network_, units_[u], units_[units_[u].input], spec_, fusion);
  }
  std::string name_of(std::size_t u) const {
    return fmt::format("batch norms next to the {}{}", describe(requests(u, {}).at(0)),
                       applicable(units_[units_[u].input]) ? ", one before it" : "");
  }

  /// What was chosen before, in this process or, while tuned, in another.
  const ConvFusion* find(std::size_t u) {
    const std::string name = name_of(u);
    const auto known = planner_.fusions().find(name);
    if (known != planner_.fusions().end()) return &known->second;
    if (!planner_.tuning()) return nullptr;
    const std::string kept = planner_.tuning()->cache.find(name);
    for (const ConvFusion& fusion : fusions_of(applicable(units_[units_[u].input])))
      if (kept == to_string(fusion) && seconds_of_passes(u, fusion, false) < impossible)
        return &(planner_.fusions()[name] = fusion);
    return nullptr;
  }

  /// The sum over the passes, or 0 without `measure`; infinite where one has no engine.
  double seconds_of_passes(std::size_t u, const ConvFusion& fusion, bool measure) {
    double sum = 0;
    for (const ConvRequest& request : requests(u, fusion))
      sum += measure ? seconds_of(request) : planner_.possible(request) ? 0 : impossible;
    return sum;
  }

  double seconds_of(const ConvRequest& request) {
    const auto [known, is_new] = seconds_.try_emplace(request, impossible);
    if (is_new && planner_.possible(request))
      known->second =
          measured([&] { return planner_.tuning()->seconds(request, planner_.plan(request)); });
    return known->second;
  }
  double seconds_of(NormPart part, std::size_t values, std::size_t channels) {
    const std::size_t rows = values / channels;
    const auto [known, is_new] = norm_seconds_.try_emplace({part, rows, channels});
    if (is_new)
      known->second = measured(
          [&] { return planner_.tuning()->norm_seconds(part, rows, channels, spec_.precision); });
    return known->second;
  }
  /// Infinite where it does not run here, or its memory does not fit.
  template <class Measure>
  static double measured(const Measure& measure) {
    try {
      return measure();
    } catch (const std::exception&) {  // the library's own ones, too
      return impossible;
    }
  }

  double seconds(std::size_t u, const ConvFusion& fusion) {
    double sum = seconds_of_passes(u, fusion, true);
    const ConvShape shape = requests(u, {}).at(0).shape;
    if (!fusion.sums) sum += seconds_of(NormPart::statistics, shape.output_count(), shape.outputs);
    if (!applicable(units_[units_[u].input])) return sum;
    if (!fusion.normalised) sum += seconds_of(NormPart::apply, shape.input_count(), shape.channels);
    if (!fusion.norm_gradient)
      sum += seconds_of(NormPart::gradient_sums, shape.input_count(), shape.channels);
    return sum;
  }

  double parts_apart(std::size_t u, const ConvFusion& fusion) {
    return seconds_of_passes(u, fusion, false) + 3. - (fusion.normalised ? 1 : 0) -
           (fusion.sums ? 1 : 0) - (fusion.norm_gradient ? 1 : 0);
  }

  const nn::Network& network_;
  const std::vector<Unit>& units_;
  const backend::ProgramSpec& spec_;
  ConvPlanner& planner_;
  std::map<ConvRequest, double> seconds_;
  std::map<std::tuple<NormPart, std::size_t, std::size_t>, double> norm_seconds_;
};

}  // namespace

std::vector<ConvFusion> fuse_norms(const std::vector<Unit>& units, const FusionCost& cost) {
  std::vector<ConvFusion> fusions(units.size());
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].kind != UnitKind::conv) continue;
    double least = impossible;
    for (const ConvFusion& fusion : fusions_of(applicable(units[units[u].input])))
      if (const double its = cost(u, fusion); its < least) {
        least = its;
        fusions[u] = fusion;
      }
  }
  return fusions;
}

std::vector<ConvFusion> choose_fusions(const nn::Network& network, const std::vector<Unit>& units,
                                       const backend::ProgramSpec& spec, ConvPlanner& planner) {
  if (!spec.fuse_norms || !spec.training || spec.precision != backend::Precision::fp16)
    return std::vector<ConvFusion>(units.size());
  Chooser chooser(network, units, spec, planner);
  std::vector<ConvFusion> chosen = chooser.run();
  chooser.keep(chosen);
  return chosen;
}

std::string to_string(const ConvFusion& fusion) {
  const std::array<std::pair<bool, const char*>, 3> parts{
      {{fusion.normalised, "applied"}, {fusion.sums, "sums"}, {fusion.norm_gradient, "gradient"}}};
  std::string text;
  for (const auto& [has, part] : parts)
    if (has) text += (text.empty() ? "" : ", ") + std::string(part);
  return text.empty() ? "apart" : text;
}

std::optional<Fold> image_fold(const nn::Network& network, backend::Precision precision) {
  const nn::Node& image = network.nodes.front();
  if (image.op != nn::Op::input || storage_of(precision) == Storage::fp32) return std::nullopt;
  const std::vector<std::size_t> readers = nn::readers(network).front();
  if (readers.size() != 1) return std::nullopt;
  const nn::Node& conv = network.nodes[readers[0]];
  // A kernel smaller than its stride leaves pixels out, which a folded image would contain.
  if (conv.op != nn::Op::conv || conv.stride == 1 || conv.kernel < conv.stride) return std::nullopt;
  const auto number = [](std::size_t n) { return static_cast<int>(n); };
  const Fold fold{.outputs = number(conv.shape.channels),
                  .kernel = number(conv.kernel),
                  .stride = number(conv.stride),
                  .padding = number(conv.padding),
                  .out_height = number(conv.shape.height),
                  .out_width = number(conv.shape.width),
                  .height = number(image.shape.height),
                  .width = number(image.shape.width),
                  .channels = number(image.shape.channels),
                  .padded = number(padded_image_channels(image.shape.channels))};
  if (fold.folded_channels() > most_folded_channels) return std::nullopt;
  return fold;
}

ConvShape folded_shape(const Fold& fold, std::size_t batch) {
  const auto count = [](int n) { return static_cast<std::size_t>(n); };
  return {.batch = batch,
          .channels = count(fold.folded_channels()),
          .height = count(fold.folded_height()),
          .width = count(fold.folded_width()),
          .outputs = count(fold.outputs),
          .out_height = count(fold.out_height),
          .out_width = count(fold.out_width),
          .kernel_height = count(fold.cells())};
}

}  // namespace lockstep::cuda
