#include "job/job_templates.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace millrace {

extern const char* const kJobTemplateNames[];
extern const char* const kJobTemplateTexts[];

namespace {

constexpr std::string_view kOpen = "{{";
constexpr std::string_view kClose = "}}";

std::optional<std::string> PlaceholderName(const TemplateValues& node) {
  if (!node.is_string()) return std::nullopt;
  const std::string& text = node.get_ref<const std::string&>();
  if (!text.starts_with(kOpen) || text.find(kClose) != text.size() - kClose.size()) return std::nullopt;
  return text.substr(kOpen.size(), text.size() - kOpen.size() - kClose.size());
}

std::optional<TemplateValues> FillNode(const TemplateValues& node, const TemplateValues& values, bool in_list) {
  if (const std::optional<std::string> name = PlaceholderName(node)) {
    const auto value = values.find(*name);
    return value == values.end() ? std::nullopt : std::optional(*value);
  }
  if (node.is_string()) return FillText(node.get_ref<const std::string&>(), values);
  TemplateValues filled = node;
  if (node.is_object()) {
    filled.clear();
    for (const auto& [key, member] : node.items()) {
      if (std::optional<TemplateValues> value = FillNode(member, values, /*in_list=*/false)) {
        filled[key] = *std::move(value);
      } else if (in_list) {
        return std::nullopt;
      }
    }
  } else if (node.is_array()) {
    filled.clear();
    for (const TemplateValues& element : node) {
      std::optional<TemplateValues> value = FillNode(element, values, /*in_list=*/true);
      if (value && value->is_array() && element.is_string()) {
        filled.insert(filled.end(), value->begin(), value->end());
      } else if (value) {
        filled.push_back(*std::move(value));
      }
    }
  }
  return filled;
}

}  // namespace

std::string_view JobTemplate(std::string_view name) {
  for (size_t i = 0; kJobTemplateNames[i] != nullptr; ++i) {
    if (name == kJobTemplateNames[i]) return kJobTemplateTexts[i];
  }
  return "";
}

std::string FillText(std::string_view text, const TemplateValues& values) {
  std::string filled;
  for (;;) {
    const size_t open = text.find(kOpen);
    const size_t close = text.find(kClose, open);
    if (open == text.npos || close == text.npos) return filled.append(text);
    filled.append(text.substr(0, open));
    const std::string_view mark = text.substr(open, close + kClose.size() - open);
    const bool repeats = mark[kOpen.size()] == '#';
    const std::string name(text.substr(open + kOpen.size() + repeats, close - open - kOpen.size() - repeats));
    text.remove_prefix(close + kClose.size());
    const auto value = values.find(name);
    if (value == values.end()) {
      filled.append(mark);
    } else if (repeats) {
      const std::string end = "{{/" + name + "}}";
      const std::string_view inside = text.substr(0, text.find(end));
      for (const TemplateValues& item : *value) {
        TemplateValues all = values;
        all.update(item);
        filled += FillText(inside, all);
      }
      text.remove_prefix(std::min(text.size(), inside.size() + end.size()));
    } else {
      filled += value->is_string() ? value->get<std::string>() : value->dump();
    }
  }
}

TemplateValues FillJson(std::string_view text, const TemplateValues& values) {
  return FillNode(TemplateValues::parse(text, nullptr, false), values, /*in_list=*/false).value_or(nullptr);
}

std::string JsonFile(const TemplateValues& json) {
  return json.dump(2, ' ', false, TemplateValues::error_handler_t::replace) + "\n";
}

}  // namespace millrace
