#include "ports/cuda/runtime/check.hpp"
#include "ports/cuda/units/runner.hpp"

namespace lockstep::cuda {

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
