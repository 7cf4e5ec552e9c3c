// Norms, clipping and the average: the kernels over an arena cut into chunks, and the backend.
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/emulated/fixture.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::backend;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

/// Four slices: of one quad, of several chunks with an odd end, of 100 floats, and of 8.
const std::vector<Chunk> chunks = {
    {0, 4, 0}, {16, chunk_floats, 1}, {16 + chunk_floats, 1028, 1}, {5152, 100, 2}, {5264, 8, 3}};
const std::vector<std::size_t> first_chunks = {0, 1, 3, 4, 5};
constexpr std::size_t arena = 5280;

double sum_of_squares(const std::vector<double>& values, std::size_t slice) {
  double sum = 0;
  for (const Chunk& chunk : chunks)
    if (chunk.slice == slice)
      for (std::size_t i = chunk.offset; i < chunk.offset + chunk.count; ++i)
        sum += values[i] * values[i];
  return sum;
}

/// Of the weights of all slices but the first one; between slices nothing is written.
void check_copies(Storage storage, const std::vector<double>& weights,
                  const std::vector<double>& copies) {
  std::vector<double> want = rounded(storage, weights);
  std::fill_n(want.begin(), 16, NAN);
  for (std::size_t i = 0; i < arena; ++i)
    if (std::isnan(copies[i])) want[i] = NAN;
  check_near(copies, want, 0, "copies");
}

Outputs run_clip(std::vector<double> values, float limit, bool scaled) {
  return in_every_order([&](cudaStream_t stream) {
    Values arena_values(Storage::fp32, values);
    std::vector<double> of_chunk(chunks.size(), NAN), of_slice(4, NAN);
    DeviceScalars scalars;
    scalars.inverse_scale = 1.f / 256;
    slice_squares({chunks.data(), first_chunks.data(), 0, 3, 0, 4, arena_values.floats(),
                   of_chunk.data(), of_slice.data()},
                  stream);
    clip(of_slice.data(), 3, limit, scaled, &scalars, stream);
    return Outputs{of_slice, {scalars.clipped_norm, double{scalars.inverse_scale}}};
  });
}

}  // namespace

TEST_CASE("sums of squares by slice, and the factor that clips all gradients", "[kernel]") {
  const std::vector<double> values = rounded(Storage::fp32, some_values(arena, 1));
  double sum = 0;
  for (std::size_t s = 0; s < 3; ++s) sum += sum_of_squares(values, s);
  for (const bool scaled : {false, true})
    for (const float limit : {0.01f, 1e6f}) {
      const Outputs got = run_clip(values, limit, scaled);
      for (std::size_t s = 0; s < 3; ++s)
        CHECK(got[0][s] == Approx(sum_of_squares(values, s)).epsilon(1e-14));
      CHECK(std::isnan(got[0][3]));  // not asked for
      const double unscale = scaled ? 1. / 256 : 1, norm = std::sqrt(sum) * unscale;
      CHECK(got[1][0] == Approx(norm).epsilon(1e-14));
      CHECK(got[1][1] == Approx(unscale * std::min(1., limit / (norm + 1e-6))).epsilon(1e-6));
    }
}

TEST_CASE(
    "averages move towards the weights unless the step is skipped, and change places with "
    "them",
    "[kernel]") {
  const std::vector<double> w = rounded(Storage::fp32, some_values(arena, 1)),
                            average = rounded(Storage::fp32, some_values(arena, 2));
  for (const Storage storage : all_storages)
    for (const std::uint32_t apply : {1u, 0u}) {
      INFO(to_string(storage) << ", " << apply);
      DeviceScalars scalars;
      scalars.apply = apply;
      scalars.step.average_share = 0.25f;
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values weights(Storage::fp32, w), averages(Storage::fp32, average);
        Values copies(storage, arena);
        const AverageArgs args{arena,
                               weights.floats(),
                               averages.floats(),
                               storage == Storage::fp32 ? nullptr : copies.data(),
                               storage,
                               &scalars};
        update_averages(args, stream);
        Outputs out{averages.read(), weights.read()};
        swap_averages(args, stream);
        out.insert(out.end(), {averages.read(), weights.read(), copies.read()});
        return out;
      });
      std::vector<double> want = average;
      for (std::size_t i = 0; i < arena && apply; ++i) want[i] += 0.25 * (w[i] - average[i]);
      check_near(got[0], want, 1e-7, "average");
      check_near(got[1], w, 0, "weights");
      check_near(got[2], w, 0, "exchanged average");
      check_near(got[3], got[0], 0, "exchanged weights");
      if (storage != Storage::fp32) check_near(got[4], rounded(storage, got[0]), 0, "copies");
    }
}

