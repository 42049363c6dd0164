#include "shard/token_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/testing/token_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MegatronIdx;

constexpr uint8_t kUint16 = 8;

absl::StatusOr<TokenSequences> ParseIdx(const std::string& idx, size_t chunk = 1000) {
  MegatronIdxParser parser(idx.size());
  for (size_t at = 0; at < idx.size(); at += chunk) {
    RETURN_IF_ERROR(parser.Feed(AsBytes(std::string_view(idx).substr(at, chunk))));
  }
  return parser.Finish();
}

// Expects the error of an .idx in any chunks.
void ExpectRefused(const std::string& idx, absl::StatusCode code, std::string_view what) {
  for (const size_t chunk : {size_t{1}, size_t{7}, idx.size() + 1}) {
    const absl::Status status = ParseIdx(idx, chunk).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(status.ToString(), HasSubstr(std::string(what)));
  }
}

// Returns `idx` with a number in another's place.
template <typename T>
std::string With(std::string idx, size_t offset, T number) {
  idx.replace(offset, sizeof number, reinterpret_cast<const char*>(&number), sizeof number);
  return idx;
}

TEST(TokenFormat, WhatTheUserSays) {
  EXPECT_EQ(*ParseTokenArrays("2048"), (TokenArrays{2048, std::nullopt}));
  EXPECT_EQ(*ParseTokenArrays("1:uint16"), (TokenArrays{1, NumberType{NumberType::Kind::kUnsigned, 2}}));
  EXPECT_EQ(ToString(*ParseTokenArrays("7:float64")), "7:float64");
  EXPECT_EQ(ToString(*ParseTokenArrays("7")), "7");
  for (const char* other : {"", ":", "x", "0", "-1", "+1", "1 ", "1:", "1:u2", "1:uint16 ", "1:uint16:", "1:float8",
                            "67108865", "99999999999999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseTokenArrays(other).status())) << other;
  }
  EXPECT_TRUE(ParseTokenArrays("67108864").ok());
}

TEST(TokenFormat, Names) {
  EXPECT_TRUE(IsTokenArray("a/b.bin") && IsTokenArray("b.npy") && !IsTokenArray("b.npz") && !IsTokenArray("bin"));
  EXPECT_EQ(IdxOfBin("a.b/c.bin"), "a.b/c.idx");
  EXPECT_EQ(BinOfIdx("a.b/c.idx"), "a.b/c.bin");
}

TEST(MegatronIdx, ReadsLengths) {
  const std::string idx = MegatronIdx(kUint16, 2, {3, 0, 70'000, 1}, {0, 1, 4});
  for (const size_t chunk : {1, 7, 34, 1000}) {
    const absl::StatusOr<TokenSequences> sequences = ParseIdx(idx, chunk);
    ASSERT_TRUE(sequences.ok()) << sequences.status();
    EXPECT_EQ(NumpyName(sequences->type), "uint16");
    EXPECT_THAT(sequences->lengths, ElementsAre(3, 0, 70'000, 1));
    EXPECT_EQ(sequences->bytes, 2 * 70'004);
  }
  const absl::StatusOr<TokenSequences> none = ParseIdx(MegatronIdx(4, 4, {}, {}));
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_THAT(none->lengths, IsEmpty());
}

// There are more sequences than the parser looks at in one step.
TEST(MegatronIdx, ReadsManySequences) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 50'000; ++i) lengths.push_back(i % 97);
  const std::string idx = MegatronIdx(5, 8, lengths, {0, 50'000}, std::string(lengths.size(), '\1'));
  const absl::StatusOr<TokenSequences> sequences = ParseIdx(idx, 10'007);
  ASSERT_TRUE(sequences.ok()) << sequences.status();
  EXPECT_TRUE(std::equal(lengths.begin(), lengths.end(), sequences->lengths.begin(), sequences->lengths.end()));
  EXPECT_LE(sequences->lengths.capacity() * sizeof(uint32_t), MegatronIdxParser::MemoryBytes(idx.size()));
}

TEST(MegatronIdx, KnowsAllTypes) {
  const std::string_view names[] = {"uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
  for (uint8_t code = 1; code <= 8; ++code) {
    EXPECT_EQ(NumpyName(ParseIdx(MegatronIdx(code, 1, {0}, {0, 1}))->type), names[code - 1]);
  }
  for (const uint8_t code : {0, 9, 255}) {
    ExpectRefused(MegatronIdx(code, 1, {0}, {}), absl::StatusCode::kDataLoss, "offset 17: tokens of the unknown type");
  }
}

TEST(MegatronIdx, RefusesWhatIsDamaged) {
  const std::string good = MegatronIdx(kUint16, 2, {3, 4}, {0, 2});
  ExpectRefused("", absl::StatusCode::kDataLoss, "offset 0: the .idx is truncated");
  ExpectRefused(good.substr(0, 33), absl::StatusCode::kDataLoss, "offset 33: the .idx is truncated");
  for (const size_t size : {size_t{34}, good.size() - 1, good.size() - 8, good.size() - 16}) {
    ExpectRefused(good.substr(0, size), absl::StatusCode::kDataLoss, "truncated");
  }
  ExpectRefused(good + "x", absl::StatusCode::kDataLoss, "truncated or damaged");
  ExpectRefused("TNTIDX" + good.substr(6), absl::StatusCode::kInvalidArgument, "offset 0: this is no .idx of Megatron");
  ExpectRefused(With(good, 9, uint64_t{2}), absl::StatusCode::kInvalidArgument, "offset 9: an .idx of version 2");
  ExpectRefused(With(good, 18, UINT64_MAX), absl::StatusCode::kDataLoss, "do not make an .idx of 74 bytes");
  ExpectRefused(With(good, 18, uint64_t{1} << 62), absl::StatusCode::kDataLoss, "do not make an .idx of 74 bytes");
  ExpectRefused(With(good, 26, uint64_t{1} << 61), absl::StatusCode::kDataLoss, "do not make an .idx of 74 bytes");
}

TEST(MegatronIdx, RefusesSequencesAndDocumentsThatMakeNoSense) {
  const std::string good = MegatronIdx(kUint16, 2, {3, 4}, {0, 2});
  ExpectRefused(With(good, 38, int32_t{-4}), absl::StatusCode::kDataLoss, "offset 38: sequence 1 has -4 tokens");
  ExpectRefused(With(good, 38, INT32_MAX), absl::StatusCode::kInvalidArgument, "at most 268435456 are read");
  ExpectRefused(With(good, 42, int64_t{2}), absl::StatusCode::kDataLoss, "offset 42: sequence 0 would begin at 2");
  ExpectRefused(With(good, 50, int64_t{-6}), absl::StatusCode::kDataLoss, "offset 50: sequence 1 would begin at -6");
  ExpectRefused(With(good, 50, int64_t{8}), absl::StatusCode::kDataLoss, "those before it end at 6");
  ExpectRefused(With(good, 66, int64_t{3}), absl::StatusCode::kDataLoss,
                "offset 66: a document would begin at sequence 3");
  ExpectRefused(With(With(good, 58, int64_t{2}), 66, int64_t{1}), absl::StatusCode::kDataLoss, "after one at 2");
  ExpectRefused(With(good, 58, int64_t{-1}), absl::StatusCode::kDataLoss, "offset 58");
}

}  // namespace
}  // namespace millrace
