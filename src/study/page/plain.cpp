#include <fmt/format.h>

#include <cstring>
#include <variant>

#include "lockstep/base/text/table.hpp"
#include "lockstep/base/text/words.hpp"
#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

/// Lines of at most 100 columns.
std::string wrapped(const std::string& given, const std::string& indent = "") {
  const std::string text = one_line(given);
  std::string lines;
  std::size_t column = 0, at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (column > 0 && column + 1 + width_of(word) > 100) {
      lines += "\n" + indent;
      column = indent.size();
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += width_of(word);
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
  void operator()(const TextTable& table) {
    text += lockstep::table(table.rows);
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
    const std::vector<std::size_t> most = widths_of(safe.rows);
    text += "\n";
    for (std::size_t i = 0; i < safe.rows.size(); ++i) {
      text += "| " + row_text(safe.rows[i], most, " | ") + " |\n";
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

std::string tex(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\\')
      safe += "\\textbackslash{}";
    else if (c == '~' || c == '^')
      safe += fmt::format("\\{}{{}}", c);
    else if (c == '<' || c == '>')
      safe += fmt::format("${}$", c);
    else if (std::strchr("&%$#_{}", c) != nullptr)
      safe += fmt::format("\\{}", c);
    else
      safe += c;
  }
  return safe;
}

struct Latex {
  std::string text;

  void operator()(const Heading& heading) { text += "\n\\subsection{" + tex(heading.text) + "}\n"; }
  void operator()(const Paragraph& paragraph) { text += "\n" + tex(paragraph.text) + "\n"; }
  void operator()(const Items& items) {
    text += "\n\\begin{itemize}\n";
    for (const std::string& item : items.items) text += "\\item " + tex(item) + "\n";
    text += "\\end{itemize}\n";
  }
  void operator()(const TextTable& table) {
    text += "\n\\begin{table}[htbp]\n\\centering\\small\n\\begin{tabular}{" +
            std::string(table.rows.front().size(), 'r') + "}\n\\hline\n";
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      for (std::size_t cell = 0; cell < table.rows[i].size(); ++cell)
        text += (cell == 0 ? "" : " & ") + tex(table.rows[i][cell]);
      text += i == 0 ? " \\\\ \\hline\n" : " \\\\\n";
    }
    text += "\\hline\n\\end{tabular}\n";
    if (!table.caption.empty()) text += "\\caption{" + tex(table.caption) + "}\n";
    text += "\\end{table}\n";
  }
  void operator()(const Figure&) {}
  void operator()(const Verdict& verdict) {
    text += "\n\\textbf{" + tex(verdict.text) + "} " + tex(verdict.advice) + "\n";
  }
  void operator()(const Lines& lines) {
    text += "\n" + tex(lines.title) + ":\n\\begin{verbatim}\n" + lines.text + "\n\\end{verbatim}\n";
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

std::string as_latex(const Document& document) {
  Latex latex{"\\section{" + tex(document.title) + "}\n"};
  for (const Block& block : document.blocks) std::visit(latex, block);
  return latex.text;
}

}  // namespace lockstep::study
