// Size and speed of the index of a usual data set: shards of 2,000 samples with a JPEG and a class. Then the same with
// other classes out of a file of labels, in another order.
//   index_bench [SAMPLES [FILE]]        1,000,000; the index is written to FILE (default: a temporary file), and
//   removed

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/rng.h"
#include "dataset/index_writer.h"
#include "dataset/labels_file.h"
#include "store/stores.h"

namespace millrace {
namespace {

constexpr uint64_t kShardSamples = 2000;
constexpr uint64_t kMaxLookups = 10'000'000;

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

double PeakMib() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

class FileWriter final : public ObjectWriter {
 public:
  explicit FileWriter(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {}
  ~FileWriter() override {
    if (file_ != nullptr) std::fclose(file_);
  }
  absl::Status Append(ByteSpan bytes) override {
    if (file_ != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file_) == bytes.size()) return absl::OkStatus();
    return absl::UnavailableError("the index cannot be written");
  }
  absl::StatusOr<ObjectInfo> Commit() override {
    if (std::fclose(std::exchange(file_, nullptr)) == 0) return ObjectInfo();
    return absl::UnavailableError("the index cannot be written");
  }

 private:
  std::FILE* file_;
};

absl::StatusOr<IndexSummary> Write(uint64_t samples, const std::string& path) {
  Rng rng(1);
  IndexWriter writer(DataKind::kTar, std::make_unique<FileWriter>(path));
  for (uint64_t shard = 0; shard * kShardSamples < samples; ++shard) {
    uint64_t offset = 0;
    for (uint64_t i = shard * kShardSamples; i < std::min(samples, (shard + 1) * kShardSamples); ++i) {
      const std::string key = fmt::format("{:09}", i);
      const std::string label = fmt::format("{}", rng.Below(1000));
      const uint64_t jpeg = 60'000 + rng.Below(110'000);
      const NewSampleField fields[] = {
          {.name = "jpg", .offset = offset + 512, .length = jpeg},
          {.name = "cls", .offset = offset + 1024 + (jpeg + 511) / 512 * 512, .length = label.size()}};
      offset = fields[1].offset + 512;
      const auto crc = static_cast<uint32_t>(rng.Next());
      RETURN_IF_ERROR(writer.AddSample({.key = key, .fields = fields, .crc32c = crc, .label = label}));
    }
    RETURN_IF_ERROR(writer.AddObject({.key = fmt::format("shard-{:06}.tar", shard),
                                      .size = offset + 1024,
                                      .etag = fmt::format("{:032x}-40", rng.Next())}));
  }
  return writer.Finish();
}

// Drops the file from the page cache, so that the next reads come from the disk.
void DropFromPageCache(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  ::fdatasync(fd);
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
  ::close(fd);
}

// Writes a row for each sample, far from those of its neighbours.
absl::Status WriteLabels(uint64_t samples, const std::string& path) {
  FileWriter out(path);
  std::string rows = "key,label\n";
  constexpr uint64_t kStep = 1'000'003;  // prime: all numbers come if it does not divide their count
  uint64_t sample = 0;
  for (uint64_t i = 0; i < samples; ++i) {
    sample = (sample + kStep) % samples;
    rows += fmt::format("{:09},{}\n", sample, sample % 1000);
    if (rows.size() < (1 << 20) && i + 1 < samples) continue;
    RETURN_IF_ERROR(out.Append(AsBytes(rows)));
    rows.clear();
  }
  return out.Commit().status();
}

absl::Status BenchLabels(uint64_t samples, const Index& base, const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::string labels = folder + "/labels.csv";
  RETURN_IF_ERROR(WriteLabels(samples, labels));
  Runtime runtime({.io_threads = 1, .cpu_threads = 1, .memory_bytes = UsableMemory()});
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location place, stores.Open(folder));
  const LabelsFile file{.uri = labels, .key_column = "", .label_column = ""};
  for (const bool first : {true, false}) {
    const auto start = Clock::now();
    ASSIGN_OR_RETURN(const LabelledIndex labelled,
                     OpenLabelledIndex(runtime, stores, DatasetPlace(place), base, file, folder, {}));
    fmt::print(
        "{} with labels of a file of {:.1f} MB: {:.3f} s, {:.2f} bytes a sample, peak RSS {:.0f} MiB, of which the "
        "index, mapped, is {:.0f}\n",
        first ? "made" : "opened", static_cast<double>(std::filesystem::file_size(labels)) / 1e6, Seconds(start),
        static_cast<double>(labelled.index->file_bytes()) / static_cast<double>(samples), PeakMib(),
        static_cast<double>(base.file_bytes()) / 1048576);
  }
  return absl::OkStatus();
}

absl::Status Bench(uint64_t samples, const std::string& path) {
  auto start = Clock::now();
  ASSIGN_OR_RETURN(const IndexSummary summary, Write(samples, path));
  const auto count = static_cast<double>(samples);
  const double seconds = Seconds(start);
  fmt::print(
      "{} samples in {} shards: {:.1f} MB, {:.2f} bytes a sample, written in {:.1f} s, {:.0f} ns a sample, peak RSS "
      "{:.0f} MiB\n",
      samples, summary.objects, static_cast<double>(summary.index_bytes) / 1e6,
      static_cast<double>(summary.index_bytes) / count, seconds, seconds / count * 1e9, PeakMib());
  for (const bool cold : {true, false}) {
    if (cold) DropFromPageCache(path);
    start = Clock::now();
    RETURN_IF_ERROR(Index::Open(path).status());
    fmt::print("opened in {:.0f} us, {}\n", Seconds(start) * 1e6, cold ? "from the disk" : "from the page cache");
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Index> index, Index::Open(path));
  RETURN_IF_ERROR(index->Verify());  // all of it is in the page cache
  Rng rng(2);
  IndexedSample sample;
  uint64_t sum = 0;  // keeps the lookups
  const uint64_t lookups = std::min(samples, kMaxLookups);
  for (const bool random : {false, true}) {
    start = Clock::now();
    for (uint64_t i = 0; i < lookups; ++i) {
      RETURN_IF_ERROR(index->Lookup(random ? rng.Below(samples) : i, &sample));
      sum += sample.crc32c.value_or(0);
    }
    fmt::print("{} lookup: {:.0f} ns\n", random ? "random" : "sequential",
               Seconds(start) / static_cast<double>(lookups) * 1e9);
  }
  if (sum == 0) return absl::InternalError("no CRC in any sample");
  const std::string folder = path + ".labels";
  absl::Status status = BenchLabels(samples, *index, folder);
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  const uint64_t samples = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000;
  const std::string path =
      argc > 2 ? argv[2]
               : (std::filesystem::temp_directory_path() / fmt::format("index_bench.{}", ::getpid())).string();
  const absl::Status status = millrace::Bench(samples, path);
  std::remove(path.c_str());
  if (!status.ok()) fmt::print(stderr, "index_bench: {}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
