#include <fmt/core.h>

#include <cstring>

#include "study/page/document.hpp"

namespace lockstep::study {
namespace {

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

std::string as_latex(const Document& document) {
  Latex latex{"\\section{" + tex(document.title) + "}\n"};
  for (const Block& block : document.blocks) std::visit(latex, block);
  return latex.text;
}

}  // namespace lockstep::study
