// Each step of a tape in 16 bits, without the others: what it leaves is what exact arithmetic makes
// of its inputs, within the rounding of the storage. So what is wrong in one step, in one
// precision, cannot pass for the roundings that pile up over a network. The emulated tests run the
// same cases on the host.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/fixture.hpp"
#include "tests/gpu/steps/wanted.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::test;
using namespace lockstep::test::steps;

namespace {

constexpr std::size_t rows = 4;

using Names = std::set<std::string>;

/// What the steps leave, by the kind of step; then what only convolutions that compute a batch
/// norm's sums leave.
const Names outputs_apart{"image: value",
                          "conv: value",
                          "conv: data gradient",
                          "conv: weight gradient",
                          "norm: mean",
                          "norm: variance",
                          "norm: inverse deviation",
                          "norm: scale",
                          "norm: shift",
                          "norm: 16-bit scale",
                          "norm: 16-bit shift",
                          "norm: value",
                          "norm: mask",
                          "norm: dgamma",
                          "norm: dbeta",
                          "norm: mean's share",
                          "norm: variance's share",
                          "norm: skip gradient",
                          "norm: data gradient",
                          "max pool: value",
                          "max pool: index",
                          "max pool: data gradient",
                          "mean pool: value",
                          "mean pool: data gradient",
                          "shortcut: value",
                          "shortcut: data gradient",
                          "head: pooled",
                          "head: logits",
                          "head: dlogits",
                          "head: pooled gradient",
                          "head: data gradient",
                          "head: weight gradient",
                          "head: bias gradient"};
const Names outputs_fused{"conv: sums", "conv: sums of the gradient"};

/// Called with the kind of a step, and with one of its outputs, after the step has run.
using Visit = std::function<void(const std::string& kind, const Output& output)>;

/// Bytes, which the image's step normalises by a mean and a deviation of 1.
std::vector<std::uint8_t> bytes_for(Case& c) {
  std::vector<std::uint8_t> bytes(c.images.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(std::lround((c.images[i] + 1) * 127.5));
    c.images[i] = bytes[i] / 255. - 1;
  }
  return bytes;
}

/// Runs two micro-batches, of floats and of bytes, step by step. The second one's gradients are
/// added to the first one's.
void walk(Case c, Precision precision, bool fused, const Visit& visit) {
  Compiled compiled(c, rows, gpu(), precision, false, fused);
  compiled.parameters->set_loss_scale({1024, 0, 0, 0});
  poison(compiled);
  compiled.program->set_scalars({.gradient_scale = 1.f / rows});
  const auto finish = [&] { compiled.backend->device().compute().synchronize(); };
  const std::vector<float> images(c.images.begin(), c.images.end());
  std::vector<std::uint8_t> bytes;
  Wanted wanted(compiled, c);
  for (const bool second : {false, true}) {
    if (second) {
      bytes = bytes_for(c);
      compiled.program->load(
          {.images = bytes.data(), .targets = c.targets.data(), .rows = rows, .capacity = rows});
    } else {
      compiled.program->load_normalised(images, c.targets);
    }
    finish();
    for (const bool backward : {false, true})
      for (const TapeStep& step :
           backward ? compiled.program->backward(second) : compiled.program->forward()) {
        const std::vector<Output> outputs =
            backward ? wanted.backward(step.name, second) : wanted.forward(step.name);
        step.run();
        finish();
        for (const Output& output : outputs) visit(wanted.kind(), output);
      }
  }
}

/// The step and its output, where the error is larger than what is allowed; else nothing.
std::string fault(const Output& output) {
  const double its = error(output);
  return its <= 1 ? "" : output.step + ": " + output.what + ", " + std::to_string(its);
}

/// Calls body() for each network, in each way to compile it.
void each_program(const std::function<void(const Case&, Precision, bool fused)>& body) {
  std::vector<nn::Network> networks = all_sketches();
  networks.push_back(wide());
  networks.push_back(strided_stem(3, 5, 3));
  networks.push_back(strided_stem(1, 4, 2));
  for (const nn::Network& network : networks) {
    const Case c(network, rows, 5);
    for (const Precision precision : {Precision::bf16, Precision::fp16})
      for (const bool fused : {false, true}) {
        if (fused && precision == Precision::bf16) continue;  // nothing is fused
        INFO(network.nodes.size() << " nodes in " << to_string(precision)
                                  << (fused ? ", fused" : ""));
        body(c, precision, fused);
      }
  }
}

}  // namespace

TEST_CASE("each step in 16 bits gives what exact arithmetic makes of its inputs", "[gpu]") {
  if (!gpu()) return;
  each_program([](const Case& c, Precision precision, bool fused) {
    std::vector<std::string> faults;
    walk(c, precision, fused, [&](const std::string&, const Output& output) {
      if (const std::string found = fault(output); !found.empty()) faults.push_back(found);
    });
    CHECK(faults == std::vector<std::string>());
  });
}

TEST_CASE("a step's output that is wrong by one part in 16 is found, whatever its kind", "[gpu]") {
  if (!gpu()) return;
  Names found;
  each_program([&](const Case& c, Precision precision, bool fused) {
    std::vector<std::string> missed;
    walk(c, precision, fused, [&](const std::string& kind, const Output& output) {
      const Numbers right = read(output.where);
      spoil(output);
      const std::string its = fault(output);
      write(output.where, right);  // the next steps read it
      if (its.starts_with(output.step + ": " + output.what))
        found.insert(kind + ": " + output.what);
      else
        missed.push_back(output.step + ": " + output.what);
    });
    CHECK(missed == std::vector<std::string>());
  });
  Names all = outputs_apart;
  all.insert(outputs_fused.begin(), outputs_fused.end());
  // A card may have no engines that fuse; the emulation, whose sums repeat, has them.
  if (!fused_sums_repeat()) found.insert(outputs_fused.begin(), outputs_fused.end());
  CHECK(found == all);
}
