#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dataset_handle.h"
#include "pipeline/cache_forecast.h"
#include "pipeline/loader.h"
#include "pipeline/program_waits.h"
#include "service/service_source.h"
#include "staged_handle.h"

namespace millrace::python {

/// Holds the counts of Loader.report(): those of the pipeline, and those of this side of it.
struct LoaderCounts : LoaderReport {
  /// This is the CPU time of the threads that made floats of pixels when batches were handed over.
  double conversion_cpu_seconds = 0;
};

/// _core.Loader: a Loader with its data sets, fit for Python's threads, signals and forks. Members are called with the
/// GIL held, from any thread, and release it while they wait.
class LoaderHandle {
 public:
  /// Reads nothing yet. Several data sets are mixed. With `tokens`, what is fed are rows of their tokens, which may
  /// have to be made: Python's signal handlers run meanwhile.
  LoaderHandle(std::vector<std::shared_ptr<DatasetHandle>> datasets, LoaderOptions options,
               const std::optional<TokenOptions>& tokens, std::optional<ServiceOptions> workers);
  /// Makes one whose first epoch is staged; its first stage is opened now, interruptibly.
  LoaderHandle(std::shared_ptr<StagedHandle> staged, LoaderOptions options);
  /// Returns another loader for the same data with the same options, at the start of the first epoch.
  explicit LoaderHandle(const LoaderHandle& other);
  ~LoaderHandle();

  /// Returns the next batch, none if it would be of another epoch; or nothing if it has not come within 50 ms. Does not
  /// look at signals. Several threads wait for their turns; the last batch of the epoch may go to another one
  /// meanwhile.
  std::optional<std::optional<Batch>> Poll(uint64_t epoch);

  /// Returns the position at which a loader begins that is sent to `position`: the same, or the start of the next epoch
  /// if the rest of this one is dropped. Throws what Begin throws.
  std::string Settled(const std::string& position);
  /// Stops reading, and goes to `position`. Batches of the epochs before `epochs` are delivered from there; 0: without
  /// end. The report continues from `counts`; null: from nothing. A position that is refused changes nothing.
  void Begin(const std::string& position, uint64_t epochs, const std::shared_ptr<LoaderCounts>& counts);
  /// Begins to read, unless it reads already. Poll does this by itself.
  void Start();
  /// Stops reading, and returns the memory. Reading can begin again after the last batch that was received.
  void Stop();

  /// Stops the threads' work for this loader. The report stays; batches that were received stay valid. May be called
  /// twice.
  void Close();
  /// The end of the interpreter calls this for all loaders of this process that are still open.
  static void CloseAll();

  LoaderCounts Report();
  /// Counts CPU time that a conversion took.
  void AddConversion(std::chrono::nanoseconds cpu_time) { conversion_ns_ += cpu_time.count(); }
  /// Batches pass through threads of Python that do `work` on them: metrics say what the program waits for. To be
  /// called before it is read.
  void CountProgramWaits(const std::string& work) { program_ = std::make_shared<ProgramWaits>(work); }
  /// Returns those waits; null without CountProgramWaits.
  ProgramWaits* program() { return program_.get(); }
  /// Returns the cache's likely contribution; nullopt without a cache, and if it is not known. It is computed at the
  /// first call.
  const std::optional<CacheForecast>& Forecast();
  /// Returns the epoch of the next batch.
  uint64_t epoch();
  /// Returns 0 if they are not known: before the index of a staged loader is whole. Waits for nothing.
  uint64_t steps_per_epoch();
  /// Returns the steps of an epoch of a staged loader, if other programs have counted the samples of its shards; else
  /// 0.
  uint64_t counted_steps() const;
  /// Returns about as many: those, or the number that the first stage lets expect.
  uint64_t estimated_steps();

  const LoaderOptions& options() const { return options_; }
  const Source& source() const { return source_; }
  const std::vector<BatchShape>& shapes() const { return shapes_; }
  bool with_digest() const { return options_.digest != DigestOf::kNone; }
  const std::shared_ptr<Process>& process() const {
    return staged_ != nullptr ? staged_->process() : datasets_.front()->process();
  }

 private:
  void CheckOwnProcess() const { python::CheckOwnProcess(maker_, "Loader"); }
  /// Holds what one look for the next batch has found.
  struct Look {
    bool closed = false;
    bool ready = false;  // else there was nothing for a while
    absl::StatusOr<std::optional<Batch>> next = std::nullopt;
  };

  // These are all called without the GIL.
  Look LookForNext(uint64_t epoch);
  std::unique_lock<std::mutex> LockUnused();
  absl::StatusOr<std::unique_ptr<BatchSource>> Make(const LoaderOptions& options) const;
  absl::Status StartLocked();  // mutex_ held, as for the next ones
  void StopLocked();
  LoaderCounts ReportLocked() const;
  void Describe();
  void CountFirstStage();
  LoaderCounts BlankReport(const Position& start) const;

  const pid_t maker_ = getpid();
  const std::vector<std::shared_ptr<DatasetHandle>> datasets_;
  const std::shared_ptr<StagedHandle> staged_;  // null: the data sets are open
  const std::optional<StagedFacts> facts_;      // with staged_
  const Source source_;                         // of a staged loader, its first stage
  const LoaderOptions options_;
  const std::optional<ServiceOptions> workers_;
  uint64_t steps_per_epoch_ = 0;
  std::vector<BatchShape> shapes_;

  std::mutex mutex_;  // never locked with the GIL held, nor while waiting for a batch
  std::condition_variable unused_;
  bool in_use_ = false;  // by a thread that waits for a batch: the loader stays
  int changing_ = 0;     // threads that are about to close or restart the loader: they go first
  bool closed_ = false;
  uint64_t epochs_;  // that are delivered, counted from the first one; 0: without end
  std::shared_ptr<ProgramWaits> program_;
  ProcessLocal<BatchSource> loader_;           // null while nothing is read
  ProcessLocal<LoaderTotals::Entry> counted_;  // of loader_, and gone before it
  uint64_t epoch_ = 0;                         // of the next batch
  LoaderCounts before_;                        // up to the start of loader_; without one, up to its end

  std::atomic<int64_t> conversion_ns_ = 0;

  std::once_flag forecast_made_;
  std::optional<CacheForecast> forecast_;
};

}  // namespace millrace::python
