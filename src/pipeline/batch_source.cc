#include "pipeline/batch_source.h"

#include <algorithm>

namespace millrace {

MutableByteSpan Batch::Bytes(std::string_view name) const {
  const auto found = std::find_if(arrays.begin(), arrays.end(), [name](const auto& each) { return each.name == name; });
  return found == arrays.end() ? MutableByteSpan() : found->bytes;
}

void LoaderReport::Add(const Batch& batch) {
  samples += batch.valid;
  tokens += batch.token_count;
  token_places += batch.size * batch.length;
  digest += batch.digest;
  position = batch.position;
  const std::span<const uint64_t> parts = batch.Array<uint64_t>("part");
  if (parts.empty()) part_samples.front() += batch.valid;
  for (const uint64_t part : parts.first(parts.empty() ? 0 : batch.valid)) ++part_samples[part];
  quarantined += batch.quarantined.size();
  odd_images += batch.odd_images;
  const size_t room = kMaxQuarantineEntries - quarantine.size();
  const auto kept = static_cast<std::ptrdiff_t>(std::min(room, batch.quarantined.size()));
  quarantine.insert(quarantine.end(), batch.quarantined.begin(), batch.quarantined.begin() + kept);
}

}  // namespace millrace
