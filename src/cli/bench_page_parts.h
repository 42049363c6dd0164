#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "cli/bench_report.h"
#include "cli/svg_plot.h"

/// What sections of the page of `millrace bench` are made of.

namespace millrace::cli {

inline std::string Cell(const std::string& text) {
  return fmt::format("<td>{}</td>", EscapeMarkup(text));
}

inline std::string Row(const std::vector<std::string>& cells, const char* element = "td") {
  std::string row = "<tr>";
  for (const std::string& cell : cells) row += fmt::format("<{}>{}</{}>", element, EscapeMarkup(cell), element);
  return row + "</tr>\n";
}

inline std::string WithSpread(const Spread& spread) {
  if (spread.least == spread.most) return ShortNumber(spread.median);
  return fmt::format("{} ({} to {})", ShortNumber(spread.median), ShortNumber(spread.least), ShortNumber(spread.most));
}

}  // namespace millrace::cli
