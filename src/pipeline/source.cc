#include "pipeline/source.h"

#include <algorithm>
#include <utility>

namespace millrace {

Source::Source(std::vector<Subset> parts) : parts_(std::move(parts)) {
  Number();
}

void Source::Number() {
  first_ = {0};
  for (size_t part = 0; part < parts_.size(); ++part) {
    first_.push_back(first_.back() + (rows_.empty() ? parts_[part].size() : rows_[part]->table().size()));
  }
}

absl::StatusOr<Source> Source::OfRows(Stores& stores, const Source& samples, const TokenOptions& options,
                                      const LongTask& task) {
  if (!options.buckets.empty() && samples.parts().size() > 1) {
    return absl::InvalidArgumentError(
        "buckets are of one data set: several ones, or classes of one, cannot be mixed by length; use pad, stream or "
        "pack");
  }
  Source source(std::vector<Subset>{});
  source.tokens_ = options;
  for (const Subset& part : samples.parts()) {
    ASSIGN_OR_RETURN(const std::vector<std::shared_ptr<const TokenRows>> tables, FindRows(stores, part, options, task));
    for (const std::shared_ptr<const TokenRows>& table : tables) {
      source.parts_.push_back(part);
      source.rows_.push_back(table);
    }
  }
  source.Number();
  return source;
}

uint64_t Source::FingerprintOf(size_t part) const {
  return rows_.empty() ? parts_[part].fingerprint() : rows_[part]->table().key();
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
  // Buckets are parts of the same samples.
  const size_t parts = tokens_ && !tokens_->buckets.empty() ? 1 : parts_.size();
  for (size_t part = 0; part < parts; ++part) bytes += parts_[part].total_bytes;
  return bytes;
}

uint64_t Source::max_item_bytes() const {
  uint64_t most = 0;
  for (size_t part = 0; part < parts_.size(); ++part) {
    most = std::max(most, rows_.empty() ? parts_[part].index().max_span_bytes() : rows_[part]->max_row_bytes());
  }
  return most;
}

double Source::MeanItemBytesOf(size_t part) const {
  if (!rows_.empty()) return rows_[part]->mean_row_bytes();
  const Subset& subset = parts_[part];  // its samples may be larger than those of the whole index
  return subset.size() == 0 ? 0 : static_cast<double>(subset.total_bytes) / static_cast<double>(subset.size());
}

double Source::mean_item_bytes() const {
  if (size() == 0) return 0;
  if (rows_.empty()) return static_cast<double>(total_bytes()) / static_cast<double>(size());
  double bytes = 0;
  for (const std::shared_ptr<const TokenRows>& rows : rows_) {
    bytes += rows->mean_row_bytes() * static_cast<double>(rows->table().size());
  }
  return bytes / static_cast<double>(size());
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
