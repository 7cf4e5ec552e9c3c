#include "tests/support/harness/records.hpp"

#include <hdf5.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <utility>

#include "lockstep/base/owned.hpp"

namespace lockstep::test {
using namespace lockstep::backend;

namespace {

using File = Owned<hid_t, H5Fclose, -1>;
using DataSetHandle = Owned<hid_t, H5Dclose, -1>;
using Space = Owned<hid_t, H5Sclose, -1>;

std::vector<float> to_float(const Values& v) { return {v.begin(), v.end()}; }

double norm(const Values& v) {
  return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0));
}

std::vector<float> to_nhwc(const Values& x, std::size_t rows, const nn::Shape& shape) {
  std::vector<float> out(x.size());
  const std::size_t pixels = shape.height * shape.width;
  for (std::size_t n = 0; n < rows; ++n)
    for (std::size_t c = 0; c < shape.channels; ++c)
      for (std::size_t p = 0; p < pixels; ++p)
        out[(n * pixels + p) * shape.channels + c] =
            static_cast<float>(x[(n * shape.channels + c) * pixels + p]);
  return out;
}

std::vector<float> resnet50_values(const nn::Tensor& tensor, std::size_t index) {
  const std::size_t count = tensor.count();
  if (tensor.role == nn::Role::conv_weight)
    return generated(
        index, count,
        static_cast<float>(std::sqrt(6.0 / static_cast<double>(count / tensor.shape[0]))));
  if (tensor.role == nn::Role::linear_weight)
    return generated(index, count,
                     static_cast<float>(std::sqrt(1.0 / static_cast<double>(tensor.shape[1]))));
  std::vector<float> values = generated(index, count, 0.1f);
  if (tensor.role == nn::Role::bn_scale)
    for (float& v : values) v += tensor.name.ends_with("bn3.weight") ? 0.25f : 1.f;
  return values;
}

}  // namespace

struct Records::Impl {
  File file;
};

Records::Records(const std::string& path)
    : impl_(std::make_unique<Impl>(File(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT)))) {
  REQUIRE(impl_->file);
}

Records::~Records() = default;

