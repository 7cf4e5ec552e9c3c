// Measures a network's convolutions alone in one training step on the CPU backend: its own
// primitives on its own chunks and lanes, with nothing between them. Prints JSON:
//   conv_floor --model resnet50 --image 224 --batch 8 --precision bf16 --threads 2
// Batch norm, copies of weights, adding up partial weight gradients and the linear layer are left
// out. Sources and gradients stay in the lane's cache, where the backend would have just made them;
// outputs go to memory for the whole batch, since batch norm needs all of them.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/cluster/topology/bind.hpp"
#include "lockstep/cluster/topology/cpuset.hpp"
#include "lockstep/nn/resnet.hpp"
#include "ports/cpu/program.hpp"
#include "ports/cpu/units/conv/winograd_conv.hpp"

namespace lockstep::cpu {
namespace {

using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;
using Json = nlohmann::ordered_json;

struct Options {
  std::string model = "resnet20", precision = "fp32";
  bool winograd = true;
  std::size_t image = 32, batch = 128, threads = 2, passes = 10, warm_up = 3;
};

/// Memory full of 0x3c: 0.0115 as float and as bf16, far from denormals.
struct Values {
  explicit Values(std::size_t bytes) : host(bytes) { std::memset(host.data(), 0x3c, bytes); }
  HostMemory host;
};

enum Kind { forward, weight_gradient, data_gradient, kinds };
constexpr std::array<const char*, kinds> kind_names = {"forward_ms", "weight_gradient_ms",
                                                       "data_gradient_ms"};

/// One lane's memory for a chunk, as large as the largest convolution needs.
struct Lane {
  struct Bytes {
    std::size_t source = 1, destination = 1, weights = 1, scratch = 1;
  };
  explicit Lane(const Bytes& bytes)
      : source(bytes.source),
        source_gradient(bytes.source),
        destination_gradient(bytes.destination),
        weights_gradient(bytes.weights),
        scratch(bytes.scratch) {}
  Values source, source_gradient, destination_gradient, weights_gradient, scratch;
  dnnl::stream stream{engine()};
};

/// One convolution of the network, cut in the same way as its region.
class Layer {
 public:
  Layer(const nn::Network& network, const Unit& unit, const Region& region, Storage storage,
        std::size_t batch, bool winograd)
      : geometry_(ConvGeometry::of(network, unit.node, storage)),
        stripe_(geometry_.stripe(region.stripes)),
        formats_(ConvFormats::choose(stripe_)),
        region_(region),
        has_data_gradient_(unit.input.has_value()),
        output_(geometry_.destination_bytes() * batch),
        forward_weights_(formats_.forward.get_size()),
        backward_weights_(
            std::max(formats_.backward_data.get_size(), formats_.gradient.get_size())),
        by_winograd_(winograd && WinogradConv::fits(stripe_, formats_)),
        winograd_(by_winograd_ ? WinogradConv(stripe_) : WinogradConv()),
        transformed_(by_winograd_ ? winograd_.weight_bytes() : 0) {
    for (const auto& chunks : region.lanes)
      for (const Chunk& chunk : chunks)
        if (!prepared_.contains(chunk.count))
          prepared_[chunk.count].primitives =
              make_conv(stripe_, formats_, chunk.count, has_data_gradient_);
  }

  void need(Lane::Bytes& bytes) const {
    bytes.source = std::max(bytes.source, stripe_.source_bytes() * region_.chunk_stripes);
    bytes.destination =
        std::max(bytes.destination, stripe_.destination_bytes() * region_.chunk_stripes);
    bytes.weights = std::max(bytes.weights, formats_.gradient.get_size());
    for (const auto& [count, prepared] : prepared_)
      bytes.scratch = std::max(bytes.scratch, prepared.primitives.scratch_bytes);
    if (by_winograd_)
      bytes.scratch = std::max(bytes.scratch, winograd_.scratch_bytes(region_.chunk_stripes));
  }

  void bind(const std::vector<Lane>& lanes) {
    for (auto& [count, prepared] : prepared_)
      for (const Lane& lane : lanes) prepared.arguments.push_back(arguments(lane, count, prepared));
  }

  void run(Kind kind, std::size_t number, Lane& lane) {
    for (const Chunk& chunk : region_.lanes[number]) {
      if (by_winograd_) {
        run_winograd(kind, chunk, lane);
        continue;
      }
      Prepared& prepared = prepared_.at(chunk.count);
      Arguments& arguments = prepared.arguments[number][kind];
      if (kind == forward)
        arguments.at(DNNL_ARG_DST)
            .set_data_handle(output_.host.data() + chunk.before(geometry_.destination_bytes()));
      primitive(prepared.primitives, kind).execute(lane.stream, arguments);
    }
  }

