// LARS, LAMB and Muon on the CPU, against the published formulas.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <utility>

#include "lockstep/base/rng.hpp"
#include "ports/cpu/arena/arena.hpp"
#include "ports/cpu/kernels/kernel_sets.hpp"
#include "tests/support/laws/rules.hpp"
#include "tests/support/networks/sketch.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// A matrix, and memory for its iterations.
struct Given {
  Given(std::size_t height, std::size_t width, bool skewed)
      : rows(height),
        columns(width),
        plain(height * width),
        values(cpu::whole_panels(height) * cpu::whole_panels(width)),
        next(values.size(), std::nanf("")),
        squares(4 * cpu::whole_panels(height) * cpu::whole_panels(height), std::nanf("")) {
    double sum = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      // Skewed: each row is shorter than the one before it, and all are nearly the same.
      const std::size_t row = i / width, column = i % width;
      const auto drawn = [&](std::size_t at) { return 2 * unit(philox(7, at, 0).word[0]) - 1.0; };
      const double size = skewed ? std::pow(0.95, static_cast<double>(row)) : 1;
      plain[i] = static_cast<float>(size * (drawn(i) + (skewed ? 30 * drawn(column) : 0)));
      sum += double{plain[i]} * double{plain[i]};
    }
    matrix = {cpu::whole_panels(height), cpu::whole_panels(width), values.data(), next.data(),
              squares.data()};
    for (std::size_t i = 0; i < plain.size(); ++i) {
      plain[i] /= static_cast<float>(std::sqrt(sum));
      values[matrix.at(i / width, i % width)] = plain[i];
    }
  }
  std::vector<float> result(const cpu::WideMatrix& of) const {
    std::vector<float> found;
    for (std::size_t i = 0; i < plain.size(); ++i)
      found.push_back(of.values[of.at(i / columns, i % columns)]);
    return found;
  }
  std::size_t rows, columns;
  std::vector<float> plain, values, next, squares;
  cpu::WideMatrix matrix;
};

}  // namespace

TEST_CASE("products of panels are those of matrices with every instruction set", "[rules]") {
  constexpr std::size_t chunks = 2, panels = 3, steps = 16 * chunks, block = 256;
  const auto number = [](std::size_t i) { return static_cast<float>(i * 7919 % 11) - 5; };
  std::vector<float> left(steps * 16), right(panels * steps * 16), began(panels * block);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = number(i);
  for (std::size_t i = 0; i < right.size(); ++i) right[i] = number(i + 5);
  for (std::size_t i = 0; i < began.size(); ++i) began[i] = number(i + 3);
  for (const cpu::KernelSet& set : cpu::kernel_sets()) {
    const cpu::PanelKernels& kernels = set.panels;
    for (const bool rows : {false, true})
      for (const bool add : {false, true}) {
        std::vector<float> out = began, want = began;
        (rows ? kernels.multiply_rows : kernels.multiply)({.left = left.data(),
                                                           .left_chunk = block,
                                                           .right = right.data(),
                                                           .right_panel = steps * 16,
                                                           .out = out.data(),
                                                           .out_panel = block,
                                                           .panels = panels,
                                                           .chunks = chunks,
                                                           .add = add});
        for (std::size_t i = 0; i < want.size(); ++i) {
          const std::size_t panel = i / block, row = i % block / 16, column = i % 16;
          double sum = add ? double{began[i]} : 0;
          for (std::size_t t = 0; t < steps; ++t) {
            const std::size_t at = rows ? row * 16 + t % 16 : t % 16 * 16 + row;
            sum += double{left[t / 16 * block + at]} *
                   double{right[(panel * steps + t) * 16 + column]};
          }
          want[i] = static_cast<float>(sum);
        }
        CHECK(out == want);  // sums of small integers are exact
      }
    std::vector<float> turned(block);
    kernels.transpose(left.data(), turned.data());
    for (std::size_t i = 0; i < block; ++i) CHECK(turned[i] == left[i % 16 * 16 + i / 16]);
  }
}

