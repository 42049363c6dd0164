#include "devstore/ec2_query.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/str_replace.h"
#include "aws/sigv4.h"
#include "devstore/s3_error.h"

namespace millrace {

namespace {

// Turns "Filter.1.Value.2" into "Filter.Value".
std::string WithoutNumbers(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::string_view item = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), item.size() + 1));
    const bool number = !item.empty() && item.find_first_not_of("0123456789") == std::string_view::npos;
    if (!number) out.append(out.empty() ? "" : ".").append(item);
  }
  return out;
}

/// Returns true if a value of EC2 is that of a filter, where * stands for any characters.
bool MatchesFilterValue(std::string_view pattern, std::string_view value) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == value;
  if (!value.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t at = star; at <= value.size(); ++at) {
    if (MatchesFilterValue(rest, value.substr(at))) return true;
  }
  return false;
}

}  // namespace

absl::Status Ec2Fault(std::string_view code, std::string_view message, int http_status) {
  return S3Error({code, http_status}, message);
}

absl::StatusOr<Ec2Query> Ec2Query::Parse(std::string_view body) {
  const std::string spaced = absl::StrReplaceAll(ToAbsl(body), {{"+", "%20"}});
  const auto parameters = ParseQuery(spaced);
  if (!parameters) return Ec2Fault("InvalidParameterValue", "The request body is not a form.");
  Ec2Query form;
  for (const auto& [name, value] : *parameters) {
    if (!form.values_.emplace(name, value).second)
      return Ec2Refusal("InvalidParameterCombination", "The parameter {} occurs twice.", name);
  }
  form.action_ = form.Value("Action");
  if (form.action_.empty()) return Ec2Fault("MissingAction", "The request must contain the parameter Action.");
  if (form.Value("Version") != "2016-11-15")
    return Ec2Refusal("NoSuchVersion", "The API version {} is not known.", form.Value("Version"));
  return form;
}

std::string Ec2Query::Value(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? std::string() : found->second;
}

std::vector<std::string> Ec2Query::List(const std::string& name) const {
  std::vector<std::string> values;
  for (int i = 1; Has(fmt::format("{}.{}", name, i)); ++i) values.push_back(Value(fmt::format("{}.{}", name, i)));
  return values;
}

std::map<std::string, std::string> Ec2Query::Tags(const std::string& prefix) const {
  std::map<std::string, std::string> tags;
  for (int i = 1; Has(fmt::format("{}Tag.{}.Key", prefix, i)); ++i)
    tags[Value(fmt::format("{}Tag.{}.Key", prefix, i))] = Value(fmt::format("{}Tag.{}.Value", prefix, i));
  return tags;
}

absl::Status Ec2Query::CheckNames(const std::vector<std::string_view>& required,
                                  const std::vector<std::string_view>& others) const {
  for (const auto& [name, value] : values_) {
    const std::string plain = WithoutNumbers(name);
    const auto is = [&plain](std::string_view known) { return known == plain; };
    if (plain == "Action" || plain == "Version") continue;
    if (std::any_of(required.begin(), required.end(), is) || std::any_of(others.begin(), others.end(), is)) continue;
    return Ec2Refusal("UnknownParameter", "The parameter {} is not recognized", name);
  }
  for (const std::string_view name : required) {
    if (!Has(std::string(name)) && !Has(fmt::format("{}.1", name)))
      return Ec2Refusal("MissingParameter", "The request must contain the parameter {}", name);
  }
  return absl::OkStatus();
}

std::vector<Ec2Query::Filter> Ec2Query::Filters() const {
  std::vector<Filter> filters;
  for (int i = 1; Has(fmt::format("Filter.{}.Name", i)); ++i)
    filters.push_back({Value(fmt::format("Filter.{}.Name", i)), List(fmt::format("Filter.{}.Value", i))});
  return filters;
}

bool PassesFilters(const std::vector<Ec2Query::Filter>& filters, const FilterValues& values) {
  return std::all_of(filters.begin(), filters.end(), [&values](const Ec2Query::Filter& filter) {
    const auto [begin, end] = values.equal_range(filter.name);
    return std::any_of(begin, end, [&filter](const auto& entry) {
      return std::any_of(filter.values.begin(), filter.values.end(),
                         [&entry](const std::string& pattern) { return MatchesFilterValue(pattern, entry.second); });
    });
  });
}

absl::Status CheckFilters(const std::vector<Ec2Query::Filter>& filters, const std::vector<std::string_view>& known) {
  for (const Ec2Query::Filter& filter : filters) {
    if (filter.name.starts_with("tag:") || filter.name == "tag-key") continue;
    if (std::find(known.begin(), known.end(), filter.name) == known.end())
      return Ec2Refusal("InvalidParameterValue", "The filter '{}' is invalid", filter.name);
  }
  return absl::OkStatus();
}

void AddTagValues(const std::map<std::string, std::string>& tags, FilterValues& values) {
  for (const auto& [key, value] : tags) {
    values.emplace("tag:" + key, value);
    values.emplace("tag-key", key);
  }
}

bool IsAskedFor(const std::vector<std::string>& ids, const std::string& id) {
  return ids.empty() || std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace millrace