TEST_CASE("a LARS step of some slices: trust ratios, momentum, Nesterov, loss scale, copies",
          "[kernel]") {
  const std::vector<double> w = rounded(Storage::fp32, some_values(arena, 1)),
                            v = rounded(Storage::fp32, some_values(arena, 2)),
                            g = rounded(Storage::fp32, some_values(arena, 3));
  const std::vector<float> decay = {0, 1e-2f, 1e-3f, 0}, adaptive = {0, 1, 1, 0};
  for (const Storage storage : all_storages)
    for (const bool nesterov : {false, true}) {
      INFO(to_string(storage) << (nesterov ? ", Nesterov" : ""));
      DeviceScalars scalars;
      scalars.step.lr = 10;
      scalars.inverse_scale = 1.f / 256;
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values weights(Storage::fp32, w), velocities(Storage::fp32, v), gradients(Storage::fp32, g);
        Values copies(storage, arena);
        std::vector<double> of_chunk(chunks.size(), NAN), sums(8, NAN);
        NormArgs norms{chunks.data(),    first_chunks.data(), 1,          3, 1, 4,
                       weights.floats(), of_chunk.data(),     sums.data()};
        slice_squares(norms, stream);
        norms.values = gradients.floats();
        norms.slice_sums = sums.data() + 4;
        slice_squares(norms, stream);
        const UpdateArgs args{.chunks = chunks.data(),
                              .first_chunk = 1,
                              .chunk_count = 4,
                              .weight_decay = decay.data(),
                              .momentum = 0.9f,
                              .nesterov = nesterov,
                              .gradients = gradients.floats(),
                              .weights = weights.floats(),
                              .velocities = velocities.floats(),
                              .copies = storage == Storage::fp32 ? nullptr : copies.data(),
                              .storage = storage,
                              .scalars = &scalars};
        float ratios[4];
        const TrustArgs trust{adaptive.data(), sums.data(), sums.data() + 4, ratios};
        lars_update(args, {0.01f, 0.5f, optim::LarsMomentum::inside, trust}, stream);
        return Outputs{weights.read(), velocities.read(), copies.read()};
      });
      std::vector<double> want_w = w, want_v = v;
      for (std::size_t k = 1; k < chunks.size(); ++k) {
        const std::size_t s = chunks[k].slice;
        const double norm_w = std::sqrt(sum_of_squares(w, s)),
                     norm_g = std::sqrt(sum_of_squares(g, s)) / 256;
        const double trust =
            adaptive[s] != 0 ? 0.01 * norm_w / (norm_g + double{decay[s]} * norm_w + 0.5) : 1;
        for (std::size_t i = chunks[k].offset; i < chunks[k].offset + chunks[k].count; ++i) {
          const double step = 10 * trust * (g[i] / 256 + double{decay[s]} * w[i]);
          want_v[i] = 0.9 * v[i] + step;
          want_w[i] -= nesterov ? 0.9 * want_v[i] + step : want_v[i];
        }
      }
      check_near(got[0], want_w, 3e-7, "weights");
      check_near(got[1], want_v, 3e-7, "momentum");
      if (storage != Storage::fp32) check_copies(storage, got[0], got[2]);
    }
}

