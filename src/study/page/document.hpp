#pragma once

#include <string>
#include <variant>
#include <vector>

/// A report as data: written once, printed as text, Markdown, LaTeX or HTML.
namespace lockstep::study {

struct Heading {
  std::string text;
};
struct Paragraph {
  std::string text;
};
struct Items {
  std::vector<std::string> items;
};
/// The first row has the names of the columns.
struct TextTable {
  std::vector<std::vector<std::string>> rows;
  std::string caption;
};
/// `svg` is a complete picture; `name` is its file's, without an ending.
struct Figure {
  std::string name, svg, caption;
};

/// What a reader should see first.
struct Verdict {
  std::string text, advice;  ///< advice may be empty
  bool good = true;
};
/// Lines as they are; a page shows them when `title` is opened.
struct Lines {
  std::string title, text;
  bool open = false;
};

using Block = std::variant<Heading, Paragraph, Items, TextTable, Figure, Verdict, Lines>;
struct Document {
  std::string title;
  std::vector<Block> blocks;
  void add(std::vector<Block> more) {
    for (Block& block : more) blocks.push_back(std::move(block));
  }
};

std::string as_text(const Document& document);
std::string as_markdown(const Document& document);
std::string as_latex(const Document& document);  ///< a section to include; it has no figures
/// One page that needs nothing else. `generator` says which command made it.
std::string as_html(const Document& document, const std::string& generator = "lockstep");

/// For XML and HTML.
std::string escaped(const std::string& text);

}  // namespace lockstep::study
