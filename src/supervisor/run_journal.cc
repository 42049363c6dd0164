#include "supervisor/run_journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>

#include "absl/time/clock.h"
#include "base/crypto.h"
#include "base/errno_status.h"
#include "base/process.h"

namespace millrace {

RunJournal::RunJournal(std::string path, UniqueFd fd)
    : path_(std::move(path)), fd_(std::move(fd)), run_(RandomHex(6)), host_(HostName()) {}

absl::StatusOr<std::unique_ptr<RunJournal>> RunJournal::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return ErrnoStatus(errno, path, "opening the journal");
  return std::unique_ptr<RunJournal>(new RunJournal(path, std::move(fd)));
}

absl::Status RunJournal::Write(std::string_view event, const std::vector<Field>& fields) {
  nlohmann::ordered_json json = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())},
                                 {"run", run_},
                                 {"host", host_},
                                 {"event", event}};
  for (const Field& field : fields)
    std::visit([&](const auto& one) { json[std::string(field.first)] = one; }, field.second);
  const std::string line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  // A line is written in one call, so that lines of several runs do not mix.
  const ssize_t wrote = write(fd_.get(), line.data(), line.size());
  if (wrote == static_cast<ssize_t>(line.size()) || failed_) return absl::OkStatus();
  failed_ = true;
  return ErrnoStatus(wrote < 0 ? errno : ENOSPC, path_, "writing to the journal");
}

}  // namespace millrace
