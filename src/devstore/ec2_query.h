#pragma once

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millrace {

/// Returns an error of EC2: its code and HTTP status, as an S3Error.
absl::Status Ec2Fault(std::string_view code, std::string_view message, int http_status = 400);
/// Returns an error with a message that is formatted, and the HTTP status 400.
template <typename... Args>
absl::Status Ec2Refusal(std::string_view code, fmt::format_string<Args...> message, Args&&... args) {
  return Ec2Fault(code, fmt::format(message, std::forward<Args>(args)...));
}

/// This is a call of the EC2 Query API, as its body says it.
class Ec2Query {
 public:
  /// Returns InvalidParameterValue for a body that is not a form, MissingAction, and an error for another version than
  /// 2016-11-15.
  static absl::StatusOr<Ec2Query> Parse(std::string_view body);

  const std::string& action() const { return action_; }
  /// Returns "" if it is absent.
  std::string Value(const std::string& name) const;
  bool Has(const std::string& name) const { return values_.contains(name); }
  /// Returns NAME.1, NAME.2, ...
  std::vector<std::string> List(const std::string& name) const;
  /// Returns PREFIXTag.1.Key and .Value, ...
  std::map<std::string, std::string> Tags(const std::string& prefix) const;
  /// UnknownParameter for one whose name, without numbers, is none of these; MissingParameter for those of `required`.
  absl::Status CheckNames(const std::vector<std::string_view>& required,
                          const std::vector<std::string_view>& others) const;

  struct Filter {
    std::string name;
    std::vector<std::string> values;  // * stands for any characters
  };
  std::vector<Filter> Filters() const;

 private:
  std::string action_;
  std::map<std::string, std::string> values_;
};

/// Holds the values of the described objects, by the names of filters.
using FilterValues = std::multimap<std::string, std::string>;
/// Adds those of tags.
void AddTagValues(const std::map<std::string, std::string>& tags, FilterValues& values);
bool PassesFilters(const std::vector<Ec2Query::Filter>& filters, const FilterValues& values);

/// Returns InvalidParameterValue for a filter that is neither one of these nor one of tags.
absl::Status CheckFilters(const std::vector<Ec2Query::Filter>& filters, const std::vector<std::string_view>& known);

/// Returns true if a description of these ids shows that one. A description without ids is of all.
bool IsAskedFor(const std::vector<std::string>& ids, const std::string& id);

}  // namespace millrace
