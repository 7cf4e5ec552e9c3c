#include <cmath>
#include <string_view>

#include "lockstep/base/error.hpp"
#include "tests/gpu/steps/wanted.hpp"

// What the steps of backward must leave.
namespace lockstep::test::steps {

using backend::Part;
using cuda::nowhere;
using cuda::UnitKind;

namespace {

/// Relative to what is added up before a ReLU: in fp32, how near 0 its input must be for rounding
/// to decide.
constexpr double doubt_of_fp32 = 0x1p-20;

}  // namespace

Numbers of_tf32(const Sums& sums) {
  Numbers more = sums.size;
  for (double& number : more) number *= 0x1p-10;
  return more;
}

std::vector<Output> Wanted::backward(const std::string& step, bool accumulate) {
  later_ = true;
  accumulate_ = accumulate;
  step_ = step;
  const auto part_of = [&](std::string_view suffix) {
    return step.ends_with(suffix) ? step.substr(0, step.size() - suffix.size()) : std::string();
  };
  std::string name = part_of(" data gradient");
  if (!name.empty()) {
    const Unit& p = named(name);
    const bool is_conv = p.unit.kind == UnitKind::conv, is_head = p.unit.kind == UnitKind::head;
    const bool pools = p.unit.kind == UnitKind::max_pool,
               means = p.unit.kind == UnitKind::mean_pool;
    kind_ = is_conv   ? "conv"
            : is_head ? "head"
            : pools   ? "max pool"
            : means   ? "mean pool"
                      : "shortcut";
    return is_conv   ? data_gradient(p)
           : is_head ? head_data_gradient(p)
           : means   ? mean_gradient(p)
                     : window_gradient(p);
  }
  name = part_of(" weight gradient");
  if (!name.empty()) {
    const Unit& p = named(name);
    kind_ = p.unit.kind == UnitKind::head ? "head" : "conv";
    return p.unit.kind == UnitKind::head ? head_weight_gradient(p) : weight_gradient(p);
  }
  kind_ = "norm";
  return norm_gradient(named(part_of(" gradient")));
}

/// Of a slice of the gradients, to which the step may add.
Output Wanted::sum_in_arena(Output added, double kept) const {
  if (!accumulate_) return added;
  const Numbers before = read(added.where);
  for (std::size_t i = 0; i < before.size(); ++i) {
    added.want[i] += kept * before[i];
    added.allowed[i] += 2 * rounding(Form::fp32) * (std::abs(before[i]) + std::abs(added.want[i]));
  }
  return added;
}

Sums Wanted::gradient(const Unit& p) const {
  Sums sum(p.shape.count());
  for (const cuda::Place place : p.gradients) {
    const Numbers g = read(stored(place, p.shape.count(), form_));
    for (std::size_t i = 0; i < g.size(); ++i) sum.add(i, g[i], std::abs(g[i]));
  }
  return sum;
}

Wanted::Through Wanted::through_relu(Sums g, const Sums& before, double doubt) const {
  Through through{std::move(g), Numbers(before.value.size())};
  for (std::size_t i = 0; i < before.value.size(); ++i) {
    double& v = through.g.value[i];
    if (std::abs(before.value[i]) <= doubt * before.size[i]) through.doubted[i] = std::abs(v);
    if (before.value[i] > 0) continue;
    v = 0;
    if (through.doubted[i] == 0) through.g.size[i] = 0;
  }
  return through;
}

std::vector<Output> Wanted::data_gradient(const Unit& p) const {
  Sums dx = steps::data_gradient(conv_shape(p), Sums(read(weight_copies(p))), gradient(p));
  if (p.conv->fusion.norm_gradient) return fused_data_gradient(p, std::move(dx));
  const Stored where = stored(p.input_gradient, dx.value.size(), form_);
  return {output(step_, "data gradient", where, std::move(dx))};
}

/// It ends before the ReLU of the batch norm that the convolution applies.
std::vector<Output> Wanted::fused_data_gradient(const Unit& p, Sums dx) const {
  const Unit& norm = unit(p.unit.input);
  const auto of_norm = [&](const char* name) {
    return read(parameter(Part::weights, node(norm).name + name));
  };
  const Numbers x = read(value(unit(norm.unit.input))), gamma = of_norm(".weight"),
                beta = of_norm(".bias"),
                mean = read(channel_array(norm, &cuda::NormChannels::mean)),
                inverse = read(channel_array(norm, &cuda::NormChannels::inverse_deviation));
  const std::size_t channels = mean.size();
  Sums before(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t ch = i % channels;
    const double scale = inverse[ch] * gamma[ch];
    before.add(i, (x[i] - mean[ch]) * scale + beta[ch],
               (std::abs(x[i]) + std::abs(mean[ch])) * std::abs(scale) + std::abs(beta[ch]));
  }
  // It may normalise in 16 bits.
  const Through through = through_relu(std::move(dx), before, rounding_here());
  Outputs outputs{output(step_, "data gradient", stored(p.input_gradient, x.size(), form_),
                         through.g, through.doubted)};
  Sums sums(2 * channels);
  Numbers squares(2 * channels), doubted(2 * channels);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t ch = i % channels;
    const double g = through.g.value[i], doubt = through.doubted[i],
                 off = (x[i] - mean[ch]) * inverse[ch], error = outputs[0].allowed[i] - doubt;
    sums.add(ch, g * off, std::abs(g) * (std::abs(x[i]) + std::abs(mean[ch])) * inverse[ch]);
    sums.add(channels + ch, g, std::abs(g));
    squares[ch] += std::pow(error * off, 2);
    squares[channels + ch] += std::pow(error, 2);
    doubted[ch] += doubt * std::abs(off);
    doubted[channels + ch] += doubt;
  }
  for (std::size_t i = 0; i < doubted.size(); ++i) doubted[i] += 2 * std::sqrt(squares[i]);
  outputs.push_back(output(step_, "sums of the gradient",
                           stored(p.gradient_sums, 2 * channels, Form::fp32), sums, doubted));
  return outputs;
}

