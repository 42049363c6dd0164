#include "job/metrics_file.h"

#include <fmt/format.h>
#include <signal.h>

#include <memory>
#include <stop_token>
#include <system_error>
#include <utility>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/long_task.h"

namespace millrace {

MetricsFile::MetricsFile(std::string path, const RunMetrics& metrics, std::function<void(const std::string& text)> say,
                         std::chrono::duration<double> every)
    : path_(std::move(path)), metrics_(metrics), say_(std::move(say)) {
  if (path_.empty()) return;
  // All signals are those of the thread that runs the job, which this one would take from it.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    // Errors are said at events alone, not every time.
    renewal_ = std::jthread([this, every](const std::stop_token& stop) {
      while (SleepUnlessStopped(every, stop)) TryWrite().IgnoreError();
    });
  } catch (const std::system_error& error) {  // no thread: the file is written at events
    say_(fmt::format("{}: is not renewed while the job runs: {}", path_, error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void MetricsFile::Write() {
  if (path_.empty()) return;
  if (const absl::Status wrote = TryWrite(); !wrote.ok()) say_(std::string(ToStd(wrote.message())));
}

absl::Status MetricsFile::TryWrite() {
  // The file is readable for the user of a node exporter, which is another one, whatever the umask is.
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
