#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "shard/testing/scan.h"
#include "shard/token_scanner.h"

// The input is an .idx of Megatron, after one byte that sets the size of the chunks. When it is odd, the offsets of the
// sequences are repaired first. A fuzzer hardly finds such offsets.

namespace {

using namespace millrace;  // NOLINT

constexpr uint64_t kCountsAt = 18;

void Repair(std::string& idx) {
  if (idx.size() < kMegatronHeadBytes) return;
  const auto code = static_cast<uint8_t>(idx[17]);
  const uint64_t sizes[] = {1, 1, 1, 2, 4, 8, 8, 4, 2};
  const auto sequences =
      std::min<uint64_t>(LoadLe<uint64_t>(idx.data() + kCountsAt), (idx.size() - kMegatronHeadBytes) / 12);
  StoreLe(idx.data() + kCountsAt, sequences);
  char* const lengths = idx.data() + kMegatronHeadBytes;
  uint64_t offset = 0;
  for (uint64_t i = 0; i < sequences; ++i) {
    StoreLe(lengths + 4 * sequences + 8 * i, offset);
    offset += uint64_t{LoadLe<uint32_t>(lengths + 4 * i)} * sizes[code % 9];
  }
}

absl::StatusOr<TokenSequences> Parse(std::string_view idx, size_t chunk) {
  MegatronIdxParser parser(idx.size());
  for (size_t at = 0; at < idx.size(); at += chunk) {
    const std::string_view part = idx.substr(at, chunk);
    const std::vector<char> copy(part.begin(), part.end());
    RETURN_IF_ERROR(parser.Feed(AsBytes({copy.data(), copy.size()})));
  }
  return parser.Finish();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  std::string idx(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) Repair(idx);
  const size_t chunk = 1 + data[0] * size_t{7};
  const absl::StatusOr<TokenSequences> sequences = Parse(idx, chunk);
  const absl::StatusOr<TokenSequences> whole = Parse(idx, idx.size() + 1);
  if (sequences.status() != whole.status()) std::abort();
  if (!sequences.ok()) {
    if (sequences.status().message().find("offset ") != 0) std::abort();
    return 0;
  }
  const uint64_t tokens = std::accumulate(sequences->lengths.begin(), sequences->lengths.end(), uint64_t{0});
  if (sequences->lengths != whole->lengths || tokens * sequences->type.size != sequences->bytes) std::abort();
  // The .bin is as long as they say, or it is the .idx itself, which has another length.
  const bool fits = sequences->bytes <= size_t{1} << 20;
  const std::string bin = fits ? std::string(sequences->bytes, 'x') : idx;
  testing::MustBeSound([&] { return TokenScanner::OfSequences(*sequences); }, bin, chunk);
  return 0;
}
