// Reads the objects below a URI over and over, so many at a time, and says how fast, at what cost, and how late the
// slow ones came. One JSON object on stdout; bench/s3/run.py drives it next to its rivals.

#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/process.h"
#include "base/size.h"
#include "net/runtime.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct Flags {
  std::string uri;
  int calls = 256;
  int io_threads = 1;  // as RuntimeOptions
  uint64_t count = 0;
  double seconds = 0;
  std::string part_size;
  uint64_t part = 0;  // bytes; 0: whole objects
  bool verify = false;
};

uint64_t Parts(uint64_t size, const Flags& flags) {
  return flags.part > 0 ? std::max<uint64_t>(1, (size + flags.part - 1) / flags.part) : 1;
}

/// The CRC32C of each part, as an index would have it, `parts` an object.
absl::StatusOr<std::vector<uint32_t>> ReadChecksums(const Location& data, const std::vector<ObjectInfo>& objects,
                                                    uint64_t largest, const Flags& flags) {
  const uint64_t parts = Parts(largest, flags);
  std::vector<uint32_t> crcs(objects.size() * parts);
  Buffer buffer(largest);
  for (size_t i = 0; i < objects.size(); ++i) {
    const uint64_t size = objects[i].size;
    const uint64_t step = flags.part > 0 ? flags.part : size;
    for (uint64_t offset = 0, part = 0; offset < size; offset += step, ++part) {
      const MutableByteSpan bytes = buffer.span().first(std::min(step, size - offset));
      GetOptions get;
      get.range = {offset, bytes.size()};
      get.if_match = objects[i].etag;
      RETURN_IF_ERROR(GetBlocking(*data.store, objects[i].key, bytes, std::move(get)).status());
      crcs[i * parts + part] = Crc32c(bytes);
    }
  }
  return crcs;
}

/// Represents a closed loop of reads: when one ends, the next begins. Without `part` each of `calls` readers gets whole
/// objects. With `part`, one reader gets one object after the other, in parts of which `calls` are in flight. Each part
/// is read into its place. Buffers are used before the clock starts, so that page faults are not part of the figures.
class Load {
 public:
  Load(const Location& data, std::vector<ObjectInfo> objects, std::vector<uint32_t> crcs, const Flags& flags)
      : data_(data),
        objects_(std::move(objects)),
        crcs_(std::move(crcs)),
        flags_(flags),
        readers_(flags.part > 0 ? 1 : flags.calls) {
    uint64_t largest = 0;
    for (const ObjectInfo& object : objects_) largest = std::max(largest, object.size);
    for (Reader& reader : readers_) {
      reader.buffer = Buffer(largest);
      std::fill(reader.buffer.data(), reader.buffer.data() + largest, std::byte{1});
    }
    parts_ = Parts(largest, flags);
    total_ = flags.count > 0 ? flags.count : flags.seconds > 0 ? UINT64_MAX : objects_.size();
  }

