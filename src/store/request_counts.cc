#include "store/request_counts.h"

#include <array>
#include <string_view>

namespace millrace {

namespace {

constexpr std::array kCounts = {&RequestCounts::get,    &RequestCounts::head,      &RequestCounts::list,
                                &RequestCounts::put,    &RequestCounts::del,       &RequestCounts::retries,
                                &RequestCounts::hedges, &RequestCounts::bytes_read};

}  // namespace

RequestCounts RequestCounts::Of(const RequestCounters& counters) {
  return {.get = counters.get,
          .head = counters.head,
          .list = counters.list,
          .put = counters.put,
          .del = counters.del,
          .retries = counters.retries,
          .hedges = counters.hedges,
          .bytes_read = counters.bytes_read};
}

RequestCounts RequestCounts::operator-(const RequestCounts& earlier) const {
  RequestCounts difference = *this;
  for (const auto count : kCounts) difference.*count -= earlier.*count;
  return difference;
}

RequestCounts& RequestCounts::operator+=(const RequestCounts& other) {
  for (const auto count : kCounts) this->*count += other.*count;
  return *this;
}

Stores::Wrap StoreCounts::Watch() {
  return [this](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    Add(*below);
    return below;
  };
}

void StoreCounts::Add(const ObjectStore& store) {
  const std::lock_guard lock(mutex_);
  counters_.insert(&store.counters());
}

RequestCounts StoreCounts::Sum() const {
  const std::lock_guard lock(mutex_);
  RequestCounts sum;
  for (const RequestCounters* counters : counters_) sum += RequestCounts::Of(*counters);
  return sum;
}

void StoreCounts::Collect(MetricsText* text) const {
  if (const std::lock_guard lock(mutex_); counters_.empty()) return;
  const RequestCounts sum = Sum();
  const auto counter = [text](std::string_view name, std::string_view help, const MetricLabels& labels,
                              uint64_t count) { text->Counter(name, help, labels, static_cast<double>(count)); };
  const auto request = [&](std::string_view method, uint64_t count) {
    counter("millrace_store_requests_total", "Requests to stores, also those that were repeated.", {{"method", method}},
            count);
  };
  request("GET", sum.get);
  request("HEAD", sum.head);
  request("LIST", sum.list);
  request("PUT", sum.put);
  request("DELETE", sum.del);
  counter("millrace_store_retries_total", "Attempts beyond the first, which are among the requests.", {}, sum.retries);
  counter("millrace_store_hedges_total", "Second requests beside late ones, which are among the requests.", {},
          sum.hedges);
  counter("millrace_store_read_bytes_total", "Bytes of objects that were read from stores.", {}, sum.bytes_read);
}

}  // namespace millrace
