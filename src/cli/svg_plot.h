#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Plots as inline SVG, for pages that need nothing else. Pure. Colours and fonts come from the page's style: classes
/// axis, grid, line-0 to line-3 (of lines, spreads, marks and names), reference, bar, ours (a bar), spread, share, and
/// share-0 to share-8.

namespace millrace::cli {

/// Text for HTML and XML, in elements and in attributes.
std::string EscapeMarkup(std::string_view text);

struct PlotPoint {
  double x = 0;
  double y = 0;
  double least = 0;  // of the repeats; the same as most: no bar is drawn
  double most = 0;
  std::string x_text;  // how its x is written below the axis; "": it is not
};

/// A horizontal line to compare with.
struct PlotReference {
  double y = 0;
  std::string text;
};

struct PlotLine {
  std::string name;               // of some thirty characters; shown if there are several lines
  std::vector<PlotPoint> points;  // ascending in x; at least one
};

struct LinePlot {
  std::string title;  // read out in place of the plot
  std::string x_name;
  std::string y_name;
  bool log_x = false;           // then all x are greater than 0
  std::vector<PlotLine> lines;  // over the x of the first one, or over some of them; at most four
  std::vector<PlotReference> references;
};
/// From zero to what is there. At least one line.
std::string DrawLines(const LinePlot& plot);

/// A bar with its name before it, and its value behind it.
struct PlotBar {
  std::string name;  // of some twenty characters
  double value = 0;
  double least = 0;  // of the repeats; the same as most: it is not drawn
  double most = 0;
  std::string text;  // of the value
  bool is_ours = false;
};
/// From zero to what is there, top down. At least one bar.
std::string DrawBars(std::string_view title, const std::vector<PlotBar>& bars);

/// One bar that is divided by shares, of which those above one percent have their names.
std::string DrawShares(std::string_view title, const std::vector<std::pair<std::string, double>>& shares);

}  // namespace millrace::cli
