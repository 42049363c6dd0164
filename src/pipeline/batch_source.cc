#include "pipeline/batch_source.h"

#include <algorithm>

namespace millrace {

void LoaderReport::Add(const Batch& batch) {
  samples += batch.valid;
  tokens += batch.token_count;
  token_places += batch.size * batch.length;
  digest += batch.digest;
  position = batch.position;
  if (batch.parts.empty()) {
    part_samples.front() += batch.valid;
  } else {
    for (const uint64_t part : batch.parts.first(batch.valid)) ++part_samples[part];
  }
  quarantined += batch.quarantined.size();
  const size_t room = kMaxQuarantineEntries - quarantine.size();
  const auto kept = static_cast<std::ptrdiff_t>(std::min(room, batch.quarantined.size()));
  quarantine.insert(quarantine.end(), batch.quarantined.begin(), batch.quarantined.begin() + kept);
}

}  // namespace millrace
