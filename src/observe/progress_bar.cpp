#include "observe/progress_bar.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "lockstep/base/files/files.hpp"
#include "lockstep/observe/report.hpp"

namespace lockstep::observe {
namespace {

constexpr int narrowest = 40, widest = 200, shortest_bar = 10, longest_bar = 50;

std::string time_left(const ProgressFigures& figures) {
  return figures.left_s ? fmt::format("  ETA {}", human_seconds(*figures.left_s)) : "";
}

double share_done(const ProgressFigures& figures) {
  if (figures.steps == 0) return 0;
  return std::min(1.0, static_cast<double>(figures.step) / static_cast<double>(figures.steps));
}

/// "[=====>    ]"
std::string bar(double share, int width, bool colours) {
  const int inner = width - 2;
  const int full = static_cast<int>(share * inner);
  std::string done(static_cast<std::size_t>(full), '=');
  if (full < inner) done += '>';
  const std::string rest(static_cast<std::size_t>(inner) - done.size(), ' ');
  return fmt::format("[{}{}{}{}]", colours ? "\x1b[32m" : "", done, colours ? "\x1b[0m" : "", rest);
}

}  // namespace

namespace {

std::string score_of(const ProgressFigures& figures) {
  return "  " + (figures.scores.empty() ? fmt::format("top-1 {:.1f} %", 100 * figures.top1)
                                        : say_scores(figures.scores));
}

}  // namespace

std::string progress_text(const ProgressFigures& figures) {
  return fmt::format("epoch {}/{}  step {}/{}  loss {:.4f}{}  lr {:.4g}  {:.0f} images/s{}",
                     figures.epoch, figures.epochs, figures.step, figures.steps, figures.loss,
                     score_of(figures), figures.lr, figures.images_per_s, time_left(figures));
}

std::string progress_bar(const ProgressFigures& figures, int columns, bool colours) {
  const int room = std::clamp(columns, narrowest, widest) - 1;
  const double share = share_done(figures);
  const std::string head = fmt::format("epoch {}/{} ", figures.epoch, figures.epochs);
  const std::string percent = fmt::format(" {:3.0f} %", 100 * share), left = time_left(figures);
  int used = static_cast<int>(head.size() + percent.size() + left.size()) + shortest_bar;
  // In the order of their places; the number says which finds room first.
  struct Figure {
    int rank;
    std::string text;
    bool shown = false;
  };
  std::array<Figure, 5> shown{{{4, fmt::format("  step {}/{}", figures.step, figures.steps)},
                               {1, fmt::format("  loss {:.4f}", figures.loss)},
                               {3, score_of(figures)},
                               {5, fmt::format("  lr {:.4g}", figures.lr)},
                               {2, fmt::format("  {:.0f} images/s", figures.images_per_s)}}};
  for (int rank = 1; rank <= 5; ++rank)
    for (Figure& figure : shown) {
      const int width = static_cast<int>(figure.text.size());
      if (figure.rank != rank || used + width > room) continue;
      figure.shown = true;
      used += width;
    }
  const int length = std::min(longest_bar, shortest_bar + std::max(0, room - used));
  std::string line = head + bar(share, length, colours) + percent;
  for (const Figure& figure : shown)
    if (figure.shown) line += figure.text;
  return line + left;
}

}  // namespace lockstep::observe
