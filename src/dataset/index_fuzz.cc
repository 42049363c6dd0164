#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "dataset/index.h"
#include "dataset/index_format.h"

// The input is an index file. Its checksums are repaired first at the places that its own tables name: a fuzzer cannot
// guess them, and the code behind them must work without their help. If the first byte is odd, they are not repaired;
// its next bit makes the file one of the older version.

namespace {

using namespace millrace;                // NOLINT
using namespace millrace::index_format;  // NOLINT

void RepairBlocks(std::string& file, BlockKind kind, uint64_t table, uint64_t items) {
  for (uint64_t number = 0; number * kBlockItems < items; ++number) {
    const uint64_t entry = table + number * kTableEntryBytes;
    if (entry > file.size() || file.size() - entry < kTableEntryBytes) return;
    const auto offset = LoadLe<uint64_t>(file.data() + entry);
    if (offset > file.size() || file.size() - offset < kBlockHeaderBytes) continue;
    const uint64_t length = LoadLe<uint32_t>(file.data() + offset + 4);
    const uint64_t begin = offset + kBlockHeaderBytes;
    if (length > file.size() - begin) continue;
    StoreLe(file.data() + offset, BlockCrc(kind, number, AsBytes(file).subspan(begin, length)));
  }
}

void Repair(std::string& file, uint32_t version) {
  if (file.size() < kHeadBytes + kFootBytes) return;
  file.replace(0, kHeadMagic.size(), kHeadMagic);
  char* foot = file.data() + file.size() - kFootBytes;
  StoreLe(file.data() + 8, version);
  StoreLe(file.data() + 12, Crc32c(AsBytes(file).first(12)));
  RepairBlocks(file, BlockKind::kSamples, LoadLe<uint64_t>(foot + kFootSampleTable),
               LoadLe<uint64_t>(foot + kFootSamples));
  RepairBlocks(file, BlockKind::kObjects, LoadLe<uint64_t>(foot + kFootObjectTable),
               LoadLe<uint64_t>(foot + kFootObjects));
  const auto names = LoadLe<uint64_t>(foot + kFootNames);
  const auto names_bytes = LoadLe<uint64_t>(foot + kFootNamesBytes);
  if (names <= file.size() && names_bytes <= file.size() - names) {
    StoreLe(foot + kFootNamesCrc, Crc32c(AsBytes(file).subspan(names, names_bytes)));
  }
  const size_t begin = version == kOlderVersion ? kFootSamples : kFootWithoutCrc;
  StoreLe(foot + kFootCrc, Crc32c({reinterpret_cast<const std::byte*>(foot) + begin, kFootCrc - begin}));
  std::copy(kFootMagic.begin(), kFootMagic.end(), foot + kFootMagicAt);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string file(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) Repair(file, data[0] / 2 % 2 == 0 ? kVersion : kOlderVersion);
  const auto index = Index::FromBytes(std::move(file));
  if (!index.ok()) return 0;
  (void)(*index)->Verify();
  IndexedSample sample;
  for (uint64_t i = 0; i < std::min<uint64_t>((*index)->size(), 200); ++i) {
    if (!(*index)->Lookup(i, &sample).ok()) continue;
    // The result must be consistent in itself.
    if (sample.object >= (*index)->objects() || sample.span.end() < sample.span.offset) std::abort();
    if (sample.span.length > (*index)->max_span_bytes()) std::abort();
    for (const IndexedField& field : sample.fields) {
      if (field.is_inline ? field.inline_text.size() != field.length : field.offset + field.length > sample.span.length)
        std::abort();
    }
    if (sample.label && *sample.label >= (*index)->class_counts().size()) std::abort();
  }
  uint64_t block = 0;
  for (uint64_t i = 0; i < std::min<uint64_t>((*index)->objects(), 200); ++i) {
    (void)(*index)->ScanObject(static_cast<uint32_t>(i), &block, [](const NewSample& told) {
      if (told.fields.empty()) std::abort();
      return absl::OkStatus();
    });
  }
  IndexedObject object;
  for (uint64_t i = 0; i < std::min<uint64_t>((*index)->objects(), 200); ++i)
    (void)(*index)->LookupObject(static_cast<uint32_t>(i), &object);
  return 0;
}
