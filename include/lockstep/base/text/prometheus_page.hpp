#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Writes metrics in Prometheus' text format, one after the other, each with its help and type
/// before its samples. All names begin with "lockstep_".
class PrometheusPage {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string>>;
  /// `common`: come first in the labels of all samples.
  explicit PrometheusPage(Labels common = {}) : common_(std::move(common)) {}
  /// `type`: counter, gauge or histogram.
  void metric(std::string_view name, std::string_view type, std::string_view help);
  /// Of the last metric. `suffix`: what a histogram's sample has after the name.
  void sample(double value, const Labels& labels = {}, std::string_view suffix = "");
  void gauge(std::string_view name, std::string_view help, double value);
  void counter(std::string_view name, std::string_view help, double value);

  std::string text;

 private:
  Labels common_;
  std::string name_;
};

}  // namespace lockstep
