#include "tests/gpu/steps/wanted.hpp"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.hpp"

// What the steps of forward must leave.
namespace lockstep::test::steps {

using cuda::UnitKind;

namespace {

/// Calls body(index in the folded image, index in the padded one) for each number that both have.
template <class Body>
void each_folded(const cuda::Fold& fold, std::size_t images, const Body& body) {
  std::size_t folded = 0;
  for (std::size_t n = 0; n < images; ++n)
    for (int b = 0; b < fold.folded_height(); ++b)
      for (int x = 0; x < fold.folded_width(); ++x)
        for (int cell = 0; cell < fold.cells(); ++cell)
          for (int ch = 0; ch < fold.cell_channels(); ++ch, ++folded) {
            const int sub = ch / fold.channels;
            const int row = b * fold.stride - fold.padding + sub / fold.stride,
                      column = (x + cell) * fold.stride - fold.padding + sub % fold.stride;
            if (sub >= fold.stride * fold.stride || row < 0 || row >= fold.height || column < 0 ||
                column >= fold.width)
              continue;
            const auto pixel = static_cast<std::size_t>(row * fold.width + column);
            const auto padded = static_cast<std::size_t>(fold.padded);
            body(folded, (n * fold.image_pixels() + pixel) * padded +
                             static_cast<std::size_t>(ch % fold.channels));
          }
}

}  // namespace

Wanted::Wanted(const Compiled& compiled, const Case& c)
    : c_(c),
      program_(dynamic_cast<const cuda::CudaProgram&>(*compiled.program)),
      parameters_(dynamic_cast<const cuda::CudaParameters&>(*compiled.parameters)),
      plan_(program_.plan()),
      network_(program_.network()),
      form_(form_of(plan_.storage)) {
  if (const auto found = parameters_.loss_scale()) loss_scale_ = double{found->scale};
  check(form_ != Form::fp32 && plan_.training, "only training in 16 bits has these steps");
}

const Wanted::Unit& Wanted::named(const std::string& name) {
  const auto found = std::find_if(plan_.units.begin(), plan_.units.end(),
                                  [&](const Unit& p) { return p.unit.name == name; });
  check(found != plan_.units.end(), "no unit is named " + name);
  return *found;
}

std::vector<Output> Wanted::forward(const std::string& step) {
  later_ = false;
  step_ = step;
  const Unit& p = named(step);
  switch (p.unit.kind) {
    case UnitKind::image:
      kind_ = "image";
      return image(p);
    case UnitKind::conv:
      kind_ = "conv";
      return conv(p);
    case UnitKind::norm:
      kind_ = "norm";
      return norm(p);
    case UnitKind::max_pool:
      kind_ = "max pool";
      return max_pool(p);
    case UnitKind::mean_pool:
      kind_ = "mean pool";
      return mean_pool(p);
    case UnitKind::subsample:
      kind_ = "shortcut";
      return subsample(p);
    case UnitKind::head:
      kind_ = "head";
      return head(p);
    case UnitKind::receive:
    case UnitKind::send:
      break;
  }
  throw Error("a step of a stage");
}

Stored Wanted::parameter(backend::Part part, const std::string& name) const {
  return {parameters_.find(part, name), parameters_.layout().find(name).size, Form::fp32};
}

Stored Wanted::weight_copies(const Unit& p) const {
  const std::string name = node(p).name + ".weight";
  return {const_cast<void*>(parameters_.readable(name)), conv_shape(p).weight_count(), form_};
}

Stored Wanted::channel_array(const Unit& norm, float* cuda::NormChannels::*array) const {
  auto* memory = static_cast<float*>(program_.address(norm.extra, later_));
  return {cuda::norm_channels(memory, norm.shape.channels).*array,
          static_cast<std::size_t>(norm.shape.channels), Form::fp32};
}

cuda::ConvShape Wanted::conv_shape(const Unit& p) const {
  return p.conv->fold ? cuda::conv_shape(network_, p.unit.node, plan_.batch) : p.conv->shape;
}

// A convolution that applies a batch norm rounds what it has normalised.
Sums Wanted::conv_input(const Unit& p) const {
  const Unit& input = unit(p.unit.input);
  if (p.conv->fold) {
    const Numbers folded = read(value(input));
    Numbers image(conv_shape(p).input_count());  // 0 where no window reads it
    each_folded(*p.conv->fold, plan_.batch,
                [&](std::size_t from, std::size_t to) { image[to] = folded[from]; });
    return Sums(std::move(image));
  }
  if (!p.conv->fusion.normalised) return Sums(read(value(input)));
  const auto halves = [&](__half* cuda::NormChannels::*array) {
    auto* memory = static_cast<float*>(program_.address(input.extra, later_));
    const int channels = input.shape.channels;
    return read({cuda::norm_channels(memory, channels).*array, static_cast<std::size_t>(channels),
                 Form::fp16});
  };
  const Numbers scale = halves(&cuda::NormChannels::half_scale),
                shift = halves(&cuda::NormChannels::half_shift);
  Sums x(read(value(unit(input.unit.input))));
  for (std::size_t i = 0; i < x.value.size(); ++i) {
    const std::size_t ch = i % scale.size();
    const double size = std::abs(x.value[i] * scale[ch]) + std::abs(shift[ch]);
    const double v = x.value[i] * scale[ch] + shift[ch];
    x.value[i] = std::max(v, 0.);
    x.size[i] = v > -2 * rounding_here() * size ? size : 0;
  }
  x.value = rounded(form_, std::move(x.value));
  return x;
}

std::vector<Output> Wanted::image(const Unit& p) const {
  const std::size_t channels = network_.input.channels,
                    padded = cuda::padded_image_channels(channels);
  Sums image(c_.images.size() / channels * padded);
  for (std::size_t i = 0; i < c_.images.size(); ++i)  // a shift is added to bytes: up to 1
    image.add(i / channels * padded + i % channels, c_.images[i], 1 + std::abs(c_.images[i]));
  if (!plan_.fold) return {output(step_, "value", value(p), image)};
  Sums folded(p.shape.count());
  each_folded(*plan_.fold, plan_.batch, [&](std::size_t to, std::size_t from) {
    folded.add(to, image.value[from], image.size[from]);
  });
  return {output(step_, "value", value(p), folded)};
}

std::vector<Output> Wanted::conv(const Unit& p) const {
  Sums y = steps::forward(conv_shape(p), conv_input(p), Sums(read(weight_copies(p))));
  Numbers more(y.size.size());
  if (p.conv->fusion.normalised)
    for (std::size_t i = 0; i < more.size(); ++i) more[i] = rounding_here() / 4 * y.size[i];
  Outputs outputs{output(step_, "value", value(p), y, more)};
  if (!p.conv->fusion.sums) return outputs;
  const auto channels = static_cast<std::size_t>(p.shape.channels);
  const Numbers allowed = outputs[0].allowed;
  Sums sums(2 * channels);
  Numbers squares(2 * channels);  // of the values' errors, which are independent
  for (std::size_t i = 0; i < y.value.size(); ++i) {
    const double v = y.value[i];
    const std::size_t ch = i % channels;
    sums.add(ch, v, std::abs(v));
    sums.add(channels + ch, v * v, v * v);
    squares[ch] += std::pow(allowed[i], 2);
    squares[channels + ch] += std::pow(2 * v * allowed[i], 2) + std::pow(allowed[i], 4);
  }
  for (double& square : squares) square = 2 * std::sqrt(square);
  outputs.push_back(output(step_, "sums", stored(p.sums, 2 * channels, Form::fp32), sums, squares));
  return outputs;
}

Wanted::Channels Wanted::channels_of_batch(const Unit& p) const {
  const auto channels = static_cast<std::size_t>(p.shape.channels);
  const auto rows = static_cast<double>(p.shape.rows);
  const Unit& input = unit(p.unit.input);
  Channels n{Sums(channels), Sums(channels), Sums(channels), Sums(channels), Sums(channels)};
  if (input.sums != cuda::nowhere) {
    const Numbers sums = read(stored(input.sums, 2 * channels, Form::fp32));
    for (std::size_t ch = 0; ch < channels; ++ch) {
      const double mean = sums[ch] / rows, square = sums[channels + ch] / rows;
      n.mean.add(ch, mean, std::abs(mean));
      n.variance.add(ch, std::max(square - mean * mean, 0.), square);
    }
  } else {
    const Numbers x = read(value(input));
    for (std::size_t i = 0; i < x.size(); ++i)
      n.mean.add(i % channels, x[i] / rows, std::abs(x[i]) / rows);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double off = std::pow(x[i] - n.mean.value[i % channels], 2);
      n.variance.add(i % channels, off / rows, off / rows);
    }
    for (std::size_t ch = 0; ch < channels; ++ch)  // the sums begin at the last row's value
      n.variance.size[ch] += std::pow(x[x.size() - channels + ch] - n.mean.value[ch], 2);
  }
  const Numbers gamma = read(parameter(backend::Part::weights, node(p).name + ".weight")),
                beta = read(parameter(backend::Part::weights, node(p).name + ".bias"));
  for (std::size_t ch = 0; ch < channels; ++ch) {
    const double variance = n.variance.value[ch] + double{node(p).epsilon};
    const double inverse = 1 / std::sqrt(variance);
    const double size = inverse * (1 + n.variance.size[ch] / variance / 2);
    const double scale = gamma[ch] * inverse, mean = n.mean.value[ch];
    n.inverse.add(ch, inverse, size);
    n.scale.add(ch, scale, std::abs(gamma[ch]) * size);
    n.shift.add(
        ch, beta[ch] - mean * scale,
        std::abs(beta[ch]) + std::abs(mean) * n.scale.size[ch] + n.mean.size[ch] * std::abs(scale));
  }
  return n;
}