Values Records::read(const std::string& name) const {
  const DataSetHandle set(H5Dopen2(impl_->file.get(), name.c_str(), H5P_DEFAULT));
  INFO(name);
  REQUIRE(set);
  const Space space(H5Dget_space(set.get()));
  Values values(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space.get())));
  REQUIRE(H5Dread(set.get(), H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
  return values;
}

bool Records::has(const std::string& name) const {
  return H5Lexists(impl_->file.get(), name.c_str(), H5P_DEFAULT) > 0;
}

std::optional<std::string> reference(const std::string& name) {
  for (const char* folder : {"../shared/reference/", "build/reference/"})
    if (std::filesystem::exists(folder + name)) return folder + name;
  std::cout << "SKIPPED: ../shared/reference/" << name << " is not there\n";
  return std::nullopt;
}

double distance(const Values& a, const Values& b) {
  REQUIRE(a.size() == b.size());
  Values difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return norm(difference) / std::max(norm(b), 1e-300);
}

void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

std::string record_name(const std::string& name) {
  std::string result = name;
  if (name.starts_with("conv1.")) result = "c/" + name.substr(6);
  if (name.starts_with("bn1.")) result = "b/" + name.substr(4);
  if (name.starts_with("fc.")) result = "fc/" + name.substr(3);
  if (name.starts_with("layer")) {
    const int stage = name[5] - '1', block = name[7] - '0';
    std::string rest = name.substr(9);  // conv1.weight, bn2.running_mean
    const bool conv = rest.starts_with("conv");
    rest = (conv ? "c" + rest.substr(4, 1) + "/" + rest.substr(6)
                 : "b" + rest.substr(2, 1) + "/" + rest.substr(4));
    result = "body/" + std::to_string(stage * 3 + block) + "/" + rest;
  }
  return result;
}

Bench::Bench(const nn::ResNetSpec& model, std::size_t rows, std::unique_ptr<Backend> on,
             Precision precision, const LossSpec& loss)
    : network(nn::resnet(model)),
      backend(std::move(on)),
      parameters(backend->make_parameters(network, precision)),
      targets(rows) {
  ProgramSpec spec;
  spec.batch = rows;
  spec.precision = precision;
  spec.loss = loss;
  spec.element = data::Element::f32;  // the images are normalised already
  spec.mean = std::vector<float>(model.channels, 0.f);
  spec.stddev = std::vector<float>(model.channels, 1.f);
  program = backend->compile(network, spec, *parameters);
  spec.training = false;
  evaluation = backend->compile(network, spec, *parameters);
}

void Bench::import(Part part, const std::function<Values(const nn::Tensor&)>& read) {
  for (std::size_t s = 0; s < layout().slices.size(); ++s) {
    if (part == Part::momentum && s >= layout().learned_slices) continue;
    parameters->import_slice(part, s, to_float(read(layout().slices[s].tensor)));
  }
}

Values Bench::export_slice(Part part, std::size_t s) const {
  std::vector<float> plain(layout().slices[s].tensor.count());
  parameters->export_slice(part, s, plain);
  return {plain.begin(), plain.end()};
}

void Bench::load(Program& target, const Values& x, const Values& y) {
  images = to_nhwc(x, targets.size(), network.input);
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = {static_cast<int>(y[i]), static_cast<int>(y[i]), 1};
  target.load_normalised(images, targets);
}

double Bench::gradients(const Values& x, const Values& y, float lr) {
  load(*program, x, y);
  return run(lr);
}

double Bench::gradients(const Values& x, float lr) {
  images = to_nhwc(x, targets.size(), network.input);
  return gradients({.images = reinterpret_cast<const std::uint8_t*>(images.data()),
                    .targets = targets.data(),
                    .wanted = wanted.empty() ? nullptr : wanted.data(),
                    .rows = targets.size(),
                    .capacity = targets.size()},
                   lr);
}

double Bench::gradients(const data::Batch& loaded, float lr) {
  program->load(loaded);
  return run(lr);
}

double Bench::run(float lr) {
  scalars = {lr, 1 / static_cast<float>(targets.size()), 1};
  program->set_scalars(scalars);
  for (const TapeStep& step : program->forward()) step.run();
  for (const TapeStep& step : program->backward(false)) step.run();
  const Metrics metrics = program->take_metrics();
  return metrics.loss / static_cast<double>(metrics.rows);
}

double Bench::step(const Values& x, const Values& y, float lr, float decay) {
  const double loss = gradients(x, y, lr);
  update(decay);
  return loss;
}

double Bench::step(const Values& x, float lr) {
  const double loss = gradients(x, lr);
  update(1e-4f);
  return loss;
}

void Bench::update(float decay) {
  const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f, .nesterov = false},
                               .weight_decay = std::vector<float>(layout().slices.size(), decay)};
  backend->judge_gradients(*parameters);
  backend->update(*parameters, rule, scalars, 0, layout().learned_slices);
  backend->update_statistics(*parameters, 1);
}

double Bench::step(const data::Batch& loaded, float lr) {
  const double loss = gradients(loaded, lr);
  update(1e-4f);
  return loss;
}

Values Bench::logits(const Program& from) const {
  std::vector<float> values(targets.size() * network.classes);
  from.copy_logits(values);
  return {values.begin(), values.end()};
}

std::size_t Bench::slice(const std::string& name) const {
  return static_cast<std::size_t>(&layout().find(name) - layout().slices.data());
}

std::function<Values(const nn::Tensor&)> reading(const Records& records, const std::string& group) {
  return [&records, group](const nn::Tensor& tensor) {
    return records.read(group + "/" + record_name(tensor.name));
  };
}

Values batch(const Values& all, std::size_t k, std::size_t count) {
  return {all.begin() + static_cast<std::ptrdiff_t>(k * count),
          all.begin() + static_cast<std::ptrdiff_t>((k + 1) * count)};
}

