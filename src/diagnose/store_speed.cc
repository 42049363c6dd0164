#include "diagnose/store_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/buffer.h"
#include "base/size.h"
#include "store/completion.h"

namespace millrace {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSmallReads = 100;
constexpr uint64_t kSmallRead = 1024;
constexpr uint64_t kLargeBytes = 8 << 20;
constexpr size_t kMaxReads = 256;  // different ones
constexpr std::chrono::milliseconds kTime{2000};

struct Part {
  std::string key;
  ByteRange range;
};

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

absl::Status Read(S3Client& client, const std::string& bucket, const Part& part, Buffer& buffer) {
  GetOptions options;
  options.range = part.range;
  Completion<absl::StatusOr<GetResult>> completion;
  client.Get(bucket, part.key, buffer.span().first(part.range.length), std::move(options), completion.Callback());
  return completion.Wait().status();
}

absl::Status MeasureFirstByte(S3Client& client, const std::string& bucket, const std::vector<ObjectInfo>& objects,
                              StoreSpeed* measured) {
  std::vector<double> times;
  Buffer buffer(kSmallRead);
  const Clock::time_point start = Clock::now();
  for (int i = -1; i < kSmallReads && (i < 10 || Clock::now() - start < kTime); ++i) {
    const ObjectInfo& object = objects[static_cast<size_t>(i + 1) % objects.size()];
    const Clock::time_point began = Clock::now();
    RETURN_IF_ERROR(Read(client, bucket, {object.key, {0, std::min(object.size, kSmallRead)}}, buffer));
    if (i >= 0) times.push_back(1000 * Seconds(Clock::now() - began));  // the first one connects
  }
  std::sort(times.begin(), times.end());
  measured->reads = static_cast<int>(times.size());
  measured->first_byte_median_ms = times[times.size() / 2];
  measured->first_byte_p99_ms = times[std::min(times.size() - 1, times.size() * 99 / 100)];
  return absl::OkStatus();
}

absl::StatusOr<double> MeasureThroughput(S3Client& client, const std::string& bucket, const std::vector<Part>& parts,
                                         int connections, uint64_t most, ReadProgress progress) {
  std::atomic<uint64_t> bytes{0};
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status failure;
  const Clock::time_point start = Clock::now();
  const auto read = [&] {
    Buffer buffer(kLargeBytes);
    while (Clock::now() - start < kTime && bytes < most) {
      const Part& part = parts[next++ % parts.size()];
      const absl::Status status = Read(client, bucket, part, buffer);
      if (!status.ok()) {
        std::lock_guard lock(mutex);
        failure = status;
        return;
      }
      progress(bytes += part.range.length);
    }
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < connections; ++i) threads.emplace_back(read);
  }
  RETURN_IF_ERROR(failure);
  return static_cast<double>(bytes) / Seconds(Clock::now() - start);
}

void AdviseOnRates(const StoreSpeed& measured, std::vector<std::string>* advice) {
  const double gain = measured.many_bytes_per_second / std::max(1.0, measured.one_bytes_per_second);
  if (gain > 1.5) {
    advice->push_back(fmt::format(
        "{} reads at a time are {:.1f} times as fast as one: never read one object after the other (Millrace does not)",
        kManyConnections, gain));
  } else {
    advice->push_back(fmt::format(
        "one connection already gets {:.0f} % of what {} get: the network, the store or this machine is the limit",
        100 / std::max(1.0, gain), kManyConnections));
  }
  constexpr double kSample = 115'000;
  const double one_by_one = kSample / (measured.first_byte_median_ms / 1000);
  if (one_by_one < measured.many_bytes_per_second) {
    advice->push_back(
        fmt::format("objects of 115 KB read one by one give at most {}/s; some {:.0f} reads in flight reach {}/s",
                    FormatSize(static_cast<uint64_t>(one_by_one)), measured.many_bytes_per_second / one_by_one + 1,
                    FormatSize(static_cast<uint64_t>(measured.many_bytes_per_second))));
  }
}

}  // namespace

absl::StatusOr<StoreSpeed> MeasureStore(S3Client& client, const std::string& bucket,
                                        const std::vector<ObjectInfo>& objects, ReadProgress progress) {
  std::vector<ObjectInfo> filled;
  for (const ObjectInfo& object : objects) {
    if (object.size > 0) filled.push_back(object);
  }
  StoreSpeed measured;
  RETURN_IF_ERROR(MeasureFirstByte(client, bucket, filled, &measured));
  // The largest ones: small ones measure the latency once more.
  std::sort(filled.begin(), filled.end(), [](const auto& a, const auto& b) { return a.size > b.size; });
  std::vector<Part> parts;
  for (const ObjectInfo& object : filled) {
    if (object.size < kRateBytes) break;
    for (uint64_t at = 0; at < object.size && parts.size() < kMaxReads; at += kLargeBytes) {
      parts.push_back({object.key, {at, std::min(kLargeBytes, object.size - at)}});
    }
  }
  if (parts.empty()) return measured;
  measured.has_rates = true;
  ASSIGN_OR_RETURN(measured.one_bytes_per_second, MeasureThroughput(client, bucket, parts, 1, 128 << 20, progress));
  ASSIGN_OR_RETURN(measured.many_bytes_per_second,
                   MeasureThroughput(client, bucket, parts, kManyConnections, 384 << 20, progress));
  return measured;
}

std::vector<std::string> AdviseOnSpeed(const StoreSpeed& measured) {
  std::vector<std::string> advice;
  if (measured.has_rates) AdviseOnRates(measured, &advice);
  if (measured.first_byte_p99_ms > 4 * measured.first_byte_median_ms && measured.first_byte_p99_ms > 20) {
    advice.push_back(
        "a few answers are very late: read far ahead; Millrace asks a second time where an answer is late");
  }
  return advice;
}

}  // namespace millrace
