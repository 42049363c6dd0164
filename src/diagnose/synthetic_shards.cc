#include "diagnose/synthetic_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "decode/synth_image.h"
#include "shard/tar_writer.h"

namespace millrace {

namespace {

// Bounds the number of images that are made side by side and then written. Enough for all CPUs of a large machine.
constexpr uint64_t kTogether = 64;
constexpr const char* kInterrupted = "making the synthetic data set was interrupted";

/// Writes members to one shard after another.
class ShardSequence {
 public:
  ShardSequence(const Location& place, uint64_t shard_bytes) : place_(place), shard_bytes_(shard_bytes) {}

  absl::Status Add(uint64_t n, uint64_t label, const std::string& jpeg) {
    if (!writer_) {
      const std::string key = place_.Key(fmt::format("shard-{:06}.tar", report_.shards));
      ASSIGN_OR_RETURN(writer_, place_.store->Write(key, {.content_type = "application/x-tar"}));
      written_ = 0;
    }
    std::string bytes;
    const std::string key = fmt::format("{:08}", n);
    RETURN_IF_ERROR(AppendMember(key + ".cls", std::to_string(label), bytes));
    RETURN_IF_ERROR(AppendMember(key + ".jpg", jpeg, bytes));
    RETURN_IF_ERROR(Append(bytes));
    return written_ >= shard_bytes_ ? End() : absl::OkStatus();
  }

  absl::Status End() {
    if (!writer_) return absl::OkStatus();
    std::string end;
    AppendTarEnd(end);
    RETURN_IF_ERROR(Append(end));
    RETURN_IF_ERROR(writer_->Commit().status());
    writer_.reset();
    ++report_.shards;
    return absl::OkStatus();
  }

  const SyntheticReport& report() const { return report_; }

 private:
  static absl::Status AppendMember(const std::string& name, const std::string& data, std::string& out) {
    RETURN_IF_ERROR(AppendTarHeader(out, name, data.size()));
    out += data;
    AppendTarPadding(out, data.size());
    return absl::OkStatus();
  }

  absl::Status Append(const std::string& bytes) {
    RETURN_IF_ERROR(writer_->Append(AsBytes(bytes)));
    written_ += bytes.size();
    report_.bytes += bytes.size();
    return absl::OkStatus();
  }

  const Location place_;
  const uint64_t shard_bytes_;
  std::unique_ptr<ObjectWriter> writer_;
  uint64_t written_ = 0;  // of the shard
  SyntheticReport report_;
};

/// Makes images on the CPU pool and writes each as an object, many at a time, until all are written or one fails.
class ImageObjects {
 public:
  using Progress = std::function<void(uint64_t images)>;
  ImageObjects(const Location& place, const SyntheticShards& settings, const Progress& progress)
      : place_(place),
        settings_(settings),
        progress_(progress),
        synth_(settings.seed),
        class_digits_(std::max<size_t>(3, fmt::formatted_size("{}", settings.classes - 1))),
        digits_(std::max<size_t>(8, fmt::formatted_size("{}", settings.samples - 1))) {}

  absl::StatusOr<SyntheticReport> Run(ThreadPool& pool, const std::stop_token& stop) {
    for (uint64_t n = 0; n < settings_.samples; ++n) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return in_flight_ < kInFlight; });
      if (status_.ok() && stop.stop_requested()) status_ = absl::CancelledError(kInterrupted);
      if (!status_.ok()) break;
      ++in_flight_;
      ++making_;
      pool.Submit([this, n] {
        Make(n);
        const std::lock_guard guard(mutex_);
        --making_;
        changed_.notify_all();
      });
    }
    std::unique_lock lock(mutex_);
    // It waits for both, because a Put may complete before the call that started it returns.
    changed_.wait(lock, [this] { return in_flight_ == 0 && making_ == 0; });
    if (!status_.ok()) return status_;
    return report_;
  }

 private:
  static constexpr uint64_t kInFlight = 96;  // enough to hide the latency of a distant store, and some 10 MB

  void Make(uint64_t n) {
    absl::StatusOr<std::string> jpeg = SynthJpeg(synth_, n, settings_.image_bytes);
    if (!jpeg.ok()) return Done(jpeg.status(), 0);
    auto body = std::make_unique<std::string>(*std::move(jpeg));
    const ByteSpan bytes = AsBytes(*body);
    // Neighbouring numbers belong to different classes, so that every prefix of the numbers is balanced.
    const std::string name = fmt::format("class-{:0{}}/{:0{}}.jpg", n % settings_.classes, class_digits_, n, digits_);
    place_.store->Put(place_.Key(name), bytes, {.content_type = "image/jpeg"},
                      [this, body = std::move(body)](const absl::StatusOr<ObjectInfo>& result) {
                        Done(result.status(), body->size());
                      });
  }

  void Done(const absl::Status& status, uint64_t bytes) {
    // Notified under the lock: Run may return, and this object end, as soon as the lock is free.
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      report_.bytes += bytes;
      ++report_.shards;
      if (progress_) progress_(report_.shards);
    } else if (status_.ok()) {
      status_ = status;
    }
    --in_flight_;
    changed_.notify_all();
  }

  const Location& place_;
  const SyntheticShards& settings_;
  const Progress& progress_;
  const ImageSynth synth_;
  const size_t class_digits_;
  const size_t digits_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t in_flight_ = 0;  // images whose end is not known
  uint64_t making_ = 0;     // tasks of the pool that have not returned
  SyntheticReport report_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<SyntheticReport> WriteSyntheticShards(Runtime& runtime, const Location& place,
                                                     const SyntheticShards& settings,
                                                     const std::function<void(uint64_t images)>& progress,
                                                     const std::stop_token& stop) {
  if (settings.shard_bytes == 0) return ImageObjects(place, settings, progress).Run(runtime.cpu(), stop);
  const ImageSynth synth(settings.seed);
  ShardSequence shards(place, settings.shard_bytes);
  std::vector<std::string> jpegs(kTogether);
  std::vector<absl::Status> made_well(kTogether);
  for (uint64_t first = 0; first < settings.samples; first += kTogether) {
    if (stop.stop_requested()) return absl::CancelledError(kInterrupted);
    const uint64_t count = std::min(kTogether, settings.samples - first);
    std::latch made(static_cast<std::ptrdiff_t>(count));
    for (uint64_t i = 0; i < count; ++i) {
      runtime.cpu().Submit([&, i] {
        absl::StatusOr<std::string> jpeg = SynthJpeg(synth, first + i, settings.image_bytes);
        made_well[i] = jpeg.status();
        if (jpeg.ok()) jpegs[i] = *std::move(jpeg);
        made.count_down();
      });
    }
    made.wait();
    for (uint64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(made_well[i]);
      RETURN_IF_ERROR(shards.Add(first + i, (first + i) % settings.classes, jpegs[i]));
    }
    if (progress) progress(first + count);
  }
  RETURN_IF_ERROR(shards.End());
  return shards.report();
}

}  // namespace millrace
