#include "diagnose/read_rates.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/buffer.h"
#include "base/clock.h"
#include "diagnose/spread.h"
#include "store/blocking.h"

namespace millrace {

namespace {

using RateClock = std::chrono::steady_clock;

constexpr int kFirstByteReads = 24;
constexpr double kListSeconds = 2;

/// Keeps a number of reads in flight: each begins the next one of its lane when it ends.
class ReadLanes {
 public:
  ReadLanes(ObjectStore& store, const std::vector<ReadPlace>& places, double seconds, uint64_t max_reads,
            const std::stop_token& stop)
      : store_(store), places_(places), seconds_(seconds), max_reads_(max_reads), stop_(stop) {
    for (const ReadPlace& place : places) largest_ = std::max<uint64_t>(largest_, place.range.length);
  }

  absl::StatusOr<ReadRate> Run(int in_flight) {
    for (int i = 0; i < in_flight; ++i) buffers_.emplace_back(largest_);
    start_ = RateClock::now();
    for (int lane = 0; lane < in_flight; ++lane) {
      {
        const std::lock_guard lock(mutex_);
        ++running_;
      }
      Next(static_cast<size_t>(lane));
    }
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return running_ == 0; });
    if (!status_.ok()) return status_;
    rate_.seconds = last_;
    return rate_;
  }

 private:
  void Next(size_t lane) {
    const ReadPlace* place = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (status_.ok() && stop_.stop_requested()) status_ = absl::CancelledError("the measurement was interrupted");
      if (!status_.ok() || SecondsSince(start_) >= seconds_ || (max_reads_ > 0 && begun_ >= max_reads_)) {
        --running_;
        idle_.notify_all();  // under the lock: Run may return, and this end, as soon as the lock is free
        return;
      }
      place = &places_[begun_++ % places_.size()];
    }
    GetOptions options;
    options.range = place->range;
    options.stop = stop_;
    store_.Get(place->key, buffers_[lane].span().first(place->range.length), std::move(options),
               [this, lane, bytes = place->range.length](const absl::StatusOr<GetResult>& result) {
                 {
                   const std::lock_guard lock(mutex_);
                   if (result.ok()) {
                     ++rate_.reads;
                     rate_.bytes += bytes;
                     last_ = SecondsSince(start_);
                   } else if (status_.ok()) {
                     status_ = result.status();
                   }
                 }
                 Next(lane);
               });
  }

  ObjectStore& store_;
  const std::vector<ReadPlace>& places_;
  const double seconds_;
  const uint64_t max_reads_;
  const std::stop_token stop_;
  size_t largest_ = 0;
  std::vector<Buffer> buffers_;  // one for each lane
  RateClock::time_point start_;
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t running_ = 0;  // lanes that have not ended
  uint64_t begun_ = 0;
  double last_ = 0;  // when the last read ended
  ReadRate rate_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<ReadRate> MeasureReads(ObjectStore& store, const std::vector<ReadPlace>& places, int in_flight,
                                      double seconds, uint64_t max_reads, const std::stop_token& stop) {
  return ReadLanes(store, places, seconds, max_reads, stop).Run(in_flight);
}

absl::StatusOr<double> MeasureFirstByte(ObjectStore& store, const std::vector<ReadPlace>& places,
                                        const std::stop_token& stop) {
  std::vector<double> times;
  for (int i = -1; i < kFirstByteReads; ++i) {
    const ReadPlace& from = places[static_cast<size_t>(i + 1) % places.size()];
    const std::vector<ReadPlace> place = {{from.key, {from.range.offset, std::min<uint64_t>(1, from.range.length)}}};
    ASSIGN_OR_RETURN(const ReadRate rate, MeasureReads(store, place, 1, 60, 1, stop));
    if (i >= 0) times.push_back(rate.seconds);
  }
  return Spread::Of(std::move(times)).median;
}

absl::StatusOr<ListRate> MeasureListing(ObjectStore& store, const std::string& prefix, const std::stop_token& stop) {
  ListRate rate;
  ListOptions options;
  options.prefix = prefix;
  const RateClock::time_point start = RateClock::now();
  do {
    ASSIGN_OR_RETURN(const ListPage page, ListBlocking(store, options, stop));
    rate.objects += page.objects.size();
    ++rate.pages;
    rate.seconds = SecondsSince(start);
    options.continuation = page.continuation;
    rate.complete = page.continuation.empty();
  } while (!rate.complete && rate.seconds < kListSeconds);
  return rate;
}

}  // namespace millrace
