#include <fmt/format.h>

#include <algorithm>

#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

constexpr const char* style = R"(
:root { --ink: #1c2330; --soft: #5b6472; --line: #d9dee6; --page: #ffffff; --panel: #f6f8fa;
  --first: #1f6fb2; --second: #e08214; --third: #b2322f; --fourth: #7a5195;
  --fifth: #2a8a57; --sixth: #8a94a3; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #a2abb9; --line: #39424f;
  --page: #14181f; --panel: #1d232c; --first: #6db3f2; --second: #f5a94c; --third: #f0746f;
  --fourth: #c49be0; --fifth: #63c391; --sixth: #76808e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 70rem; color: var(--ink);
  background: var(--page); font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-top: .8rem;
  border-top: 1px solid var(--line); }
p, li { max-width: 46rem; overflow-wrap: anywhere; }
ul { padding-left: 1.2rem; }
.figures { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; padding: .8rem; background: var(--panel); border-radius: 8px; }
.verdict { border-left: 5px solid var(--third); background: var(--panel); padding: .6rem 1rem;
  border-radius: 0 8px 8px 0; }
.verdict.good { border-color: var(--fifth); }
.verdict p { margin: .2rem 0; }
details { margin: .8rem 0; }
summary { cursor: pointer; }
pre { background: var(--panel); padding: .8rem; border-radius: 8px; overflow-x: auto;
  font-size: .8rem; line-height: 1.4; }
figure svg { width: 100%; max-width: 34rem; height: auto; display: block; }
figcaption, .note { color: var(--soft); font-size: .85rem; }
.note { margin-top: .4rem; }
.wide { overflow-x: auto; margin: .8rem 0 0;
  background: linear-gradient(to right, var(--page) 30%, transparent) 0 0 / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--page) 30%, transparent) 100% 0 / 2rem 100% no-repeat local,
    linear-gradient(to left, var(--line), transparent) 100% 0 / .8rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .45rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th.words, td.words { text-align: left; white-space: normal; min-width: 9rem;
  overflow-wrap: anywhere; }
)";

/// Whether a column has sentences, which begin on the left.
bool has_words(const TextTable& table, std::size_t column) {
  return std::ranges::any_of(
      table.rows, [column](const auto& row) { return std::ranges::count(row[column], ' ') > 3; });
}

/// A picture that is part of a page needs no name of its language.
std::string inside_page(std::string svg) {
  const std::size_t at = svg.find(" xmlns=\"");
  if (at != std::string::npos) svg.erase(at, svg.find('"', at + 8) + 1 - at);
  return svg;
}

struct Html {
  std::string text;
  bool in_figures = false;

  void end_figures() {
    if (in_figures) text += "</div>\n";
    in_figures = false;
  }
  void operator()(const Heading& heading) {
    end_figures();
    text += "<h2>" + escaped(heading.text) + "</h2>\n";
  }
  void operator()(const Paragraph& paragraph) {
    end_figures();
    text += "<p>" + escaped(paragraph.text) + "</p>\n";
  }
  void operator()(const Items& items) {
    end_figures();
    text += "<ul>\n";
    for (const std::string& item : items.items) text += "<li>" + escaped(item) + "</li>\n";
    text += "</ul>\n";
  }
  void operator()(const TextTable& table) {
    end_figures();
    text += "<div class=\"wide\" tabindex=\"0\">\n<table>\n";
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      text += i == 0 ? "<thead><tr>" : "<tr>";
      const char* cell_name = i == 0 ? "th" : "td";
      for (std::size_t column = 0; column < table.rows[i].size(); ++column)
        text += fmt::format("<{0}{1}>{2}</{0}>", cell_name,
                            has_words(table, column) ? " class=\"words\"" : "",
                            escaped(table.rows[i][column]));
      text += i == 0 ? "</tr></thead>\n<tbody>\n" : "</tr>\n";
    }
    text += "</tbody>\n</table>\n</div>\n";
    // Outside of what scrolls sideways, so that a phone wraps it.
    if (!table.caption.empty()) text += "<p class=\"note\">" + escaped(table.caption) + "</p>\n";
  }
  void operator()(const Verdict& verdict) {
    end_figures();
    text += fmt::format("<div class=\"verdict{}\"><p><strong>{}</strong></p>",
                        verdict.good ? " good" : "", escaped(verdict.text));
    if (!verdict.advice.empty()) text += "<p>" + escaped(verdict.advice) + "</p>";
    text += "</div>\n";
  }
  void operator()(const Lines& lines) {
    end_figures();
    text += fmt::format("<details{}><summary>{}</summary>\n<pre>{}</pre>\n</details>\n",
                        lines.open ? " open" : "", escaped(lines.title), escaped(lines.text));
  }
  void operator()(const Figure& figure) {
    if (!in_figures) text += "<div class=\"figures\">\n";
    in_figures = true;
    text += "<figure>\n" + inside_page(figure.svg) + "<figcaption>" + escaped(figure.caption) +
            "</figcaption>\n</figure>\n";
  }
};

}  // namespace

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  return safe;
}

std::string as_html(const Document& document, const std::string& generator) {
  Html html;
  html.text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"generator\" content=\"{2}\">\n"
      "<title>{0}</title>\n<style>{1}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escaped(document.title), style, escaped(generator));
  for (const Block& block : document.blocks) std::visit(html, block);
  html.end_figures();
  return html.text + "</body>\n</html>\n";
}

}  // namespace lockstep::study
