#include "lockstep/base/text/prometheus_page.hpp"

#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/text/words.hpp"

namespace lockstep {
namespace {

std::string label_value(const std::string& value) {
  std::string text;
  for (const char letter : valid_utf8(value))  // else the whole page is an error
    if (letter == '\n')
      text += "\\n";
    else if (letter == '"' || letter == '\\')
      (text += '\\') += letter;
    else
      text += letter;
  return text;
}

}  // namespace

void PrometheusPage::metric(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text += fmt::format("# HELP lockstep_{0} {1}\n# TYPE lockstep_{0} {2}\n", name, help, type);
}

void PrometheusPage::sample(double value, const Labels& labels, std::string_view suffix) {
  text += fmt::format("lockstep_{}{}", name_, suffix);
  char between = '{';
  for (const Labels* some : {static_cast<const Labels*>(&common_), &labels})
    for (const auto& [name, is] : *some) {
      text += fmt::format("{}{}=\"{}\"", between, name, label_value(is));
      between = ',';
    }
  if (between == ',') text += '}';
  text += std::isnan(value)   ? " NaN\n"
          : std::isinf(value) ? (value > 0 ? " +Inf\n" : " -Inf\n")
                              : fmt::format(" {:.17g}\n", value);
}

void PrometheusPage::gauge(std::string_view name, std::string_view help, double value) {
  metric(name, "gauge", help);
  sample(value);
}

void PrometheusPage::counter(std::string_view name, std::string_view help, double value) {
  metric(name, "counter", help);
  sample(value);
}

}  // namespace lockstep