std::vector<Output> Wanted::weight_gradient(const Unit& p) const {
  Sums dw = steps::weight_gradient(conv_shape(p), conv_input(p), gradient(p));
  Numbers more(dw.size.size());
  if (p.conv->fusion.normalised)
    for (std::size_t i = 0; i < more.size(); ++i) more[i] = rounding_here() / 4 * dw.size[i];
  Stored where = parameter(Part::gradients, node(p).name + ".weight");
  where.count = dw.value.size();
  return {sum_in_arena(output(step_, "weight gradient", where, std::move(dw), more, form_))};
}

/// The gradient of a batch norm's own output: after its ReLU's.
Wanted::Through Wanted::after_relu(const Unit& p) const {
  Sums g = gradient(p);
  const std::size_t count = g.value.size();
  if (!p.unit.relu || cuda::sums_of_gradient(plan_, p) != nowhere)
    return {std::move(g), Numbers(count)};
  Sums before(count);
  if (p.unit.skip) {
    const Numbers bits = read(stored(p.mask, count, Form::bits));
    for (std::size_t i = 0; i < count; ++i) before.add(i, bits[i], 1);
    return through_relu(std::move(g), before, -1);
  }
  const Numbers x = read(value(unit(p.unit.input))),
                scale = read(channel_array(p, &cuda::NormChannels::scale)),
                shift = read(channel_array(p, &cuda::NormChannels::shift));
  for (std::size_t i = 0; i < count; ++i) {
    const double product = x[i] * scale[i % scale.size()], rest = shift[i % scale.size()];
    before.add(i, product + rest, std::abs(product) + std::abs(rest));
  }
  return through_relu(std::move(g), before, doubt_of_fp32);
}

namespace {

/// By channel: the sums over a batch norm's gradient g, and over g times what was normalised.
struct GradientSums {
  Sums g, gx;
  Numbers doubted_g, doubted_gx;
};

GradientSums sums_over(const Sums& g, const Numbers& doubted, const Numbers& x, const Numbers& mean,
                       const Numbers& inverse) {
  const std::size_t channels = mean.size();
  GradientSums sums{Sums(channels), Sums(channels), Numbers(channels), Numbers(channels)};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t ch = i % channels;
    const double off = (x[i] - mean[ch]) * inverse[ch];
    sums.g.add(ch, g.value[i], g.size[i]);
    sums.gx.add(ch, g.value[i] * off, g.size[i] * std::abs(off));
    sums.doubted_g[ch] += doubted[i];
    sums.doubted_gx[ch] += doubted[i] * std::abs(off);
  }
  return sums;
}

/// The same as the reader's data gradient has made them: dgamma, then dbeta.
GradientSums of_reader(const Numbers& made) {
  const std::size_t channels = made.size() / 2;
  const auto middle = made.begin() + static_cast<std::ptrdiff_t>(channels);
  return {Sums(Numbers(middle, made.end())), Sums(Numbers(made.begin(), middle)), Numbers(channels),
          Numbers(channels)};
}

}  // namespace