TEST_CASE("the backend's norms are the slices', and clipping leaves the step of smaller gradients",
          "[backend]") {
  const Case c(bottlenecks(), 3, 5);
  Compiled compiled(c, 3, make_cuda_backend(0), Precision::fp32),
      small(c, 3, make_cuda_backend(0), Precision::fp32);
  const nn::ArenaLayout& layout = compiled.parameters->layout();
  for (Compiled* each : {&compiled, &small}) each->run(c, 0, false);
  double sum = 0;
  for (const Part part : {Part::weights, Part::gradients}) {
    const std::vector<double> norms = compiled.backend->norms(*compiled.parameters, part);
    REQUIRE(norms.size() == layout.slices.size());
    for (std::size_t s = 0; s < norms.size(); ++s) {
      double squares = 0;
      for (const float v : compiled.exported(part, s)) squares += double{v} * double{v};
      INFO(layout.slices[s].tensor.name);
      CHECK(norms[s] == Approx(std::sqrt(squares)).epsilon(1e-13));
      if (part == Part::gradients && s < layout.learned_slices) sum += squares;
    }
  }
  const double norm = std::sqrt(sum);
  const optim::UpdateRule rule{.formula = optim::Sgd{.momentum = 0.9f, .nesterov = true},
                               .weight_decay = std::vector<float>(layout.slices.size(), 0)};
  const optim::StepScalars scalars{.lr = 0.1f, .gradient_scale = 1, .statistics_share = 1};
  const auto limit = static_cast<float>(norm / 8);
  compiled.backend->clip_gradients(*compiled.parameters, limit);
  CHECK(compiled.parameters->clipped_norm() == Approx(norm).epsilon(1e-12));
  for (std::size_t s = 0; s < layout.slices.size(); ++s) {
    std::vector<float> gradient = small.exported(Part::gradients, s);
    for (float& v : gradient) v = static_cast<float>(v * (double{limit} / (norm + 1e-6)));
    small.parameters->import_slice(Part::gradients, s, gradient);
  }
  for (Compiled* each : {&compiled, &small})
    each->backend->update(*each->parameters, rule, scalars, 0, layout.learned_slices);
  for (std::size_t s = 0; s < layout.learned_slices; ++s) {
    const std::vector<float> want = small.exported(Part::momentum, s);
    CHECK(distance(compiled.exported(Part::momentum, s), {want.begin(), want.end()}) <= 1e-6);
  }
}

TEST_CASE("the average takes the weights' place and gives it back, also for 16-bit convolutions",
          "[backend]") {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    const Case c(bottlenecks(), 3, 5), other(bottlenecks(), 3, 6);
    Compiled compiled(c, 3, make_cuda_backend(0), precision),
        want(c, 3, make_cuda_backend(0), precision);
    Parameters& parameters = *compiled.parameters;
    const std::uint32_t without = parameters.hash();
    CHECK_FALSE(parameters.has_average());
    parameters.start_average();
    CHECK(parameters.hash() != without);
    const double loss = compiled.run(c, 0, false);
    const auto& slices = parameters.layout().slices;
    for (std::size_t s = 0; s < slices.size(); ++s) {
      const std::vector<double>& v = other.oracle.parameters.at(slices[s].tensor.name);
      const std::vector<float> plain(v.begin(), v.end());
      parameters.import_slice(Part::average, s, plain);
      want.parameters->import_slice(Part::weights, s, plain);
    }
    const std::uint32_t before = parameters.hash();
    compiled.backend->swap_average(parameters);
    CHECK(compiled.run(c, 0, false) == want.run(c, 0, false));
    compiled.backend->swap_average(parameters);
    CHECK(parameters.hash() == before);
    CHECK(compiled.run(c, 0, false) == loss);

    // A step whose gradients overflow does not count.
    parameters.set_loss_scale({1024, 0, 0, 0});
    std::vector<float> gradient = compiled.exported(Part::gradients, 0);
    gradient[0] = INFINITY;
    parameters.import_slice(Part::gradients, 0, gradient);
    compiled.backend->judge_gradients(parameters);
    compiled.backend->update_average(parameters, 0.5f);
    CHECK((parameters.hash() == before) == (precision == Precision::fp16));
  }
}
