#include "net/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/utf8.h"

namespace millrace {

namespace {

/// Prometheus refuses a whole page for one byte that is not UTF-8.
void AppendLabelValue(std::string_view value, std::string* out) {
  while (!value.empty()) {
    const size_t length = Utf8SequenceLength(value);
    if (length == 0) {
      *out += "\xEF\xBF\xBD";
      value.remove_prefix(1);
      continue;
    }
    switch (value.front()) {
      case '\\':
        *out += "\\\\";
        break;
      case '"':
        *out += "\\\"";
        break;
      case '\n':
        *out += "\\n";
        break;
      default:
        *out += value.substr(0, length);
    }
    value.remove_prefix(length);
  }
}

std::string ValueText(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

bool IsNameChar(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':' || (!first && c >= '0' && c <= '9');
}

/// Holds the rest of a line, which is taken from the front.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool Take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void SkipBlanks() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  std::string TakeName() {
    size_t length = 0;
    while (length < rest_.size() && IsNameChar(rest_[length], length == 0)) ++length;
    std::string name(rest_.substr(0, length));
    rest_.remove_prefix(length);
    return name;
  }
  bool TakeQuoted(std::string* value) {
    if (!Take('"')) return false;
    for (; !rest_.empty(); rest_.remove_prefix(1)) {
      char c = rest_.front();
      if (c == '"') return Take('"');
      if (c == '\\') {
        rest_.remove_prefix(1);
        if (rest_.empty()) return false;
        c = rest_.front() == 'n' ? '\n' : rest_.front();
      }
      *value += c;
    }
    return false;
  }
  bool TakeNumber(double* value) {
    const std::string_view word = rest_.substr(0, rest_.find_first_of(" \t"));
    rest_.remove_prefix(word.size());
    if (word == "NaN") {
      *value = std::numeric_limits<double>::quiet_NaN();
      return true;
    }
    if (word == "+Inf" || word == "-Inf") {
      *value = (word[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
      return true;
    }
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
    return error == std::errc() && end == word.data() + word.size() && !word.empty();
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool ParseLine(std::string_view line, MetricSample* sample) {
  LineReader reader(line);
  sample->name = reader.TakeName();
  if (sample->name.empty()) return false;
  reader.SkipBlanks();
  if (reader.Take('{')) {
    for (;;) {
      reader.SkipBlanks();
      if (reader.Take('}')) break;
      const std::string label = reader.TakeName();
      reader.SkipBlanks();
      std::string value;
      if (label.empty() || !reader.Take('=')) return false;
      reader.SkipBlanks();
      if (!reader.TakeQuoted(&value)) return false;
      sample->labels[label] = std::move(value);
      reader.SkipBlanks();
      if (!reader.Take(',')) {
        if (!reader.Take('}')) return false;
        break;
      }
    }
  }
  reader.SkipBlanks();
  if (!reader.TakeNumber(&sample->value)) return false;
  reader.SkipBlanks();
  double time = 0;
  if (!reader.empty() && !reader.TakeNumber(&time)) return false;
  reader.SkipBlanks();
  return reader.empty();
}

}  // namespace

void MetricsText::Counter(std::string_view name, std::string_view help, const MetricLabels& labels, double value) {
  Add(name, help, "counter", labels, value);
}

void MetricsText::Gauge(std::string_view name, std::string_view help, const MetricLabels& labels, double value) {
  Add(name, help, "gauge", labels, value);
}

void MetricsText::Add(std::string_view name, std::string_view help, const char* type, const MetricLabels& labels,
                      double value) {
  auto family = families_.find(name);
  if (family == families_.end()) {
    family = families_.emplace(name, Family{.help = std::string(help), .type = type, .values = {}}).first;
  }
  std::string written;
  for (const auto& [label, text] : labels) {
    written += written.empty() ? "{" : ",";
    written += label;
    written += "=\"";
    AppendLabelValue(text, &written);
    written += '"';
  }
  if (!written.empty()) written += '}';
  family->second.values[written] += value;
}

std::string MetricsText::Text() const {
  std::string text;
  for (const auto& [name, family] : families_) {
    text += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, family.type);
    for (const auto& [labels, value] : family.values) text += fmt::format("{}{} {}\n", name, labels, ValueText(value));
  }
  return text;
}

absl::StatusOr<std::vector<MetricSample>> ParseMetrics(std::string_view text) {
  std::vector<MetricSample> samples;
  for (uint64_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.front() == '#') continue;
    MetricSample sample;
    if (!ParseLine(line, &sample)) {
      return absl::InvalidArgumentError(fmt::format("line {} is not a metric in Prometheus's text format", number));
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace millrace
