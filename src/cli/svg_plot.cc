#include "cli/svg_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace millrace::cli {

namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 300;
constexpr double kLeft = 72;
constexpr double kRight = 20;
constexpr double kTop = 16;
constexpr double kBottom = 48;
constexpr double kNameRow = 18;  // of the names of lines, two in a row
constexpr double kShareWidth = 640;

/// A round step of which four to ten make up `range`.
double TickStep(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

/// 12000 as "12,000", 0.25 as "0.25".
std::string TickText(double value) {
  if (value != std::floor(value) || value >= 1e15) return fmt::format("{:.3g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

/// From values to places in the drawing.
class PlotScale {
 public:
  explicit PlotScale(const LinePlot& plot) : log_(plot.log_x) {
    for (const PlotLine& line : plot.lines) {
      for (const PlotPoint& point : line.points) top_ = std::max({top_, point.y, point.most});
    }
    for (const PlotReference& line : plot.references) top_ = std::max(top_, line.y);
    if (top_ <= 0) top_ = 1;
    step_ = TickStep(top_);
    top_ = std::ceil(top_ * 1.02 / step_) * step_;
    first_ = Place(plot.lines.front().points.front().x);
    last_ = Place(plot.lines.front().points.back().x);
  }

  double X(double value) const {
    const double inner = kWidth - kLeft - kRight;
    if (last_ <= first_) return kLeft + inner / 2;
    constexpr double kMargin = 0.06;  // points do not touch the axes
    return kLeft + inner * (kMargin + (1 - 2 * kMargin) * (Place(value) - first_) / (last_ - first_));
  }
  double Y(double value) const { return kHeight - kBottom - (kHeight - kTop - kBottom) * value / top_; }
  double step() const { return step_; }
  double top() const { return top_; }

 private:
  double Place(double x) const { return log_ ? std::log2(std::max(x, 1e-9)) : x; }

  const bool log_;
  double top_ = 0;
  double step_ = 1;
  double first_ = 0;
  double last_ = 0;
};

std::string Frame(const LinePlot& plot, const PlotScale& scale) {
  std::string svg;
  for (double y = 0; y <= scale.top() * 1.0001; y += scale.step()) {
    svg += fmt::format(R"(<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft, kWidth - kRight,
                       scale.Y(y), scale.Y(y));
    svg += fmt::format(R"(<text class="axis" x="{}" y="{:.1f}" text-anchor="end">{}</text>)", kLeft - 8, scale.Y(y) + 4,
                       TickText(y));
  }
  for (const PlotPoint& point : plot.lines.front().points) {
    if (point.x_text.empty()) continue;
    svg += fmt::format(R"(<text class="axis" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)", scale.X(point.x),
                       kHeight - kBottom + 18, EscapeMarkup(point.x_text));
  }
  svg += fmt::format(R"(<text class="axis" x="{}" y="{}" text-anchor="middle">{}</text>)",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, EscapeMarkup(plot.x_name));
  const double middle = (kTop + kHeight - kBottom) / 2;
  svg += fmt::format(
      R"svg(<text class="axis" x="14" y="{}" text-anchor="middle" transform="rotate(-90 14 {})">{}</text>)svg", middle,
      middle, EscapeMarkup(plot.y_name));
  return svg;
}

std::string DrawLine(const PlotLine& line, const PlotScale& scale, size_t number) {
  std::string path;
  for (const PlotPoint& point : line.points) {
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", scale.X(point.x), scale.Y(point.y));
  }
  std::string svg = fmt::format(R"(<g class="line-{}">)", number);
  if (line.points.size() > 1) svg += fmt::format(R"(<polyline points="{}"/>)", path);
  for (const PlotPoint& point : line.points) {
    if (point.most > point.least) {
      svg += fmt::format(R"(<line x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)", scale.X(point.x),
                         scale.X(point.x), scale.Y(point.least), scale.Y(point.most));
    }
    if (point.x_text.empty() && line.points.size() > 20) continue;  // a dense curve needs no marks
    svg += fmt::format(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4.5"><title>{}: {:.4g}</title></circle>)",
                       scale.X(point.x), scale.Y(point.y), EscapeMarkup(point.x_text), point.y);
  }
  return svg + "</g>";
}

/// Above the frame, where no line is.
std::string DrawName(const PlotLine& line, size_t number, double names_height) {
  const double x = number % 2 == 0 ? kLeft : (kLeft + kWidth - kRight) / 2;
  const double y = kNameRow * (static_cast<double>(number / 2) + 0.5) - names_height;
  return fmt::format(R"(<g class="line-{0}"><line x1="{1}" x2="{2}" y1="{3}" y2="{3}"/></g>)"
                     R"(<text class="line-{0}" x="{4}" y="{5}">{6}</text>)",
                     number, x, x + 22, y, x + 30, y + 4, EscapeMarkup(line.name));
}

}  // namespace

std::string EscapeMarkup(std::string_view text) {
  std::string escaped;
  for (size_t at = 0; at < text.size();) {
    const size_t length = Utf8SequenceLength(text.substr(at));
    if (length != 1) {  // not ASCII: as it is, or U+FFFD if it is not UTF-8 at all
      escaped += length == 0 ? "\xef\xbf\xbd" : text.substr(at, length);
      at += std::max<size_t>(1, length);
      continue;
    }
    const char c = text[at++];
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        // No control characters: XML has none.
        escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return escaped;
}

std::string DrawLines(const LinePlot& plot) {
  const PlotScale scale(plot);
  const size_t named = plot.lines.size() < 2 ? 0 : plot.lines.size();
  const double names_height = kNameRow * static_cast<double>((named + 1) / 2);
  std::string svg = fmt::format(R"(<svg viewBox="0 {} {} {}" role="img" aria-label="{}">)", 0 - names_height, kWidth,
                                kHeight + names_height, EscapeMarkup(plot.title));
  svg += Frame(plot, scale);
  for (const PlotReference& line : plot.references) {
    svg += fmt::format(R"(<line class="reference" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>)", kLeft, kWidth - kRight,
                       scale.Y(line.y), scale.Y(line.y));
    svg += fmt::format(R"(<text class="reference" x="{}" y="{:.1f}">{}</text>)", kLeft + 6, scale.Y(line.y) - 5,
                       EscapeMarkup(line.text));
  }
  for (size_t i = 0; i < plot.lines.size(); ++i) svg += DrawLine(plot.lines[i], scale, i);
  for (size_t i = 0; i < named; ++i) svg += DrawName(plot.lines[i], i, names_height);
  return svg + "</svg>\n";
}

std::string DrawBars(std::string_view title, const std::vector<PlotBar>& bars) {
  constexpr double kNames = 140;  // to the left of the bars
  constexpr double kValues = 70;  // to the right of the longest
  constexpr double kRow = 22;
  double most = 0;
  for (const PlotBar& bar : bars) most = std::max({most, bar.value, bar.most});
  const double scale = most > 0 ? (kWidth - kNames - kValues) / most : 0;
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {} {}" role="img" aria-label="{}">)", kWidth,
                                kRow * static_cast<double>(bars.size()), EscapeMarkup(title));
  double y = 0;
  for (const PlotBar& bar : bars) {
    const double middle = y + kRow / 2;
    svg += fmt::format(R"(<text class="axis" x="{}" y="{}" text-anchor="end">{}</text>)", kNames - 8, middle + 4,
                       EscapeMarkup(bar.name));
    svg += fmt::format(R"(<rect class="{}" x="{}" y="{}" width="{:.1f}" height="{}"><title>{}: {}</title></rect>)",
                       bar.is_ours ? "ours" : "bar", kNames, y + 3, scale * bar.value, kRow - 6, EscapeMarkup(bar.name),
                       EscapeMarkup(bar.text));
    if (bar.most > bar.least) {
      svg += fmt::format(R"(<line class="spread" x1="{:.1f}" x2="{:.1f}" y1="{}" y2="{}"/>)",
                         kNames + scale * bar.least, kNames + scale * bar.most, middle, middle);
    }
    svg += fmt::format(R"(<text class="axis" x="{:.1f}" y="{}">{}</text>)",
                       kNames + scale * std::max(bar.value, bar.most) + 6, middle + 4, EscapeMarkup(bar.text));
    y += kRow;
  }
  return svg + "</svg>\n";
}

std::string DrawShares(std::string_view title, const std::vector<std::pair<std::string, double>>& shares) {
  double all = 0;
  for (const auto& [name, value] : shares) all += value;
  std::string svg =
      fmt::format(R"(<svg viewBox="0 0 {} 44" role="img" aria-label="{}">)", kShareWidth, EscapeMarkup(title));
  double x = 0;
  for (size_t i = 0; i < shares.size() && all > 0; ++i) {
    const double width = kShareWidth * shares[i].second / all;
    svg += fmt::format(R"(<rect class="share-{}" x="{:.1f}" y="0" width="{:.1f}" height="44"><title>{}</title></rect>)",
                       i % 9, x, std::max(0.0, width - 1), EscapeMarkup(shares[i].first));
    const auto room = static_cast<size_t>(std::max(0.0, width - 12) / 7);
    const std::string text = fmt::format("{} {:.0f} %", shares[i].first, 100 * shares[i].second / all);
    if (text.size() <= room) {
      svg += fmt::format(R"(<text class="share" x="{:.1f}" y="27">{}</text>)", x + 8, EscapeMarkup(text));
    }
    x += width;
  }
  return svg + "</svg>\n";
}

}  // namespace millrace::cli
