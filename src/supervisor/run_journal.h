#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// Represents the events of a job, for programs to read: a file to which each event adds one line of JSON. Every line
/// has `time`, `run`, `host` and `event`; `run` distinguishes the runs that write to one file. Several runs may write
/// to one file on a local file system.
class RunJournal {
 public:
  using Value = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
  using Field = std::pair<std::string_view, Value>;
  using Fields = std::vector<Field>;

  /// Opens `path`, or makes it.
  static absl::StatusOr<std::unique_ptr<RunJournal>> Open(const std::string& path);

  /// `name` is not one of those above. An error comes once; later lines are tried all the same.
  absl::Status Write(std::string_view event, const Fields& fields);

 private:
  RunJournal(std::string path, UniqueFd fd);

  const std::string path_;
  const UniqueFd fd_;
  const std::string run_;
  const std::string host_;
  bool failed_ = false;
};

}  // namespace millrace
