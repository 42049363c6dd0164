#include "shard/token_scanner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shard/npy.h"
#include "shard/testing/scan.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::Scanned;
using testing::ScanShard;

const NumberType kUint16Type{NumberType::Kind::kUnsigned, 2};

std::string NpyFile(std::string_view type, const std::vector<uint64_t>& shape, std::string_view values) {
  std::string file;
  AppendNpyHead(file, *ParseNumberType(type), shape);
  return file.append(values);
}

// Returns "offset+length encoding" of each sample, and the error if there is one; the same in chunks of any size.
template <typename Make>
std::vector<std::string> Describe(Make make_scanner, const std::string& file) {
  std::vector<std::string> first;
  for (const size_t chunk : {size_t{1}, size_t{3}, size_t{64}, file.size() + 1}) {
    const Scanned scanned = ScanShard(make_scanner(), file, chunk);
    EXPECT_TRUE(testing::IsSound(scanned, file)) << scanned.status;
    std::vector<std::string> found;
    for (const ShardSample& sample : scanned.samples) {
      EXPECT_EQ(sample.fields.size(), 1);
      EXPECT_EQ(sample.fields[0].name, "tokens");
      EXPECT_EQ(sample.key, "");
      found.push_back(std::to_string(sample.span.offset) + "+" + std::to_string(sample.span.length) + " " +
                      sample.fields[0].encoding);
    }
    if (!scanned.status.ok()) found.push_back(scanned.status.ToString());
    if (chunk > 1) {
      EXPECT_EQ(found, first) << chunk;
    }
    first = found;
  }
  return first;
}

std::vector<std::string> OfSequences(std::vector<uint32_t> lengths, const std::string& file) {
  return Describe([&] { return TokenScanner::OfSequences({.type = kUint16Type, .lengths = lengths, .bytes = 0}); },
                  file);
}

std::vector<std::string> OfBin(uint64_t length, const std::string& file) {
  return Describe([&] { return TokenScanner::OfBin({.length = length, .type = kUint16Type}); }, file);
}

std::vector<std::string> OfNpy(TokenArrays arrays, const std::string& file) {
  TokenArrays used;  // outlives the scanners
  return Describe(
      [&] {
        used = arrays;
        return TokenScanner::OfNpy(used);
      },
      file);
}

TEST(TokenScanner, Sequences) {
  EXPECT_THAT(OfSequences({3, 1}, "aabbccdd"), ElementsAre("0+6 u2s", "6+2 u2s"));
  EXPECT_THAT(OfSequences({}, ""), IsEmpty());
  // Sequences without tokens are at the start, in the middle and at the end.
  EXPECT_THAT(OfSequences({0, 1, 0, 0, 1, 0}, "aabb"),
              ElementsAre("0+0 u2s", "0+2 u2s", "2+0 u2s", "2+0 u2s", "2+2 u2s", "4+0 u2s"));
  EXPECT_THAT(OfSequences({0, 0}, ""), ElementsAre("0+0 u2s", "0+0 u2s"));
  EXPECT_THAT(
      OfSequences({1, 2}, "aabb"),
      ElementsAre("0+2 u2s", HasSubstr("offset 4: the file is truncated: 2 bytes of a sample are there, 2 are")));
  EXPECT_THAT(OfSequences({1}, "aabb"), ElementsAre("0+2 u2s", HasSubstr("offset 2: bytes follow the last of its 1")));
}

TEST(TokenScanner, HeadlessArrays) {
  EXPECT_THAT(OfBin(2, "aabbccdd"), ElementsAre("0+4 u2s", "4+4 u2s"));
  EXPECT_THAT(OfBin(3, "aabbccdd"), ElementsAre("0+6 u2s", "6+2 u2s"));
  EXPECT_THAT(OfBin(1000, "aabb"), ElementsAre("0+4 u2s"));
  EXPECT_THAT(OfBin(2, ""), IsEmpty());
  EXPECT_THAT(OfBin(2, "aabbc"),
              ElementsAre("0+4 u2s", HasSubstr("offset 5: the array is truncated, or not of uint16")));
}

