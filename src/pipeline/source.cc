#include "pipeline/source.h"

#include <algorithm>
#include <utility>

namespace millrace {

Source::Source(std::vector<Subset> parts) : parts_(std::move(parts)), first_{0} {
  for (const Subset& part : parts_) first_.push_back(first_.back() + part.size());
}

Source::Place Source::Find(uint64_t item) const {
  if (parts_.size() == 1) return {0, item};
  const auto after = std::upper_bound(first_.begin(), first_.end(), item);
  const auto part = static_cast<size_t>(after - first_.begin()) - 1;
  return {part, item - first_[part]};
}

uint64_t Source::SampleOf(uint64_t item) const {
  const auto [part, rank] = Find(item);
  return parts_[part].SampleAt(rank);
}

absl::Status Source::Lookup(uint64_t item, IndexedSample* out) const {
  const auto [part, rank] = Find(item);
  return parts_[part].index().Lookup(parts_[part].SampleAt(rank), out);
}

uint64_t Source::total_bytes() const {
  uint64_t bytes = 0;
  for (const Subset& part : parts_) bytes += part.total_bytes;
  return bytes;
}

uint64_t Source::max_span_bytes() const {
  uint64_t most = 0;
  for (const Subset& part : parts_) most = std::max(most, part.index().max_span_bytes());
  return most;
}

double Source::mean_span_bytes() const {
  return size() == 0 ? 0 : static_cast<double>(total_bytes()) / static_cast<double>(size());
}

std::string Source::uri() const {
  std::string uri;
  const Dataset* last = nullptr;
  for (const Subset& part : parts_) {
    if (part.dataset == last) continue;
    last = part.dataset;
    uri += (uri.empty() ? "" : " + ") + part.dataset->uri();
  }
  return uri;
}

}  // namespace millrace
