#include "channel/record_framer.h"

#include <gtest/gtest.h>

#include <tuple>
#include <utility>
#include <vector>

namespace millrace {
namespace {

using Parts = std::vector<std::pair<uint32_t, std::string>>;  // kind and data

/// Reads frames as the readers of Pipe mode do: by their lengths.
Parts ReadParts(std::string_view text) {
  Parts parts;
  while (!text.empty()) {
    EXPECT_GE(text.size(), 8u);
    if (text.size() < 8) return parts;
    EXPECT_EQ(LoadLe<uint32_t>(text.data()), kRecordIoMagic);
    const uint32_t head = LoadLe<uint32_t>(text.data() + 4);
    const uint32_t length = head & kRecordIoMaxLength;
    const size_t padded = (length + 3) / 4 * 4;
    EXPECT_GE(text.size(), 8 + padded);
    if (text.size() < 8 + padded) return parts;
    parts.emplace_back(head >> kRecordIoLengthBits, text.substr(8, length));
    for (size_t i = length; i < padded; ++i) EXPECT_EQ(text[8 + i], '\0');
    text.remove_prefix(8 + padded);
  }
  return parts;
}

std::string Frame(const std::string& data, bool known, size_t piece, uint64_t max_part, uint64_t held) {
  std::string out;
  const auto sink = [&](ByteSpan bytes) {
    out.append(AsText(bytes));
    return absl::OkStatus();
  };
  RecordFramer framer(known ? std::optional<uint64_t>(data.size()) : std::nullopt, max_part, held);
  for (size_t at = 0; at < data.size(); at += piece)
    EXPECT_TRUE(framer.Append(AsBytes(std::string_view(data).substr(at, piece)), sink).ok());
  EXPECT_TRUE(framer.End(sink).ok());
  return out;
}

TEST(RecordFramer, AllCutsOfAllLengths) {
  for (const bool known : {false, true}) {
    for (size_t length = 0; length <= 20; ++length) {
      std::string data;
      for (size_t i = 0; i < length; ++i) data += static_cast<char>('a' + i);
      for (const size_t piece : {1, 3, 8, 64}) {
        const Parts parts = ReadParts(Frame(data, known, piece, 8, 8));
        std::string joined;
        for (size_t i = 0; i < parts.size(); ++i) {
          const bool first = i == 0, last = i + 1 == parts.size();
          EXPECT_EQ(parts[i].first, first && last ? 0u : first ? 1u : last ? 3u : 2u);
          EXPECT_TRUE(last || parts[i].second.size() == 8);
          joined += parts[i].second;
        }
        EXPECT_EQ(joined, data);
        EXPECT_EQ(parts.size(), length == 0 ? 1 : (length + 7) / 8);
      }
    }
  }
}

TEST(RecordFramer, ARecordWithTheMagicIsNotCut) {
  std::string data(4, 'x');
  AppendLe(data, kRecordIoMagic);
  data += "yz";
  for (const bool known : {false, true}) {
    EXPECT_EQ(ReadParts(Frame(data, known, 5, RecordFramer::kMaxPartBytes, 64)), (Parts{{0, data}}));
  }
}

TEST(RecordFramer, HoldsAnObjectToItsLength) {
  const auto sink = [](ByteSpan) { return absl::OkStatus(); };
  RecordFramer more(3);
  EXPECT_TRUE(absl::IsDataLoss(more.Append(AsBytes("abcd"), sink)));
  RecordFramer fewer(3);
  EXPECT_TRUE(fewer.Append(AsBytes("ab"), sink).ok());
  EXPECT_TRUE(absl::IsDataLoss(fewer.End(sink)));
}

}  // namespace
}  // namespace millrace