  bool has(Kind kind) const { return kind != data_gradient || has_data_gradient_; }
  const std::string& name() const { return geometry_.name; }
  const std::string& implementations() const {
    return prepared_.rbegin()->second.primitives.implementations;
  }
  double chunk_rows() const {
    return static_cast<double>(region_.chunk_stripes) / static_cast<double>(region_.stripes);
  }
  double gflop(std::size_t batch) const {  // of one kind
    return 2e-9 * static_cast<double>(batch * geometry_.weight_count() * geometry_.out_height *
                                      geometry_.out_width);
  }

 private:
  struct Prepared {
    ConvPrimitives primitives;
    std::vector<std::array<Arguments, kinds>> arguments;  // by lane
  };

  /// Weights' transforms are left out, as other copies of weights are, unless each call makes its
  /// own.
  void run_winograd(Kind kind, const Chunk& chunk, Lane& lane) {
    const auto* weights = backward_weights_.host.as<float>();
    std::byte* scratch = lane.scratch.host.data();
    if (kind == forward)
      winograd_.forward(chunk.count, lane.source.host.data(), weights, transformed_.host.data(),
                        output_.host.data() + chunk.before(geometry_.destination_bytes()), scratch);
    else if (kind == data_gradient)
      winograd_.data_gradient(chunk.count, lane.destination_gradient.host.data(), weights,
                              transformed_.host.data(), lane.source_gradient.host.data(), scratch);
    else
      winograd_.weight_gradient(chunk.count, lane.source.host.data(),
                                lane.destination_gradient.host.data(), false,
                                lane.weights_gradient.host.as<float>(), scratch);
  }

  static const dnnl::primitive& primitive(const ConvPrimitives& primitives, Kind kind) {
    if (kind == forward) return primitives.forward;
    if (kind == weight_gradient) return primitives.backward_weights;
    return primitives.backward_data;
  }

  std::array<Arguments, kinds> arguments(const Lane& lane, std::size_t count,
                                         const Prepared& prepared) const {
    const auto of = [](const memory::desc& desc, const Values& values) {
      return memory(desc, engine(), values.host.data());
    };
    const memory::desc source = stripe_.source(count), destination = stripe_.destination(count);
    const memory::desc scratch({static_cast<memory::dim>(prepared.primitives.scratch_bytes)},
                               memory::data_type::u8, memory::format_tag::a);
    const std::pair<const int, memory> library{DNNL_ARG_SCRATCHPAD, of(scratch, lane.scratch)};
    return {Arguments{{DNNL_ARG_SRC, of(source, lane.source)},
                      {DNNL_ARG_WEIGHTS, of(formats_.forward, forward_weights_)},
                      {DNNL_ARG_DST, of(destination, output_)},
                      library},
            Arguments{{DNNL_ARG_SRC, of(source, lane.source)},
                      {DNNL_ARG_DIFF_DST, of(destination, lane.destination_gradient)},
                      {DNNL_ARG_DIFF_WEIGHTS, of(formats_.gradient, lane.weights_gradient)},
                      library},
            Arguments{{DNNL_ARG_DIFF_DST, of(destination, lane.destination_gradient)},
                      {DNNL_ARG_WEIGHTS, of(formats_.backward_data, backward_weights_)},
                      {DNNL_ARG_DIFF_SRC, of(source, lane.source_gradient)},
                      library}};
  }

  ConvGeometry geometry_, stripe_;
  ConvFormats formats_;
  const Region& region_;
  bool has_data_gradient_;
  Values output_, forward_weights_, backward_weights_;
  bool by_winograd_;
  WinogradConv winograd_;
  Values transformed_;
  std::map<std::size_t, Prepared> prepared_;  // by stripes
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

backend::ProgramSpec rows(std::size_t batch) {
  backend::ProgramSpec spec;
  spec.batch = batch;
  return spec;
}

/// All convolutions of one network, in network order.
class Convolutions {
 public:
  explicit Convolutions(const Options& options)
      : network_(nn::resnet({.model = options.model,
                             .classes = 10,
                             .height = options.image,
                             .width = options.image})),
        units_(lower(network_)),
        storage_(options.precision == "bf16" ? Storage::bf16 : Storage::fp32),
        regions_(make_regions(network_, units_, rows(options.batch), options.threads, storage_)) {
    Lane::Bytes bytes;
    for (const Region& region : regions_)
      for (const std::size_t u : region.units) {
        if (units_[u].kind != UnitKind::conv) continue;
        layers_.emplace_back(network_, units_[u], region, storage_, options.batch,
                             options.winograd);
        layers_.back().need(bytes);
      }
    for (std::size_t lane = 0; lane < options.threads; ++lane) lanes_.emplace_back(bytes);
    for (Layer& layer : layers_) layer.bind(lanes_);
    times_.resize(layers_.size());
  }