std::vector<Output> Wanted::norm_gradient(const Unit& p) const {
  const auto channel = [&](float* cuda::NormChannels::*array) {
    return read(channel_array(p, array));
  };
  const Numbers x = read(value(unit(p.unit.input))), mean = channel(&cuda::NormChannels::mean),
                inverse = channel(&cuda::NormChannels::inverse_deviation),
                scale = channel(&cuda::NormChannels::scale),
                variance = channel(&cuda::NormChannels::variance);
  const std::size_t channels = mean.size();
  Through through = after_relu(p);
  const cuda::Place made = cuda::sums_of_gradient(plan_, p);
  const GradientSums sums = made == nowhere
                                ? sums_over(through.g, through.doubted, x, mean, inverse)
                                : of_reader(read(stored(made, 2 * channels, Form::fp32)));
  const auto slice = [&](const char* name) {
    return parameter(Part::gradients, node(p).name + name);
  };
  Outputs outputs{sum_in_arena(output(step_, "dgamma", slice(".weight"), sums.gx, sums.doubted_gx)),
                  sum_in_arena(output(step_, "dbeta", slice(".bias"), sums.g, sums.doubted_g))};
  const auto rows = static_cast<double>(p.shape.rows);
  const double momentum = double{node(p).momentum};
  Sums means(channels), variances(channels);
  for (std::size_t ch = 0; ch < channels; ++ch) {
    means.add(ch, momentum * mean[ch], std::abs(momentum * mean[ch]));
    const double unbiased = momentum * variance[ch] * rows / (rows > 2 ? rows - 1 : 1);
    variances.add(ch, unbiased, unbiased);
  }
  outputs.push_back(
      sum_in_arena(output(step_, "mean's share", slice(".running_mean"), means), 1 - momentum));
  outputs.push_back(sum_in_arena(
      output(step_, "variance's share", slice(".running_var"), variances), 1 - momentum));
  Numbers more(x.size());
  if (p.skip_gradient != nowhere) {  // the input's gradient follows from the rounded one
    Output skip = output(step_, "skip gradient", stored(p.skip_gradient, x.size(), form_),
                         through.g, through.doubted);
    for (std::size_t i = 0; i < x.size() && p.gradients.size() > 1; ++i)
      more[i] = rounding_here() * std::abs(through.g.value[i] * scale[i % channels]);
    outputs.push_back(std::move(skip));
  }
  Sums dx(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t ch = i % channels;
    const double off = (x[i] - mean[ch]) * inverse[ch], s = std::abs(scale[ch]);
    dx.add(
        i,
        scale[ch] * (through.g.value[i] - sums.g.value[ch] / rows - off * sums.gx.value[ch] / rows),
        s * (through.g.size[i] + (sums.g.size[ch] + std::abs(off) * sums.gx.size[ch]) / rows));
    more[i] += s * (through.doubted[i] +
                    (sums.doubted_g[ch] + std::abs(off) * sums.doubted_gx[ch]) / rows);
  }
  const Stored where = stored(p.input_gradient, x.size(), form_);
  outputs.push_back(output(step_, "data gradient", where, std::move(dx), more));
  return outputs;
}

std::vector<Output> Wanted::head_data_gradient(const Unit& p) const {
  const auto pixels = p.shape.rows / plan_.batch;
  const auto channels = static_cast<std::size_t>(p.shape.channels);
  const Numbers weights = read(parameter(Part::weights, node(p).name + ".weight")),
                dlogits = read(stored(p.head.dlogits, plan_.batch * network_.classes, Form::fp32));
  const Sums dpooled = steps::data_gradient(p.conv->shape, Sums(weights), Sums(dlogits));
  const Numbers more = of_tf32(dpooled);
  Sums dx(p.shape.count());
  Numbers more_of_pixels(p.shape.count());
  for (std::size_t i = 0; i < dx.value.size(); ++i) {
    const std::size_t from = i / channels / pixels * channels + i % channels;
    const auto share = 1 / static_cast<double>(pixels);
    dx.add(i, dpooled.value[from] * share, dpooled.size[from] * share);
    more_of_pixels[i] = more[from] * share;
  }
  return {output(step_, "pooled gradient", stored(p.head.dpooled, dpooled.value.size(), Form::fp32),
                 dpooled, more),
          output(step_, "data gradient", stored(p.input_gradient, dx.value.size(), form_), dx,
                 more_of_pixels)};
}

std::vector<Output> Wanted::head_weight_gradient(const Unit& p) const {
  const Numbers pooled = read(stored(p.head.pooled, p.conv->shape.input_count(), Form::fp32)),
                dlogits = read(stored(p.head.dlogits, plan_.batch * network_.classes, Form::fp32));
  const Sums dw = steps::weight_gradient(p.conv->shape, Sums(pooled), Sums(dlogits));
  Sums dbias(network_.classes);
  for (std::size_t i = 0; i < dlogits.size(); ++i)
    dbias.add(i % network_.classes, dlogits[i], std::abs(dlogits[i]));
  const auto slice = [&](const char* its) {
    return parameter(Part::gradients, node(p).name + its);
  };
  return {sum_in_arena(output(step_, "weight gradient", slice(".weight"), dw, of_tf32(dw))),
          sum_in_arena(output(step_, "bias gradient", slice(".bias"), dbias))};
}

}  // namespace lockstep::test::steps
