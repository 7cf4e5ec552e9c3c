#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

namespace {

/// What poolings and option A's shortcut share: a window over their input.
class WindowRunner : public Runner {
 public:
  WindowRunner(Context& context, std::size_t unit) : Runner(context, unit) {
    const nn::Shape& in = c.network.nodes[input().unit.value].shape;
    const nn::Shape& out = node().shape;
    const auto number = [](std::size_t n) { return static_cast<int>(n); };
    window_ = {.batch = c.spec.batch,
               .channels = number(in.channels),
               .height = number(in.height),
               .width = number(in.width),
               .out_height = number(out.height),
               .out_width = number(out.width),
               .kernel = number(node().kernel),
               .stride = number(node().stride),
               .padding = number(node().padding)};
  }

  std::vector<backend::TapeStep> backward(bool) override {
    if (p.input_gradient == nowhere) return {};
    return {{p.unit.name + " data gradient", [this] { data_gradient(); }, {}}};
  }

 protected:
  virtual void data_gradient() = 0;
  Window window_;
};

class MaxPoolRunner final : public WindowRunner {
 public:
  using WindowRunner::WindowRunner;
  void forward() override {
    max_pool(c.at(input().value), window_, c.plan.storage, c.at(p.value),
             c.at<std::uint8_t>(p.extra), c.stream());
  }

 private:
  void data_gradient() override {
    max_pool_gradient(first_gradient(), second_gradient(), c.at<std::uint8_t>(p.extra), window_,
                      c.plan.storage, c.at(p.input_gradient), c.stream());
  }
};

class MeanPoolRunner final : public WindowRunner {
 public:
  using WindowRunner::WindowRunner;
  void forward() override {
    mean_pool(c.at(input().value), window_, c.plan.storage, c.at(p.value), c.stream());
  }

 private:
  void data_gradient() override {
    mean_pool_gradient(first_gradient(), second_gradient(), window_, c.plan.storage,
                       c.at(p.input_gradient), c.stream());
  }
};

class SubsampleRunner final : public WindowRunner {
 public:
  using WindowRunner::WindowRunner;
  void forward() override {
    subsample(c.at(input().value), window_, p.shape.channels, c.plan.storage, c.at(p.value),
              c.stream());
  }

 private:
  void data_gradient() override {
    subsample_gradient(first_gradient(), second_gradient(), window_, p.shape.channels,
                       c.plan.storage, c.at(p.input_gradient), c.stream());
  }
};

}  // namespace

std::unique_ptr<Runner> make_max_pool_runner(Context& context, std::size_t unit) {
  return std::make_unique<MaxPoolRunner>(context, unit);
}

std::unique_ptr<Runner> make_mean_pool_runner(Context& context, std::size_t unit) {
  return std::make_unique<MeanPoolRunner>(context, unit);
}

std::unique_ptr<Runner> make_subsample_runner(Context& context, std::size_t unit) {
  return std::make_unique<SubsampleRunner>(context, unit);
}

}  // namespace lockstep::cuda
