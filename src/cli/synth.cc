#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "decode/synth_image.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kBytesPerKb = 1000;
constexpr uint64_t kMaxCount = 100'000'000;
constexpr uint64_t kMaxClasses = 100'000;
// Pictures that are being made or written. Enough to hide the latency of a distant store, and some 10 MB.
constexpr uint64_t kInFlight = 96;

struct SynthFlags {
  std::string uri;
  uint64_t count = 0;
  uint64_t kb = 115;
  uint64_t seed = 1;
  uint64_t classes = 10;
  bool json = false;
};

/// Makes pictures on the CPU pool and writes them, many at a time, until all are written or one fails.
class Writer {
 public:
  Writer(const SynthFlags& flags, Location location, ThreadPool& pool)
      : flags_(flags),
        location_(std::move(location)),
        pool_(pool),
        synth_(flags.seed),
        class_digits_(std::max<size_t>(3, fmt::formatted_size("{}", flags.classes - 1))),
        digits_(std::max<size_t>(8, fmt::formatted_size("{}", flags.count - 1))),
        progress_("synth", ProgressLine::Unit::kItems) {}

  absl::Status Run() {
    for (uint64_t n = 0; n < flags_.count; ++n) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return in_flight_ < kInFlight; });
      if (status_.ok() && Interrupted())
        status_ = absl::CancelledError("interrupted; start it again to write the rest");
      if (!status_.ok()) break;
      ++in_flight_;
      ++making_;
      pool_.Submit([this, n] {
        Make(n);
        const std::lock_guard guard(mutex_);
        --making_;
        changed_.notify_all();
      });
    }
    std::unique_lock lock(mutex_);
    // Both, because a Put may complete before the call that started it returns.
    changed_.wait(lock, [this] { return in_flight_ == 0 && making_ == 0; });
    return status_;
  }

  uint64_t bytes() const { return bytes_; }

 private:
  /// Neighbouring numbers belong to different classes, so that every prefix of the numbers is balanced.
  std::string KeyOf(uint64_t n) const {
    return location_.Key(fmt::format("class-{:0{}}/{:0{}}.jpg", n % flags_.classes, class_digits_, n, digits_));
  }

  void Make(uint64_t n) {
    absl::StatusOr<std::string> jpeg = SynthJpeg(synth_, n, flags_.kb * kBytesPerKb);
    if (!jpeg.ok()) {
      Done(jpeg.status(), 0);
      return;
    }
    auto body = std::make_unique<std::string>(*std::move(jpeg));
    const ByteSpan bytes = AsBytes(*body);
    location_.store->Put(KeyOf(n), bytes, {.content_type = "image/jpeg"},
                         [this, body = std::move(body)](const absl::StatusOr<ObjectInfo>& result) {
                           Done(result.status(), body->size());
                         });
  }

  void Done(const absl::Status& status, uint64_t bytes) {
    // Notified under the lock: Run may return, and this object end, as soon as the lock is free.
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      bytes_ += bytes;
      progress_.Update(++written_, flags_.count);
    } else if (status_.ok()) {
      status_ = status;
    }
    --in_flight_;
    changed_.notify_all();
  }

  const SynthFlags& flags_;
  const Location location_;
  ThreadPool& pool_;
  const ImageSynth synth_;
  const size_t class_digits_;
  const size_t digits_;
  ProgressLine progress_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t in_flight_ = 0;  // pictures whose end is not known
  uint64_t making_ = 0;     // tasks of the pool that have not returned
  uint64_t written_ = 0;
  uint64_t bytes_ = 0;
  absl::Status status_;
};

absl::Status Synth(const SynthFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  CatchInterrupts();
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(Location location, stores.Open(flags.uri));
  const auto start = std::chrono::steady_clock::now();
  uint64_t bytes = 0;
  {
    Writer writer(flags, std::move(location), runtime.cpu());
    RETURN_IF_ERROR(writer.Run());
    bytes = writer.bytes();
  }
  const double seconds = SecondsSince(start);
  if (flags.json) {
    const JsonObject report{{"objects", flags.count},
                            {"bytes", bytes},
                            {"classes", std::min(flags.classes, flags.count)},
                            {"seconds", seconds}};
    return WriteStdout(report.Line());
  }
  return WriteStdout(fmt::format("{}, {}, in {:.1f} s\n", Counted(flags.count, "image"), FormatSize(bytes), seconds));
}

}  // namespace

void AddSynth(Command app) {
  const Command synth = app.AddCommand("synth", "Write synthetic photographs for tests and benchmarks");
  auto flags = std::make_shared<SynthFlags>();
  synth.Add("dst", &flags->uri, "A bucket with a prefix, or a folder; existing images are overwritten").Required();
  const auto add = [synth](const char* name, uint64_t* value, const char* what) {
    return synth.Add(name, value, what).ShowDefault();
  };
  synth.Add("--count", &flags->count, "Number of images").Required().Number(1, kMaxCount);
  add("--kb", &flags->kb, "Size of each in KB (1000 bytes), kept within 10 %").Number(1, 150);
  add("--seed", &flags->seed, "The same seed gives the same bytes").Number(0);
  add("--classes", &flags->classes, "Number of class folders").Number(1, kMaxClasses);
  synth.AddFlag("--json", &flags->json, R"(One JSON object: {"objects", "bytes", "classes", "seconds"})");
  synth.Footer(
      "Writes DST/class-CCC/NNNNNNNN.jpg: baseline 4:2:0 JPEGs of 640 x 480 pixels (fewer if --kb asks for less than "
      "quality 30 needs). Image N belongs to class N modulo the number of classes; the folders sort in the order of "
      "the "
      "classes.\n\n"
      "Examples:\n"
      "  millrace synth /tmp/photos --count 1000\n"
      "  millrace synth s3://bucket/raw --count 20000 --kb 115 --seed 1 --classes 100");
  synth.Run([flags] {
    const absl::Status status = Synth(*flags);
    return status.ok() ? 0 : Fail("synth", status);
  });
}

}  // namespace millrace::cli