  /// One step's convolutions in the step's order: forward, then backward in reverse.
  void pass(Team& team) {
    for (std::size_t l = 0; l < layers_.size(); ++l) time(team, l, forward);
    for (std::size_t l = layers_.size(); l-- > 0;) {
      time(team, l, weight_gradient);
      time(team, l, data_gradient);
    }
  }

  void forget() { times_.assign(layers_.size(), {}); }

  /// For some kinds, summed over all layers: the median over the passes, in ms.
  double total_ms(std::initializer_list<Kind> which) const {
    std::vector<double> sums(times_[0][forward].size());
    for (const auto& layer : times_)
      for (const Kind kind : which)
        for (std::size_t pass = 0; pass < layer[kind].size(); ++pass)
          sums[pass] += layer[kind][pass];
    return median(sums);
  }

  double gflop(std::size_t batch) const {
    double sum = 0;
    for (const Layer& layer : layers_)
      sum += layer.gflop(batch) * (layer.has(data_gradient) ? kinds : kinds - 1);
    return sum;
  }

  Json by_layer(std::size_t batch) const {
    Json list = Json::array();
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      Json one = {{"name", layers_[l].name()},
                  {"chunk_rows", layers_[l].chunk_rows()},
                  {"gflop_each", layers_[l].gflop(batch)}};
      for (int kind = 0; kind < kinds; ++kind)
        if (!times_[l][kind].empty()) one[kind_names[kind]] = median(times_[l][kind]);
      one["implementations"] = layers_[l].implementations();
      list.push_back(std::move(one));
    }
    return list;
  }

 private:
  void time(Team& team, std::size_t number, Kind kind) {
    Layer& layer = layers_[number];
    if (!layer.has(kind)) return;
    const double begin = now_ms();
    team.run([&](std::size_t lane) { layer.run(kind, lane, lanes_[lane]); });
    times_[number][kind].push_back(now_ms() - begin);
  }

  nn::Network network_;
  std::vector<Unit> units_;
  Storage storage_;
  std::vector<Region> regions_;
  std::vector<Layer> layers_;
  std::vector<Lane> lanes_;
  std::vector<std::array<std::vector<double>, kinds>> times_;  // ms by layer, kind, pass
};

Options parse(int argc, char** argv) {
  Options options;
  CLI::App app("The convolutions of one training step, alone", "conv_floor");
  app.add_option("--model", options.model, "as for lockstep train")->capture_default_str();
  app.add_option("--precision", options.precision, "fp32 or bf16")
      ->check(CLI::IsMember({"fp32", "bf16"}))
      ->capture_default_str();
  app.add_option("--image", options.image, "side of the images")->capture_default_str();
  app.add_option("--winograd", options.winograd,
                 "3 x 3 convolutions by Winograd's algorithm, where it fits")
      ->capture_default_str();
  const auto count = CLI::PositiveNumber;
  app.add_option("--batch", options.batch, "rows")->check(count)->capture_default_str();
  app.add_option("--threads", options.threads, "lanes")->check(count)->capture_default_str();
  app.add_option("--steps", options.passes, "measured passes")->check(count)->capture_default_str();
  app.add_option("--warm-up", options.warm_up, "passes before the measured ones")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  return options;
}

void measure(const Options& options) {
  require(options.threads <= options.batch, "--threads: at most one for each row of the batch");
  kernels(options.precision == "bf16" ? Storage::bf16
                                      : Storage::fp32);  // throws for bf16 where training does
  const cluster::CpuSet allowed = cluster::current_cpus();
  std::vector<cluster::CpuSet> cpus;
  for (std::size_t lane = 0; lane < options.threads; ++lane)
    cpus.push_back(options.threads <= allowed.size() ? cluster::CpuSet{allowed[lane]}
                                                     : cluster::CpuSet{});
  Team team(cpus);
  Convolutions convolutions(options);
  for (std::size_t i = 0; i < options.warm_up; ++i) convolutions.pass(team);
  convolutions.forget();
  for (std::size_t i = 0; i < options.passes; ++i) convolutions.pass(team);

  const double step_ms = convolutions.total_ms({forward, weight_gradient, data_gradient});
  Json json = {{"model", options.model},
               {"precision", options.precision},
               {"batch", options.batch},
               {"threads", options.threads},
               {"steps", options.passes},
               {"step_ms", step_ms},
               {"images_per_s", static_cast<double>(options.batch) / step_ms * 1e3},
               {"gflop_per_s", convolutions.gflop(options.batch) / step_ms * 1e3}};
  for (const Kind kind : {forward, weight_gradient, data_gradient})
    json[kind_names[kind]] = convolutions.total_ms({kind});
  json["layers"] = convolutions.by_layer(options.batch);
  fmt::print("{}\n", json.dump());
}

}  // namespace
}  // namespace lockstep::cpu

int main(int argc, char** argv) {
  try {
    lockstep::cpu::measure(lockstep::cpu::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "conv_floor: {}\n", error.what());
    return 1;
  }
}