TEST(TokenScanner, NpyFiles) {
  EXPECT_THAT(OfNpy({.length = 2}, NpyFile("u2", {3}, "aabbcc")), ElementsAre("128+4 u2s", "132+2 u2s"));
  EXPECT_THAT(OfNpy({.length = 3, .type = kUint16Type}, NpyFile("u2", {3}, "aabbcc")), ElementsAre("128+6 u2s"));
  EXPECT_THAT(OfNpy({.length = 1}, NpyFile("i8", {2}, "aaaaaaaabbbbbbbb")), ElementsAre("128+8 i8s", "136+8 i8s"));
  EXPECT_THAT(OfNpy({.length = 2}, NpyFile("u1", {2, 2}, "abcd")), ElementsAre("128+2 u1s", "130+2 u1s"));
  EXPECT_THAT(OfNpy({.length = 2}, NpyFile("u1", {0}, "")), IsEmpty());
  EXPECT_THAT(OfNpy({.length = 2}, NpyFile("u1", {0, 2}, "")), IsEmpty());
}

TEST(TokenScanner, NpyFilesOfOtherVersions) {
  const std::string one = NpyFile("u2", {2}, "aabb");
  for (const char version : {'\2', '\3'}) {
    std::string two = one.substr(0, 6) + version + one.substr(7, 3) + std::string(2, '\0') + one.substr(10);
    EXPECT_THAT(OfNpy({.length = 2}, two), ElementsAre("130+4 u2s"));
  }
  std::string four = one;
  four[6] = 4;
  EXPECT_THAT(OfNpy({.length = 2}, four), ElementsAre(HasSubstr("offset 6: an .npy file of version 4")));
}

TEST(TokenScanner, RefusesNpyFiles) {
  const auto refused = [](const std::string& file, std::string_view what) {
    EXPECT_THAT(OfNpy({.length = 2}, file), ElementsAre(HasSubstr(std::string(what))));
  };
  const std::string good = NpyFile("u2", {4}, "aabbccdd");
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string file = good;
    file.replace(file.find(from), from.size(), to);
    return file;
  };
  refused("", "offset 0: the .npy file is truncated");
  refused(good.substr(0, 50), "offset 50: the .npy file is truncated");
  refused("x" + good.substr(1), "offset 0: this is not an .npy file");
  refused(with("<u2", ">u2"), "offset 0: its numbers are big-endian ('>u2')");
  refused(with("'<u2'", "'|O' "), "offset 0");
  refused(with("<u2", "|O8"), "it holds Python objects ('|O8'), whose pickles can run any code");
  refused(with("<u2", "<c8"), "its values are of type '<c8'");
  refused(with("'<u2'", "[('"), "an array of records");
  refused(with("False, ", "True,  "), "offset 0");
  refused(NpyFile("u2", {}, "aa"), "an array with 0 axes");
  refused(NpyFile("u2", {1, 1, 2}, "aabb"), "an array with 3 axes");
  refused(NpyFile("u2", {2, 3}, "aabbccddeeff"), "its rows have 3 tokens, not 2: index it with --tokens 3");
  refused(NpyFile("u2", {uint64_t{1} << 62, 2}, ""), "more numbers than any object");
  EXPECT_THAT(OfNpy({.length = 2, .type = kUint16Type}, NpyFile("i4", {1}, "aaaa")),
              ElementsAre(HasSubstr("its numbers are int32; a data set has tokens of one type")));
  EXPECT_THAT(OfNpy({.length = 3}, good.substr(0, good.size() - 1)),
              ElementsAre("128+6 u2s", HasSubstr("offset 135: the file is truncated: 1 bytes of a sample are there")));
  EXPECT_THAT(OfNpy({.length = 3}, good + "x"),
              ElementsAre("128+6 u2s", "134+2 u2s", HasSubstr("offset 136: bytes follow the last of its 2 samples")));
}

TEST(TokenScanner, FortranOrderIsRefused) {
  std::string file = NpyFile("u2", {2, 2}, "aabbccdd");
  const size_t at = file.find("False");
  file.replace(at, 5, "True");
  file.insert(file.find('}') + 1, " ");
  EXPECT_THAT(OfNpy({.length = 2}, file), ElementsAre(HasSubstr("it is in Fortran order")));
}

TEST(TokenScanner, TheFirstNpyFileSaysTheType) {
  TokenArrays arrays{.length = 2, .type = std::nullopt};
  EXPECT_TRUE(ScanShard(TokenScanner::OfNpy(arrays), NpyFile("u2", {1}, "aa"), 9).status.ok());
  EXPECT_EQ(arrays.type, kUint16Type);
}

}  // namespace
}  // namespace millrace
