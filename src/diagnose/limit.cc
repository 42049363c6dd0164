#include "diagnose/limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace millrace {

namespace {

// If at least this share of the CPUs was busy, more threads do not help.
constexpr double kBusy = 0.8;

/// `busy_cpus` are those of all programs: a CPU that another one uses is not free.
LimitedBy LimitOf(StallCause cause, double busy_cpus, int threads, int cpus) {
  switch (cause) {
    case StallCause::kDecode:
      return threads < cpus && busy_cpus < kBusy * cpus ? LimitedBy::kThreads : LimitedBy::kCpu;
    case StallCause::kQueue:
    case StallCause::kCredentials:
    case StallCause::kConnect:
    case StallCause::kFirstByte:
      return LimitedBy::kLatency;
    case StallCause::kBody:
    case StallCause::kIndex:  // shards are read for it
      return busy_cpus >= kBusy * cpus ? LimitedBy::kCpu : LimitedBy::kThroughput;
    case StallCause::kThrottling:
      return LimitedBy::kThrottling;
    case StallCause::kOutage:
      return LimitedBy::kOutage;
    case StallCause::kBudget:
      return LimitedBy::kMemory;
    case StallCause::kConsumer:
    case StallCause::kWorker:  // what is measured has none
      break;
  }
  return LimitedBy::kNothing;
}

/// "1.2 of 2 CPUs were busy with it and 0.6 with other programs".
std::string BusyText(const BenchSummary& measured, int cpus) {
  const double own = measured.busy_cpus.median;
  const double other = measured.other_busy_cpus.median;
  std::string text = fmt::format("{:.1f} of {} CPUs were busy with it", own, cpus);
  if (other >= 0.05 * cpus) text += fmt::format(" and {:.1f} with other programs", other);
  return text;
}

std::string Sentence(const PipelineLimit& limit, std::string_view cause, const BenchSummary& measured, int threads,
                     int cpus) {
  const double percent = 100 * limit.share;
  const std::string busy = BusyText(measured, cpus);
  switch (limit.by) {
    case LimitedBy::kCpu:
      return fmt::format(
          "The CPU limits this pipeline: {}, and {:.0f} % of the waiting was for {}; more CPUs or smaller images would "
          "make it faster, a faster store would not.",
          busy, percent, cause);
    case LimitedBy::kThreads:
      return fmt::format(
          "The number of decoding threads, {}, limits this pipeline: {}, and {:.0f} % of the waiting was for {}; more "
          "threads would make it faster.",
          threads, busy, percent, cause);
    case LimitedBy::kLatency:
      return fmt::format(
          "The store's latency limits this pipeline: {:.0f} % of the waiting was for {}. A larger memory budget, which "
          "allows more requests ahead, or larger shards would make it faster; more CPUs would not.",
          percent, cause);
    case LimitedBy::kThroughput:
      return fmt::format(
          "The throughput of the store or the network limits this pipeline: {:.0f} % of the waiting was for {}, while "
          "{}. A faster network or smaller samples would make it faster; more CPUs would not.",
          percent, cause, busy);
    case LimitedBy::kThrottling:
      return fmt::format(
          "The store throttles this pipeline: {:.0f} % of the waiting was for its permission to continue. Fewer and "
          "larger requests (pack small objects into shards), or keys under more prefixes, would make it faster.",
          percent);
    case LimitedBy::kOutage:
      return fmt::format(
          "The store was away for a part of the measurement: {:.0f} % of the waiting was for its return; measure again "
          "when it is back.",
          percent);
    case LimitedBy::kMemory:
      return fmt::format(
          "The memory budget limits this pipeline: {:.0f} % of the waiting was for room for fetched bytes; raise "
          "--memory.",
          percent);
    case LimitedBy::kNothing:
      break;
  }
  return "Nothing limited this pipeline: batches were ready before the consumer asked for them.";
}

/// The cause as the reader of a sentence calls it.
std::string_view CauseText(StallCause cause) {
  switch (cause) {
    case StallCause::kQueue:
      return "a free connection";
    case StallCause::kCredentials:
      return "credentials";
    case StallCause::kConnect:
      return "connecting";
    case StallCause::kFirstByte:
      return "first bytes";
    case StallCause::kBody:
      return "bytes in transfer";
    case StallCause::kThrottling:
      return "throttling";
    case StallCause::kOutage:
      return "a store that is away";
    case StallCause::kBudget:
      return "memory";
    case StallCause::kDecode:
      return "decoding";
    case StallCause::kConsumer:
      return "the consumer";
    case StallCause::kWorker:
      return "workers";
    case StallCause::kIndex:
      return "the index of a later stage";
  }
  return "";
}

}  // namespace

PipelineLimit FindLimit(const BenchSummary& measured, int threads, int cpus) {
  const auto largest = std::max_element(measured.stalls.begin(), measured.stalls.end());
  const double waited = std::accumulate(measured.stalls.begin(), measured.stalls.end(), 0.0);
  const double busy = measured.busy_cpus.median + measured.other_busy_cpus.median;
  PipelineLimit limit;
  if (!ConsumerLimits(waited, measured.seconds)) {
    const auto cause = static_cast<StallCause>(largest - measured.stalls.begin());
    limit.share = *largest / waited;
    limit.by = LimitOf(cause, busy, threads, cpus);
    limit.sentence = Sentence(limit, CauseText(cause), measured, threads, cpus);
  } else {
    limit.sentence = Sentence(limit, "", measured, threads, cpus);
  }
  return limit;
}

}  // namespace millrace
