#include "job/metrics_file.h"

#include <memory>
#include <stop_token>
#include <utility>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/long_task.h"

namespace millrace {

MetricsFile::MetricsFile(std::string path, const RunMetrics& metrics, std::function<void(const std::string& text)> say,
                         std::chrono::duration<double> every)
    : path_(std::move(path)), metrics_(metrics), say_(std::move(say)) {
  if (path_.empty()) return;
  // Errors are said at events alone, not every time.
  renewal_ = std::jthread([this, every](const std::stop_token& stop) {
    while (SleepUnlessStopped(every, stop)) TryWrite().IgnoreError();
  });
}

void MetricsFile::Write() {
  if (path_.empty()) return;
  if (const absl::Status wrote = TryWrite(); !wrote.ok()) say_(std::string(ToStd(wrote.message())));
}

absl::Status MetricsFile::TryWrite() {
  // For the user of a node exporter, which is another one, whatever the umask is.
  constexpr mode_t kForAll = 0644;
  const std::lock_guard lock(mutex_);
  MetricsText text;
  metrics_.Collect(&text);
  ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path_, path_, Durability::kUnsynced, kForAll));
  RETURN_IF_ERROR(file->SetMode(kForAll));
  RETURN_IF_ERROR(file->Append(AsBytes(text.Text())));
  return file->Commit(/*only_if_absent=*/false).status();
}

}  // namespace millrace