/// What the batch norm's skip adds: its value, or what its own batch norm makes of what is before.
Sums Wanted::skipped(const Unit& p) const {
  const Unit& skip = unit(*p.unit.skip);
  if (skip.value != cuda::nowhere) return Sums(read(value(skip)));
  const Numbers x = read(value(unit(skip.unit.input))),
                scale = read(channel_array(skip, &cuda::NormChannels::scale)),
                shift = read(channel_array(skip, &cuda::NormChannels::shift));
  Sums added(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = x[i] * scale[i % scale.size()], rest = shift[i % scale.size()];
    added.add(i, product + rest, std::abs(product) + std::abs(rest));
  }
  return added;
}

/// Before the ReLU.
Sums Wanted::normalised(const Unit& p, const Channels& n) const {
  const Numbers x = read(value(unit(p.unit.input)));
  Sums y = p.unit.skip ? skipped(p) : Sums(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t ch = i % n.scale.value.size();
    y.add(i, x[i] * n.scale.value[ch] + n.shift.value[ch],
          std::abs(x[i]) * n.scale.size[ch] + n.shift.size[ch]);
  }
  return y;
}

std::vector<Output> Wanted::norm(const Unit& p) const {
  const Channels n = channels_of_batch(p);
  Outputs outputs;
  const auto number = [&](const char* what, float* cuda::NormChannels::*array, const Sums& want) {
    outputs.push_back(output(step_, what, channel_array(p, array), want));
  };
  number("mean", &cuda::NormChannels::mean, n.mean);
  number("variance", &cuda::NormChannels::variance, n.variance);
  number("inverse deviation", &cuda::NormChannels::inverse_deviation, n.inverse);
  number("scale", &cuda::NormChannels::scale, n.scale);
  number("shift", &cuda::NormChannels::shift, n.shift);
  auto* memory = static_cast<float*>(program_.address(p.extra, later_));
  const cuda::NormChannels at = cuda::norm_channels(memory, p.shape.channels);
  const std::size_t channels = n.scale.value.size();
  outputs.push_back(output(step_, "16-bit scale", {at.half_scale, channels, Form::fp16}, n.scale));
  outputs.push_back(output(step_, "16-bit shift", {at.half_shift, channels, Form::fp16}, n.shift));
  if (p.value == cuda::nowhere) return outputs;
  Sums y = normalised(p, n);
  Output its_value = output(step_, "value", value(p), y);
  Output mask{step_, "mask", stored(p.mask, y.value.size(), Form::bits), y.value, y.value};
  for (std::size_t i = 0; i < y.value.size(); ++i) {
    if (p.unit.relu) its_value.want[i] = std::max(y.value[i], 0.);
    mask.want[i] = y.value[i] > 0 ? 1 : 0;
    mask.allowed[i] = std::abs(y.value[i]) <= its_value.allowed[i] ? 1 : 0;
  }
  outputs.push_back(std::move(its_value));
  if (p.mask != cuda::nowhere) outputs.push_back(std::move(mask));
  return outputs;
}

