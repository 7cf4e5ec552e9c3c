#include "lockstep/study/report/study_report.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "study/page/document.hpp"
#include "tests/support/folder_fixture.hpp"

using namespace lockstep;
using namespace lockstep::study;
using namespace lockstep::test;
using Catch::Contains;

namespace {

/// Measurements that follow c = 1, a = 20 ms exactly, on 4 ranks a node.
Samples a_study() {
  Samples samples;
  for (const std::size_t ranks : {1, 2, 4, 8, 16})
    for (const std::size_t batch : {320u, unsigned(64 * ranks)}) {
      Sample sample;
      sample.name = "run";
      sample.ranks = ranks;
      sample.nodes = (ranks + 3) / 4;
      sample.batch = batch;
      sample.step_ms = 20 + sample.rows();
      samples.good.push_back(sample);
    }
  return samples;
}

AnalysisSpec a_spec() {
  AnalysisSpec spec;
  spec.fit.replicates = 50;
  spec.forecast = {.ranks = {8, 16, 32}, .batch = 320, .epoch_rows = 320000};
  return spec;
}

}  // namespace

TEST_CASE("costs follow from the law: nodes are whole, an epoch is its steps", "[study]") {
  AnalysisSpec spec = a_spec();
  spec.forecast.epochs = EpochsCurve{"a test", "90 % top-1", {{100, 10}, {1000, 20}}};
  const Forecasts all = *analyse(a_study(), spec).forecasts;
  REQUIRE(all.sizes.size() == 3);
  const Forecast& eight = all.sizes[0];
  CHECK(eight.step_ms.middle == Approx(20 + 40).epsilon(1e-4));
  CHECK(eight.nodes == 2);
  CHECK(*eight.epoch_hours == Approx(1000 * 60 / 3.6e6).epsilon(1e-4));
  CHECK(*eight.epoch_node_hours == Approx(2 * *eight.epoch_hours));
  // Between two batches by the logarithm.
  CHECK(*eight.epochs == Approx(10 + 10 * std::log10(3.2)));
  // The base: one rank with 320 rows makes 320 / 340 images a ms.
  CHECK(all.base.rate() == Approx(1e3 * 320 / 340.0));
  CHECK(eight.efficiency.middle == Approx((320 / 60.0 / 8) / (320 / 340.0)).epsilon(1e-4));
}

TEST_CASE("the recommended size is the fastest that is efficient, known and affordable",
          "[study]") {
  AnalysisSpec spec = a_spec();
  const Recommendation usual = analyse(a_study(), spec).forecasts->recommendation;
  REQUIRE(usual.size);
  CHECK(usual.size->ranks == 8);  // 71 %; 16 ranks have 53 %
  CHECK_THAT(usual.why, Contains("16 ranks would have an efficiency of 53 %, less than 70 %"));
  spec.forecast.efficiency = 0.5;
  CHECK(analyse(a_study(), spec).forecasts->recommendation.size->ranks == 16);
  spec.forecast.efficiency = 0.99;
  CHECK_THAT(analyse(a_study(), spec).forecasts->recommendation.why,
             Contains("no size can be recommended"));
  spec.forecast.efficiency = 0.5;
  spec.forecast.epochs = EpochsCurve{"a test", "90 % top-1", {{100, 10}, {200, 20}}};
  CHECK_THAT(analyse(a_study(), spec).forecasts->recommendation.why,
             Contains("no one has shown that batch 320 reaches 90 % top-1"));
  spec.forecast.epochs->points.push_back({1000, 20});
  spec.forecast.node_hours = 0.001;
  CHECK_THAT(analyse(a_study(), spec).forecasts->recommendation.why, Contains("more than 0.001"));
}

