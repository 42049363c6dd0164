#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/counted.h"
#include "base/size.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json_text.h"
#include "cli/usage.h"
#include "diagnose/synthetic_shards.h"
#include "net/runtime.h"
#include "store/stores.h"

namespace millrace::cli {

namespace {

constexpr uint64_t kBytesPerKb = 1000;
constexpr uint64_t kMaxCount = 100'000'000;
constexpr uint64_t kMaxClasses = 100'000;

struct SynthFlags {
  std::string uri;
  uint64_t count = 0;
  uint64_t kb = 115;
  uint64_t seed = 1;
  uint64_t classes = 10;
  bool json = false;
};

absl::Status Synth(const SynthFlags& flags) {
  RETURN_IF_ERROR(CheckUri(flags.uri));
  const InterruptStop interrupt;
  Runtime runtime;
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location location, stores.Open(flags.uri));
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress("synth", ProgressLine::Unit::kItems);
  const absl::StatusOr<SyntheticReport> made = WriteSyntheticShards(
      runtime, location,
      {.samples = flags.count,
       .image_bytes = flags.kb * kBytesPerKb,
       .shard_bytes = 0,
       .seed = flags.seed,
       .classes = flags.classes},
      [&](uint64_t images) { progress.Update(images, flags.count); }, interrupt.token());
  progress.Clear();
  if (absl::IsCancelled(made.status())) return absl::CancelledError("interrupted; start it again to write the rest");
  RETURN_IF_ERROR(made.status());
  const double seconds = SecondsSince(start);
  if (flags.json) {
    const JsonObject report = JSON_OF(Named("objects", flags.count), made->bytes,
                                      Named("classes", std::min(flags.classes, flags.count)), seconds);
    return WriteStdout(report.Versioned("synth"));
  }
  return WriteStdout(
      fmt::format("{}, {}, in {:.1f} s\n", Counted(flags.count, "image"), FormatSize(made->bytes), seconds));
}

}  // namespace

void AddSynth(Command app) {
  const Command synth = app.AddCommand("synth", "Write synthetic photographs for tests and benchmarks");
  auto flags = std::make_shared<SynthFlags>();
  synth.Add("dst", &flags->uri, "A bucket with a prefix, or a folder; existing images are overwritten").Required();
  synth.Add("--count", &flags->count, "Number of images").Required().Number(1, kMaxCount);
  synth.AddShown("--kb", &flags->kb, "Size of each in KB (1000 bytes), kept within 10 %").Number(1, 150);
  synth.AddShown("--seed", &flags->seed, "The same seed gives the same bytes").Number(0);
  synth.AddShown("--classes", &flags->classes, "Number of class folders").Number(1, kMaxClasses);
  synth.AddFlag("--json", &flags->json, R"(One JSON object: {"objects", "bytes", "classes", "seconds"})");
  synth.Footer(
      "Writes DST/class-CCC/NNNNNNNN.jpg: baseline 4:2:0 JPEGs of 640 x 480 pixels (fewer if --kb asks for less than "
      "quality 30 needs). Image N belongs to class N modulo the number of classes; the folders sort in the order "
      "of the classes.\n\n"
      "Examples:\n"
      "  millrace synth /tmp/photos --count 1000\n"
      "  millrace synth s3://bucket/raw --count 20000 --kb 115 --seed 1 --classes 100");
  synth.Run([flags] { return ExitStatus("synth", Synth(*flags)); });
}

}  // namespace millrace::cli