  nlohmann::ordered_json Run() {
    const RequestCounters& counters = data_.store->counters();
    const uint64_t get = counters.get, retries = counters.retries, hedges = counters.hedges;
    const uint64_t bytes_read = counters.bytes_read;
    begin_ = SteadyClock::now();
    const double cpu = CpuSeconds();
    for (Reader& reader : readers_) NextObject(reader);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return active_ == 0; });
    const double seconds = Since(begin_);
    const double cpu_seconds = CpuSeconds() - cpu;
    std::sort(latencies_.begin(), latencies_.end());
    const auto quantile = [this](double part) {
      return latencies_.empty() ? 0
                                : latencies_[static_cast<size_t>(part * static_cast<double>(latencies_.size() - 1))];
    };
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto gb = static_cast<double>(bytes_) / 1e9;
    return {{"objects", latencies_.size()},
            {"errors", errors_},
            {"first_error", first_error_},
            {"seconds", seconds},
            {"objects_per_second", static_cast<double>(latencies_.size()) / seconds},
            {"gb_per_second", gb / seconds},
            {"cpu_seconds_per_gb", gb > 0 ? cpu_seconds / gb : 0},
            {"objects_per_cpu_second", static_cast<double>(latencies_.size()) / cpu_seconds},
            {"ms", {{"p50", quantile(0.5)}, {"p99", quantile(0.99)}, {"p99.9", quantile(0.999)}, {"max", quantile(1)}}},
            {"requests", counters.get - get},
            {"retries", counters.retries - retries},
            {"hedges", counters.hedges - hedges},
            {"bytes", bytes_},
            {"bytes_read", counters.bytes_read - bytes_read},
            {"max_rss_bytes", usage.ru_maxrss * 1024},
            {"each_second", each_second_}};
  }

 private:
  struct Reader {
    Buffer buffer;
    const ObjectInfo* object = nullptr;  // being read
    SteadyClock::time_point asked;
    uint64_t next = 0;    // offset of the first part that is not asked for
    int in_flight = 0;    // parts
    absl::Status status;  // of the first part that failed
  };

  static double Since(SteadyClock::time_point from) {
    return std::chrono::duration<double>(SteadyClock::now() - from).count();
  }

  void NextObject(Reader& reader) {
    {
      std::lock_guard lock(mutex_);
      if (asked_ == total_ || (flags_.seconds > 0 && Since(begin_) >= flags_.seconds)) return;
      reader.object = &objects_[asked_++ % objects_.size()];
      ++active_;
      reader.next = 0;
      reader.in_flight = 1;  // held until all first parts are asked for, so that the object does not end before
      reader.status = absl::OkStatus();
    }
    reader.asked = SteadyClock::now();
    const int parts = flags_.part > 0 ? flags_.calls : 1;
    for (int i = 0; i < parts; ++i) NextPart(reader);
    OnPart(reader, absl::OkStatus());
  }

  void NextPart(Reader& reader) {
    GetOptions get;
    {
      std::lock_guard lock(mutex_);
      const uint64_t size = reader.object->size;
      if (reader.next == size || !reader.status.ok()) return;
      get.range = {reader.next, flags_.part > 0 ? std::min(flags_.part, size - reader.next) : size};
      reader.next += get.range.length;
      ++reader.in_flight;
    }
    if (!crcs_.empty()) {
      get.checksums = {{get.range, crcs_[static_cast<size_t>(reader.object - objects_.data()) * parts_ +
                                         (flags_.part > 0 ? get.range.offset / flags_.part : 0)]}};
    }
    get.if_match = reader.object->etag;
    const MutableByteSpan into = reader.buffer.span().subspan(get.range.offset, get.range.length);
    data_.store->Get(reader.object->key, into, std::move(get),
                     [this, &reader](const absl::StatusOr<GetResult>& result) {
                       if (result.ok()) NextPart(reader);
                       OnPart(reader, result.status());
                     });
  }

  void OnPart(Reader& reader, const absl::Status& status) {
    {
      std::lock_guard lock(mutex_);
      if (reader.status.ok()) reader.status = status;
      if (--reader.in_flight > 0) return;
      if (reader.status.ok()) {
        latencies_.push_back(1000 * Since(reader.asked));
        bytes_ += reader.object->size;
        each_second_.resize(std::max(each_second_.size(), static_cast<size_t>(Since(begin_)) + 1));
        ++each_second_.back();
      } else if (errors_++ == 0) {
        first_error_ = std::string(ToStd(reader.status.message()));
      }
    }
    NextObject(reader);
    std::lock_guard lock(mutex_);
    if (--active_ == 0) done_.notify_all();
  }

  const Location& data_;
  const std::vector<ObjectInfo> objects_;
  const std::vector<uint32_t> crcs_;  // of the parts of each object, `parts_` an object; empty: not verified
  const Flags& flags_;
  std::vector<Reader> readers_;
  uint64_t parts_ = 1;  // of the largest object
  uint64_t total_ = 0;
  SteadyClock::time_point begin_;

  std::mutex mutex_;
  std::condition_variable done_;
  uint64_t asked_ = 0;
  uint64_t active_ = 0;
  std::vector<double> latencies_;  // ms
  std::vector<uint64_t> each_second_;
  uint64_t bytes_ = 0;
  uint64_t errors_ = 0;
  std::string first_error_;
};

absl::Status Main(Flags flags) {
  if (!flags.part_size.empty()) {
    ASSIGN_OR_RETURN(flags.part, ParseSize(flags.part_size));
  }
  Runtime runtime({.io_threads = flags.io_threads, .cpu_threads = 1});
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location data, stores.Open(flags.uri));
  ASSIGN_OR_RETURN(std::vector<ObjectInfo> objects, ListAll(*data.store, data.prefix));
  if (objects.empty()) return absl::NotFoundError("there are no objects below " + flags.uri);
  std::vector<uint32_t> crcs;
  if (flags.verify) {
    uint64_t largest = 0;
    for (const ObjectInfo& object : objects) largest = std::max(largest, object.size);
    ASSIGN_OR_RETURN(crcs, ReadChecksums(data, objects, largest, flags));
  }
  Load load(data, std::move(objects), std::move(crcs), flags);
  std::cout << load.Run().dump() << std::endl;
  return absl::OkStatus();
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  millrace::Flags flags;
  CLI::App app("Reads the objects below a URI, so many at a time, and prints rates, cost and latencies as JSON");
  app.add_option("uri", flags.uri, "s3://bucket/prefix")->required();
  app.add_option("--calls", flags.calls, "GETs in flight")->capture_default_str()->check(CLI::Range(1, 100000));
  app.add_option("--io-threads", flags.io_threads, "Network threads")->capture_default_str()->check(CLI::Range(1, 64));
  app.add_option("--count", flags.count, "Objects to read [each once]");
  app.add_option("--seconds", flags.seconds, "Or for so long");
  app.add_option("--part", flags.part_size,
                 "Read one object after the other, in parts of this size, e.g. 8MiB, with --calls parts in flight");
  app.add_flag("--verify", flags.verify, "Check a CRC32C of each GET, learnt by reading each object once beforehand");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = millrace::Main(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "get_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
