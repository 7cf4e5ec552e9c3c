#include "ports/cuda/runtime/stream.hpp"
#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

namespace {

/// Mean over the pixels, linear layer and loss, all in fp32. The linear layer is a 1x1 convolution
/// in cuDNN, so that no other library is needed.
class HeadRunner final : public Runner {
 public:
  HeadRunner(Context& context, std::size_t unit)
      : Runner(context, unit),
        pixels_(static_cast<int>(p.shape.rows / c.spec.batch)),
        classes_(static_cast<int>(c.network.classes)),
        weights_(c.parameters.find(backend::Part::weights, node().name + ".weight")),
        bias_(c.parameters.find(backend::Part::weights, node().name + ".bias")),
        dweights_(c.parameters.find(backend::Part::gradients, node().name + ".weight")),
        dbias_(c.parameters.find(backend::Part::gradients, node().name + ".bias")) {
    const std::vector<float>& weights = c.spec.loss.weights;
    if (weights.empty()) return;
    loss_weights_ = DeviceBuffer(weights.size() * sizeof(float), "the loss's weights");
    check_cuda(cudaMemcpyAsync(loss_weights_.data(), weights.data(), loss_weights_.size(),
                               cudaMemcpyHostToDevice, c.stream()),
               "cudaMemcpyAsync");
  }

  void forward() override {
    const auto at = [&](Place place) { return c.at<float>(place); };
    average(c.at(input().value), c.spec.batch, pixels_, p.shape.channels, c.plan.storage,
            at(p.head.pooled), c.stream());
    p.conv->forward->run({at(p.head.pooled), weights_, at(p.head.logits)}, c.workspace);
    LossInput in;
    in.logits = at(p.head.logits);
    in.bias = bias_;
    in.targets = c.input.targets();
    in.wanted = c.input.wanted();
    in.rows = c.spec.batch;
    in.classes = classes_;
    in.task = c.spec.loss.task;
    in.smoothing = c.spec.loss.smoothing;
    in.delta = c.spec.loss.delta;
    in.weights = loss_weights_.as<float>();
    loss(in, c.parameters.scalars(), c.at<DeviceMetrics>(p.head.row_metrics), c.metrics,
         at(p.head.dlogits), c.stream());
  }

  std::vector<backend::TapeStep> backward(bool accumulate) override {
    const auto slice = [&](const char* name) {
      return c.parameters.slice_index(node().name + name);
    };
    std::vector<backend::TapeStep> steps;
    if (p.conv->data_gradient)
      steps.push_back({p.unit.name + " data gradient", [this] { data_gradient(); }, {}});
    steps.push_back({p.unit.name + " weight gradient",
                     [this, accumulate] { weight_gradient(accumulate); },
                     {slice(".weight"), slice(".bias")}});
    return steps;
  }

 private:
  void data_gradient() {
    float* dpooled = c.at<float>(p.head.dpooled);
    p.conv->data_gradient->run({dpooled, weights_, c.at(p.head.dlogits)}, c.workspace);
    average_gradient(dpooled, c.spec.batch, pixels_, p.shape.channels, c.plan.storage,
                     c.at(p.input_gradient), c.stream());
  }
  void weight_gradient(bool accumulate) {
    run_weight_gradient(c, *p.conv, {c.at(p.head.pooled), nullptr, c.at(p.head.dlogits)},
                        accumulate, dweights_);
    bias_gradient(c.at<float>(p.head.dlogits), c.spec.batch, classes_, accumulate, dbias_,
                  c.stream());
  }

  int pixels_, classes_;
  const float *weights_, *bias_;
  float *dweights_, *dbias_;
  DeviceBuffer loss_weights_;
};

}  // namespace

std::unique_ptr<Runner> make_head_runner(Context& context, std::size_t unit) {
  return std::make_unique<HeadRunner>(context, unit);
}

namespace {

/// The start of a stage. The caller writes the values; the readers' gradients go where it takes
/// them.
class ReceiveRunner final : public Runner {
 public:
  using Runner::Runner;
  void forward() override {}
  std::vector<backend::TapeStep> backward(bool) override {
    if (c.plan.received.readers == 0) return {};
    return {{p.unit.name + " gradients", [this] { copy_gradients(); }, {}}};
  }

 private:
  void copy_gradients() {
    const BoundaryPlaces& received = c.plan.received;
    auto* to = c.at<std::byte>(received.gradients);
    for (const Place gradient : p.gradients) {
      check_cuda(
          cudaMemcpyAsync(to, c.at(gradient), received.bytes, cudaMemcpyDeviceToDevice, c.stream()),
          "cudaMemcpyAsync of a boundary's gradients");
      to += received.bytes;
    }
  }
};

/// The end of a stage: the unit before it writes and reads the boundary itself.
class SendRunner final : public Runner {
 public:
  using Runner::Runner;
  void forward() override {}
  std::vector<backend::TapeStep> backward(bool) override { return {}; }
};

}  // namespace

std::unique_ptr<Runner> make_receive_runner(Context& context, std::size_t unit) {
  return std::make_unique<ReceiveRunner>(context, unit);
}

std::unique_ptr<Runner> make_send_runner(Context& context, std::size_t unit) {
  return std::make_unique<SendRunner>(context, unit);
}

}  // namespace lockstep::cuda