TEST_CASE("a filter's matrix has each of its values in its place, in whatever form it is stored",
          "[rules]") {
  constexpr nn::MatrixForm forms[] = {
      {.rows = 64, .columns = 90, .panel = 64, .panel_stride = 64, .column_stride = 64},
      {.rows = 64, .columns = 30, .panel = 64, .panel_stride = 64, .column_stride = 64},
      {.rows = 23, .columns = 40, .panel = 23, .panel_stride = 0, .column_stride = 24},
      {.rows = 48, .columns = 50, .panel = 24, .panel_stride = 24 * 50, .column_stride = 24},
      {.rows = 32, .columns = 37, .panel = 16, .panel_stride = 16 * 37, .column_stride = 16},
      {.rows = 24, .columns = 20, .panel = 8, .panel_stride = 8 * 20, .column_stride = 8},
      {.rows = 12, .columns = 15, .panel = 4, .panel_stride = 4 * 15, .column_stride = 4},
      {.rows = 10, .columns = 21, .panel = 1, .panel_stride = 22, .column_stride = 1}};
  for (const nn::MatrixForm& form : forms) {
    INFO(form.rows << " x " << form.columns << " in panels of " << form.panel);
    const bool upright = form.rows <= form.columns;
    const std::size_t height = cpu::whole_panels(std::min(form.rows, form.columns)),
                      width = cpu::whole_panels(std::max(form.rows, form.columns));
    const cpu::WideMatrix matrix{.height = height, .width = width};
    constexpr std::size_t none = std::string::npos;
    std::vector<std::size_t> got(height * width, none), want = got;
    for (std::size_t row = 0; row < form.rows; row += cpu::next_run(form, row))
      for (std::size_t column = 0; column < form.columns; ++column) {
        const cpu::Run run = cpu::run_at(form, matrix, row, column);
        for (std::size_t k = 0; k < run.count; ++k) got.at(run.to + k * run.stride) = run.from + k;
      }
    for (std::size_t row = 0; row < form.rows; ++row)
      for (std::size_t column = 0; column < form.columns; ++column)
        want[upright ? matrix.at(row, column) : matrix.at(column, row)] = form.at(row, column);
    CHECK(got == want);
  }
}

TEST_CASE("50 steps of each rule are the published formula's, zero norms and skip lists included",
          "[rules]") {
  for (const std::size_t threads : {1u, 3u}) {
    const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(threads)});
    check_rules(*backend, bottlenecks());
  }
}

TEST_CASE("5 steps of each rule are the published formula's for filters of several tiles",
          "[rules]") {
  const auto backend = backend::make_cpu_backend({std::vector<std::vector<int>>(2)});
  check_rules(*backend, wide(), 5);
}

TEST_CASE("Newton-Schulz's iterations are those in double precision, also of nearly equal rows",
          "[rules]") {
  cpu::Team team(std::vector<std::vector<int>>(2));
  for (const bool skewed : {false, true})
    for (const auto& [height, width] : {std::pair{1, 5}, {16, 16}, {100, 130}, {130, 900}}) {
      INFO(height << " x " << width << (skewed ? ", skewed" : ""));
      for (const int iterations : {1, 2, 5}) {
        Given given(static_cast<std::size_t>(height), static_cast<std::size_t>(width), skewed);
        const std::vector<double> want = newton_schulz(
            {given.plain.begin(), given.plain.end()}, static_cast<std::size_t>(height), iterations);
        std::vector<cpu::WideMatrix> all{given.matrix};
        cpu::orthogonalise(all, iterations, team);
        const std::vector<float> got = given.result(all[0]);
        double apart = 0, norm = 0;
        for (std::size_t i = 0; i < want.size(); ++i) {
          apart += std::pow(got[i] - want[i], 2);
          norm += want[i] * want[i];
        }
        CHECK(std::sqrt(apart) <= 1e-5 * std::sqrt(norm));
      }
    }
}

TEST_CASE("Newton-Schulz's iterations have the same bits with any threads, and in company",
          "[rules]") {
  constexpr int iterations = 5;
  Given alone(130, 900, true);
  std::vector<cpu::WideMatrix> one{alone.matrix};
  cpu::Team single({});
  cpu::orthogonalise(one, iterations, single);
  for (const std::size_t lanes : {1, 3}) {
    cpu::Team team{std::vector<std::vector<int>>(lanes)};
    Given first(200, 300, false), same(130, 900, true), last(16, 16, false);
    std::vector<cpu::WideMatrix> all{first.matrix, same.matrix, last.matrix};
    cpu::orthogonalise(all, iterations, team);
    CHECK(same.result(all[1]) == alone.result(one[0]));
    CHECK(first.result(all[0]) != alone.result(one[0]));
  }
}