/// The record's generator: splitmix64 of (tensor << 40) + element, upper 24 bits, in [-1, 1), times
/// scale.
std::vector<float> generated(std::size_t tensor, std::size_t count, float scale) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t z = (static_cast<std::uint64_t>(tensor) << 40) + i + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    values[i] = scale * (static_cast<float>(z >> 40) * 0x1p-23f - 1.f);
  }
  return values;
}

void import_resnet50(Bench& bench) {
  std::size_t index = 0;
  for (const nn::Tensor& tensor : nn::tensors(bench.network)) {
    std::vector<float> values;
    if (nn::learned(tensor.role))
      values = resnet50_values(tensor, index++);
    else
      values.assign(tensor.count(), tensor.role == nn::Role::running_var ? 1.f : 0.f);
    bench.parameters->import_slice(Part::weights, bench.slice(tensor.name), values);
  }
}

namespace {

/// A slice's gradient and the record's; for large tensors every 16th element is recorded.
std::pair<Values, Values> resnet50_gradient(const Bench& bench, const Records& records,
                                            std::size_t slice) {
  const std::string& name = bench.layout().slices[slice].tensor.name;
  Values mine = bench.export_slice(Part::gradients, slice);
  const bool complete = records.has("grad64/" + name);
  if (!complete) {
    for (std::size_t i = 0; 16 * i < mine.size(); ++i) mine[i] = mine[16 * i];
    mine.resize((mine.size() + 15) / 16);
  }
  return {std::move(mine), records.read((complete ? "grad64/" : "grad_sub64/") + name)};
}

double slice_distance(const Bench& bench, const Records& records, std::size_t slice) {
  const auto [mine, theirs] = resnet50_gradient(bench, records, slice);
  return distance(mine, theirs);
}

/// The first shift, counted from the loss, whose gradient differs from the record's.
std::optional<std::size_t> first_flipped(const Bench& bench, const Records& records) {
  for (std::size_t s = 0; s < bench.layout().learned_slices; ++s)
    if (bench.layout().slices[s].tensor.role == nn::Role::bn_shift &&
        slice_distance(bench, records, s) > 1e-4)
      return s;
  return std::nullopt;
}

}  // namespace

GradientDistance resnet50_gradient_distance(const Bench& bench, const Records& records) {
  GradientDistance result;
  Values got, want;
  for (std::size_t s = 0; s < bench.layout().learned_slices; ++s) {
    const auto [mine, theirs] = resnet50_gradient(bench, records, s);
    const double d = distance(mine, theirs);
    if (!std::isnan(result.worst_tensor) && !(d <= result.worst_tensor)) result.worst_tensor = d;
    append(got, mine);
    append(want, theirs);
  }
  result.whole = distance(got, want);
  return result;
}

std::size_t unflip_resnet50(Bench& bench, const Records& records, const Values& x, const Values& y,
                            std::size_t most, float nudge) {
  for (std::size_t done = 0; done < most; ++done) {
    const auto s = first_flipped(bench, records);
    if (!s) return done;
    const auto [mine, theirs] = resnet50_gradient(bench, records, *s);
    std::size_t channel = 0;
    for (std::size_t c = 0; c < mine.size(); ++c)
      if (std::abs(mine[c] - theirs[c]) > std::abs(mine[channel] - theirs[channel])) channel = c;
    std::vector<float> shift = to_float(bench.export_slice(Part::weights, *s));
    const float before = shift[channel];
    const auto distance_at = [&](float value) {
      shift[channel] = value;
      bench.parameters->import_slice(Part::weights, *s, shift);
      bench.gradients(x, y, 0);
      return slice_distance(bench, records, *s);
    };
    const double up = distance_at(before + nudge), down = distance_at(before - nudge);
    if (up < down) distance_at(before + nudge);
  }
  return most;
}

}  // namespace lockstep::test