std::vector<Output> Wanted::head(const Unit& p) const {
  const Numbers x = read(value(unit(p.unit.input)));
  const std::size_t rows = plan_.batch, classes = network_.classes;
  const auto channels = static_cast<std::size_t>(p.shape.channels);
  const std::size_t pixels = p.shape.rows / rows;
  Sums pooled(rows * channels);
  for (std::size_t i = 0; i < x.size(); ++i)
    pooled.add(i / channels / pixels * channels + i % channels, x[i] / static_cast<double>(pixels),
               std::abs(x[i]) / static_cast<double>(pixels));
  const std::string& name = node(p).name;
  const Numbers weights = read(parameter(backend::Part::weights, name + ".weight")),
                bias = read(parameter(backend::Part::weights, name + ".bias"));
  Sums logits = steps::forward(p.conv->shape, pooled, Sums(weights));
  const Numbers more = of_tf32(logits);
  Sums dlogits(rows * classes);
  for (std::size_t row = 0; row < rows; ++row) {
    double sum = 0, doubt = 0;
    for (std::size_t i = row * classes; i < (row + 1) * classes; ++i) {
      logits.add(i, bias[i % classes], std::abs(bias[i % classes]));
      sum += std::exp(logits.value[i]);
      doubt = std::max(doubt, 2 * (logits.size[i] + more[i] * 0x1p18));
    }
    const data::Target& t = c_.targets[row];
    const double scale = loss_scale_ / static_cast<double>(rows),
                 smoothing = double{program_.spec().loss.smoothing};
    for (std::size_t k = 0; k < classes; ++k) {
      const double share = std::exp(logits.value[row * classes + k]) / sum;
      const auto label = static_cast<std::int32_t>(k);
      const double wanted = (1 - smoothing) * ((t.label_a == label ? double{t.mix} : 0) +
                                               (t.label_b == label ? 1 - double{t.mix} : 0)) +
                            smoothing / static_cast<double>(classes);
      dlogits.add(row * classes + k, scale * (share - wanted),
                  scale * (share * (1 + doubt) + wanted));
    }
  }
  const auto place = [&](cuda::Place at, const Sums& its) {
    return stored(at, its.value.size(), Form::fp32);
  };
  return {output(step_, "pooled", place(p.head.pooled, pooled), pooled),
          output(step_, "logits", place(p.head.logits, logits), logits, more),
          output(step_, "dlogits", place(p.head.dlogits, dlogits), dlogits)};
}

}  // namespace lockstep::test::steps