TEST_CASE("epochs over batch: MLPerf's points, and nothing beyond the largest", "[study]") {
  const EpochsCurve curve = reference_epochs();
  CHECK(*curve.at(500) == 35);
  CHECK_FALSE(curve.at(100));
  CHECK(*curve.at(8192) == Approx(42));
  CHECK((*curve.at(10000) > 42 && *curve.at(10000) < 45.4));
  CHECK_FALSE(curve.at(70000));
  const Folder folder("study");
  const auto file = folder.path / "epochs.csv";
  write_text_atomically(file, "batch,epochs\n512,30\n256,25\n");
  CHECK(*read_epochs(file, "it").at(256) == 25);
  write_text_atomically(file, "batch,epochs\n512,many\n");
  CHECK_THROWS_WITH(read_epochs(file, "it"), Contains("epochs.csv:2: '512,many'"));
}

TEST_CASE("no cost of a training comes from a rehearsal, or from another network or image",
          "[study]") {
  AnalysisSpec spec = a_spec();
  spec.imagenet = true;
  const auto with = [](std::string Sample::*field, const char* text, std::size_t image = 0) {
    Samples samples = a_study();
    for (Sample& sample : samples.good) {
      sample.*field = text;
      sample.image = image;
    }
    return samples;
  };
  CHECK(analyse(with(&Sample::network, "resnet50", 224), spec).forecasts->epoch_rows == 320000);
  CHECK_THROWS_WITH(analyse(with(&Sample::network, "resnet20"), spec),
                    Contains("the epochs of ResNet-50") && Contains("resnet20"));
  CHECK_THROWS_WITH(analyse(with(&Sample::network, "resnet50", 32), spec), Contains("32 x 32"));
  const Samples rehearsal = with(&Sample::machine, "clock: 2 ms a row and 20 ms a step");
  CHECK_THROWS_WITH(analyse(rehearsal, spec), Contains("rehearsal"));
  const Report report = make_report(analyse(rehearsal, a_spec()), a_spec());
  CHECK_THAT(report.markdown, Contains("This is a rehearsal") && !Contains("For the proposal") &&
                                  !Contains("node-h") && Contains("efficiency"));
}

TEST_CASE("every efficiency has its base rate next to it, in each form of the report", "[study]") {
  const AnalysisSpec spec = a_spec();
  const Report report = make_report(analyse(a_study(), spec), spec);
  for (const std::string* text : {&report.markdown, &report.latex, &report.html})
    CHECK_THAT(*text, Contains("relative to") && Contains("941 images/s, 941.2 a rank"));
  REQUIRE(report.figures.size() == 3);
  for (const auto& [name, svg] : report.figures) {
    const std::size_t from = svg.find(" xmlns="), end = svg.find(" viewBox");
    REQUIRE(from < end);  // in a file; inside of a page it would be a reference
    CHECK_THAT(report.html, Contains(svg.substr(0, from) + svg.substr(end)));
    CHECK_THAT(svg, !Contains("nan") && !Contains("inf"));
  }
  CHECK_THAT(report.latex, Contains("71 \\%") && !Contains(" 71 %"));
}

TEST_CASE("few measurements are a table and the words too few", "[study]") {
  Samples samples = a_study();
  samples.good.resize(4);
  const Analysis analysis = analyse(samples, a_spec());
  CHECK_FALSE(analysis.fit);
  CHECK_THAT(fit_text(analysis), Contains("too few: 4 configuration") && Contains("efficiency"));
  CHECK_THAT(make_report(analysis, a_spec()).html, Contains("too few"));
  CHECK(nlohmann::json::parse(analysis_json(analysis))["points"].size() == 4);
}

TEST_CASE("markup in names stays text in each form of the report", "[study]") {
  const Document document{"a_b <i> & 5 %", {TextTable{{{"x|y", "_"}, {"<b>", "50 %"}}, ""}}};
  CHECK_THAT(as_html(document),
             Contains("<h1>a_b &lt;i&gt; &amp; 5 %</h1>") && Contains("<td>&lt;b&gt;</td>"));
  CHECK_THAT(as_latex(document), Contains("a\\_b $<$i$>$ \\& 5 \\%"));
  CHECK_THAT(as_markdown(document), Contains("x\\|y") && Contains("\\<b>"));
}
