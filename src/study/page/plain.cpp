#include <fmt/core.h>

#include <algorithm>
#include <variant>

#include "lockstep/base/text/words.hpp"
#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

/// Characters, not bytes, of UTF-8.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(
      std::ranges::count_if(text, [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::size_t> widths(const TextTable& table) {
  std::vector<std::size_t> most(table.rows.front().size(), 0);
  for (const auto& row : table.rows)
    for (std::size_t i = 0; i < row.size(); ++i) most[i] = std::max(most[i], width(row[i]));
  return most;
}

/// The cells, padded, with `between` between them.
std::string row_of(const std::vector<std::string>& cells, const std::vector<std::size_t>& most,
                   const char* between) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += (i == 0 ? "" : between) + cells[i] + std::string(most[i] - width(cells[i]), ' ');
  return line;
}

/// Lines of at most 100 columns.
std::string wrapped(const std::string& given, const std::string& indent = "") {
  const std::string text = one_line(given);
  std::string lines;
  std::size_t column = 0, at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (column > 0 && column + 1 + width(word) > 100) {
      lines += "\n" + indent;
      column = indent.size();
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += width(word);
    at = end + 1;
  }
  return lines + "\n";
}

struct Text {
  std::string text;
  void operator()(const Heading& heading) { text += "\n" + heading.text + "\n"; }
  void operator()(const Paragraph& paragraph) { text += wrapped(paragraph.text); }
  void operator()(const Items& items) {
    for (const std::string& item : items.items) text += "- " + wrapped(item, "  ");
  }
  void operator()(const TextTable& given) {
    TextTable table = given;
    for (auto& row : table.rows)
      for (std::string& cell : row) cell = one_line(cell);
    const std::vector<std::size_t> most = widths(table);
    for (const auto& row : table.rows) {
      std::string line = row_of(row, most, "  ");
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    if (!table.caption.empty()) text += wrapped("(" + table.caption + ")");
  }
  void operator()(const Figure&) {}
  void operator()(const Verdict& verdict) {
    text += wrapped(verdict.text);
    if (!verdict.advice.empty()) text += wrapped(verdict.advice);
  }
  void operator()(const Lines& lines) { text += lines.title + ":\n" + lines.text + "\n"; }
};

/// What Markdown would take for markup.
std::string literal(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '`') safe += '\\';
    safe += c;
  }
  return safe;
}

struct Markdown {
  std::string text;
  void operator()(const Heading& heading) { text += "\n## " + literal(heading.text) + "\n"; }
  void operator()(const Paragraph& paragraph) { text += "\n" + wrapped(literal(paragraph.text)); }
  void operator()(const Items& items) {
    text += "\n";
    for (const std::string& item : items.items) text += "- " + wrapped(literal(item), "  ");
  }
  void operator()(const TextTable& table) {
    TextTable safe = table;
    for (auto& row : safe.rows)
      for (std::string& cell : row) cell = literal(cell);
    const std::vector<std::size_t> most = widths(safe);
    text += "\n";
    for (std::size_t i = 0; i < safe.rows.size(); ++i) {
      text += "| " + row_of(safe.rows[i], most, " | ") + " |\n";
      if (i > 0) continue;
      for (const std::size_t columns : most) text += "| " + std::string(columns, '-') + " ";
      text += "|\n";
    }
    if (!table.caption.empty()) text += "\n" + wrapped(literal(table.caption));
  }
  void operator()(const Verdict& verdict) {
    text += "\n" + wrapped("**" + literal(verdict.text) + "** " + literal(verdict.advice));
  }
  void operator()(const Lines& lines) {
    text += "\n" + literal(lines.title) + ":\n\n```text\n" + lines.text + "\n```\n";
  }
  void operator()(const Figure& figure) {
    text += fmt::format("\n![{}]({}.svg)\n", literal(figure.caption), figure.name);
  }
};

}  // namespace

std::string as_text(const Document& document) {
  Text text{one_line(document.title) + "\n"};
  const Heading* heading = nullptr;  // of what follows: pictures alone need none here
  for (const Block& block : document.blocks) {
    if (std::holds_alternative<Figure>(block)) continue;
    const auto* next = std::get_if<Heading>(&block);
    if (next == nullptr) {
      if (heading != nullptr) text(*heading);
      std::visit(text, block);
    }
    heading = next;
  }
  return text.text;
}

std::string as_markdown(const Document& document) {
  Markdown markdown{"# " + literal(document.title) + "\n"};
  for (const Block& block : document.blocks) std::visit(markdown, block);
  return markdown.text;
}

}  // namespace lockstep::study
