#include "shard/tar_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "shard/sample_name.h"
#include "shard/testing/tar_builder.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // NOLINT: tar_builder.h

// Returns "name@offset+size", or the error.
std::vector<std::string> ReadNames(std::string_view archive, size_t chunk = 0) {
  const auto members = ReadMembers(archive, chunk);
  if (!members.ok()) return {members.status().ToString()};
  std::vector<std::string> out;
  for (const TarMember& m : *members) {
    out.push_back(fmt::format("{}{}@{}+{}", m.regular ? "" : "!", m.name, m.data_offset, m.size));
  }
  return out;
}

void ExpectError(std::string_view archive, absl::StatusCode code, std::string_view text) {
  for (const size_t chunk : {size_t{0}, size_t{1}, size_t{100}}) {
    const auto members = ReadMembers(archive, chunk);
    EXPECT_EQ(members.status().code(), code) << members.status().ToString();
    EXPECT_THAT(ToStd(members.status().message()), HasSubstr(text));
  }
}

TEST(TarReader, Ustar) {
  const std::string archive = Member("a.jpg", std::string(513, 'x')) + Member("b.txt", "") + End();
  EXPECT_THAT(ReadNames(archive), ElementsAre("a.jpg@512+513", "b.txt@2048+0"));
}

TEST(TarReader, ChunkSizeMakesNoDifference) {
  const std::string archive = Member("a.jpg", std::string(1300, 'x')) + Pax({"path=long/name.txt", "mtime=1.5"}) +
                              Member("b.txt", "hi") + Member("././@LongLink", std::string("gnu/name.cls\0", 13), 'L') +
                              Member("gnu", "7") + End();
  const auto whole = ReadNames(archive);
  ASSERT_EQ(whole.size(), 3u) << whole[0];
  for (size_t chunk = 1; chunk < 1200; ++chunk) EXPECT_EQ(ReadNames(archive, chunk), whole) << chunk;
}

TEST(TarReader, PrefixOnlyWithPosixMagic) {
  EXPECT_THAT(ReadNames(Header({.name = "b.jpg", .prefix = "dir/a"}) + End()), ElementsAre("dir/a/b.jpg@512+0"));
  const std::string gnu("ustar  \0", 8);
  EXPECT_THAT(ReadNames(Header({.name = "b.jpg", .magic = gnu, .prefix = "14300000000"}) + End()),
              ElementsAre("b.jpg@512+0"));
}

TEST(TarReader, FullFieldsWithoutNul) {
  const std::string name(100, 'n'), prefix(155, 'p');
  EXPECT_THAT(ReadNames(Header({.name = name, .prefix = prefix}) + End()), ElementsAre(prefix + "/" + name + "@512+0"));
}

TEST(TarReader, V7) {
  EXPECT_THAT(ReadNames(Header({.name = "a.jpg", .size = "         14 ", .type = '\0', .magic = ""}) +
                        std::string(512, 'x') + Header({.name = "dir.d/", .type = '\0', .magic = ""}) + End()),
              ElementsAre("a.jpg@512+12", "!dir.d/@1536+0"));
}

TEST(TarReader, SignedChecksumOfOldPrograms) {
  EXPECT_THAT(ReadNames(Header({.name = "\xe4.jpg", .signed_checksum = true}) + End()), ElementsAre("\xe4.jpg@512+0"));
}

TEST(TarReader, SizesInOctalAndBase256) {
  const auto read = [](std::string size) {
    TarReader reader;
    const auto event = reader.Advance(AsBytes(Header({.name = "a.jpg", .size = std::move(size)})));
    return event.ok() ? fmt::format("{}", reader.member().size) : event.status().ToString();
  };
  EXPECT_EQ(read("777777777777"), "68719476735");  // twelve digits, no terminator
  EXPECT_EQ(read(""), "0");
  EXPECT_EQ(read(std::string("\x80\0\0\0\0\0\0\x02\0\0\0\x01", 12)), "8589934593");
  EXPECT_EQ(read(std::string("\x80\0\0\0\x40\0\0\0\0\0\0\0", 12)), fmt::format("{}", uint64_t{1} << 62));
  EXPECT_THAT(read(std::string("\x80\0\0\0\x40\0\0\0\0\0\0\x01", 12)), HasSubstr("claims"));
  EXPECT_THAT(read(std::string("\x80\0\0\x01\0\0\0\0\0\0\0\0", 12)), HasSubstr("not a number"));
  EXPECT_THAT(read(std::string(12, '\xff')), HasSubstr("not a number"));  // -1
  EXPECT_THAT(read("0000000008"), HasSubstr("not a number"));
  EXPECT_THAT(read("-0000000001"), HasSubstr("not a number"));
  EXPECT_THAT(read("0x10"), HasSubstr("not a number"));
}

TEST(TarReader, PaxPathAndSize) {
  const std::string archive = Pax({"path=dir/\xc3\xa4.jpg", "size=600", "comment=a=b\nc"}) + Header({.name = "cut"}) +
                              std::string(1024, 'x') + Member("b.txt", "1") + End();
  EXPECT_THAT(ReadNames(archive), ElementsAre("dir/\xc3\xa4.jpg@1536+600", "b.txt@3072+1"));
}

TEST(TarReader, PaxGlobalAndLocal) {
  const std::string archive = Pax({"path=global.jpg"}, 'g') + Member("a.jpg", "") + Pax({"path=local.jpg"}) +
                              Member("b.jpg", "") + Pax({"path="}, 'g') + Member("c.jpg", "") + End();
  EXPECT_THAT(ReadNames(archive), ElementsAre("global.jpg@1536+0", "local.jpg@3072+0", "c.jpg@4608+0"));
}

TEST(TarReader, GnuLongNameAndLink) {
  const std::string name(300, 'n');
  const std::string archive = Member("././@LongLink", std::string(700, 't'), 'K') +
                              Member("././@LongLink", name + '\0', 'L') + Member("cut", "abc") +
                              Member("next.txt", "") + End();
  EXPECT_THAT(ReadNames(archive), ElementsAre(name + "@3072+3", "next.txt@4096+0"));
}

TEST(TarReader, OtherTypesAreNotRegularAndLinksHaveNoData) {
  // The hard link states a size but, as everywhere, has no data.
  const std::string archive = Header({.name = "hard.jpg", .size = Octal(5000), .type = '1'}) +
                              Header({.name = "dir.d/", .type = '5'}) + Member("contiguous.jpg", "abc", '7') +
                              Member("volume.x", "abc", 'V') + Member("a.jpg", "abc") + End();
  EXPECT_THAT(ReadNames(archive), ElementsAre("!hard.jpg@512+0", "!dir.d/@1024+0", "contiguous.jpg@1536+3",
                                              "!volume.x@2560+3", "a.jpg@3584+3"));
}

TEST(TarReader, ArchivesOneBehindTheOtherAreReadOn) {
  const std::string first = Member("a.jpg", "abc") + End();
  const std::string padded = Member("b.jpg", "") + std::string(7 * 512, '\0');  // as GNU tar pads to whole records
  for (const size_t chunk : {0, 1, 512, 700}) {
    EXPECT_THAT(ReadNames(first + padded + Member("c.jpg", "1") + std::string(512, '\0'), chunk),
                ElementsAre("a.jpg@512+3", "b.jpg@2560+0", "c.jpg@6656+1"));
    EXPECT_THAT(ReadNames(End() + first, chunk), ElementsAre("a.jpg@1536+3")) << "behind an empty one";
  }
  EXPECT_THAT(ReadNames(End()), ElementsAre());
}

TEST(TarReader, OnlyZerosOrAnArchiveMayFollowTheEnd) {
  const std::string first = Member("a.jpg", "") + std::string(512, '\0');
  for (const size_t zeros : {0, 1, 511, 512, 700, 5000})
    EXPECT_THAT(ReadNames(first + std::string(zeros, '\0')), ElementsAre("a.jpg@512+0")) << zeros;
  ExpectError(first + "garbage", absl::StatusCode::kDataLoss, "offset 1024: bytes that are not zero follow the end");
  ExpectError(first + std::string(1000, '\0') + "x", absl::StatusCode::kDataLoss,
              "offset 1536: bytes that are not zero follow the end");
  ExpectError(first + std::string(512, 'x') + End(), absl::StatusCode::kDataLoss, "offset 1024: bytes that are not");
  ExpectError(first + '\0' + Member("b.jpg", "") + End(), absl::StatusCode::kDataLoss, "offset 1024: bytes that are");
  ExpectError(first + Member("b.jpg", ""), absl::StatusCode::kDataLoss, "truncated");
  ExpectError(first + Member("b.jpg", "").substr(0, 100), absl::StatusCode::kDataLoss, "bytes that are not zero");
}

TEST(TarReader, WhatIsPendingEndsWithItsArchive) {
  const std::string global = Pax({"path=global.jpg"}, 'g') + Member("a.jpg", "") + End();
  EXPECT_THAT(ReadNames(global + Member("b.jpg", "") + End()), ElementsAre("global.jpg@1536+0", "b.jpg@3072+0"));
  const std::string dangling = Member("a.jpg", "") + Pax({"path=x.jpg"}) + Member("L", "y.jpg", 'L') + End();
  EXPECT_THAT(ReadNames(dangling + Member("b.jpg", "") + End()), ElementsAre("a.jpg@512+0", "b.jpg@4096+0"));
}

TEST(TarReader, SparseIsRefused) {
  ExpectError(Member("a.jpg", "", 'S') + End(), absl::StatusCode::kInvalidArgument, "'a.jpg' is a sparse file");
  ExpectError(Pax({"GNU.sparse.major=1"}) + Member("a.jpg", "") + End(), absl::StatusCode::kInvalidArgument, "sparse");
}

TEST(TarReader, NotATar) {
  ExpectError(std::string(600, 'x'), absl::StatusCode::kDataLoss, "not a tar archive");
  ExpectError("\x1f\x8b" + std::string(600, 'x'), absl::StatusCode::kInvalidArgument, "compressed with gzip");
  ExpectError("\x28\xb5\x2f\xfd" + std::string(600, 'x'), absl::StatusCode::kInvalidArgument, "compressed with zstd");
}

TEST(TarReader, EveryFlippedBitOfAHeaderIsNoticedOrHarmless) {
  const std::string good = Member("a.jpg", "abc") + Member("b.jpg", "abc") + End();
  const auto expected = ReadNames(good);
  for (size_t at = 1024; at < 1536; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      const auto members = ReadMembers(bad);
      if (members.ok()) {
        EXPECT_EQ(ReadNames(bad), expected) << at;  // in the checksum's own padding
        EXPECT_GE(at, 1024u + 148);
        EXPECT_LT(at, 1024u + 156);
      } else {
        EXPECT_THAT(members.status().ToString(), HasSubstr("offset 1024: corrupt tar header"));
      }
    }
  }
}

TEST(TarReader, EveryTruncationIsNoticed) {
  const std::string archive =
      Member("a.jpg", std::string(700, 'x')) + Pax({"path=b.jpg"}) + Member("cut", "abc") + End();
  const size_t end = archive.size() - 1024;  // from here on one whole block of zeros is enough
  for (size_t size = 0; size < end + 512; ++size) {
    const auto members = ReadMembers(std::string_view(archive).substr(0, size));
    ASSERT_EQ(members.status().code(), absl::StatusCode::kDataLoss) << size;
    ASSERT_THAT(members.status().ToString(), HasSubstr(fmt::format("offset {}: truncated", size)));
  }
  EXPECT_TRUE(ReadMembers(std::string_view(archive).substr(0, end + 512)).ok());
  ExpectError(archive.substr(0, 600), absl::StatusCode::kDataLoss, "'a.jpg' has 700 bytes from offset 512 on");
  ExpectError(archive.substr(0, 1536), absl::StatusCode::kDataLoss, "no end-of-archive block");
  ExpectError("", absl::StatusCode::kDataLoss, "truncated");
}

TEST(TarReader, CorruptPax) {
  for (const char* data :
       {"path=x\n", "99 path=x\n", "3 a\n", "9999999999999999999999 a=b\n", "8 path=x\n", "7 abcd\n", "0 a=b\n",
        "2 a=b\n", "-5 a=b\n", "16 size=0x10abc\n", "25 size=99999999999999999999\n", "abc"}) {
    ExpectError(Member("x", data, 'x') + Member("a.jpg", "") + End(), absl::StatusCode::kDataLoss,
                "corrupt PAX header");
  }
  ExpectError(Pax({std::string("path=a\0b.jpg", 12)}) + Member("a.jpg", "") + End(), absl::StatusCode::kDataLoss,
              "NUL in a path");
}

TEST(TarReader, LengthsAreBounded) {
  ExpectError(Header({.name = "x", .size = Octal((64 << 20) + 1), .type = 'x'}), absl::StatusCode::kDataLoss,
              "extended header of 67108865 bytes");
  ExpectError(Header({.name = "x", .size = "777777777777", .type = 'K'}), absl::StatusCode::kDataLoss,
              "extended header");
  const std::string name(kMaxNameBytes + 1, 'n');
  ExpectError(Pax({"path=" + name}) + Member("a", "") + End(), absl::StatusCode::kInvalidArgument, "at most 4096");
  ExpectError(Member("x", name, 'L') + Member("a", "") + End(), absl::StatusCode::kInvalidArgument, "at most 4096");
  ExpectError(Pax({"size=9223372036854775807"}) + Member("a", "") + End(), absl::StatusCode::kDataLoss, "claims");
}

TEST(TarReader, OffsetsNeverOverflow) {
  // Members of 2^61 bytes follow one another: they are refused before offsets wrap.
  TarReader reader;
  const std::string header = Header({.name = "a.jpg", .size = std::string("\x80\0\0\0\x20\0\0\0\0\0\0\0", 12)});
  for (int i = 0; i < 3; ++i) {
    const auto event = reader.Advance(AsBytes(header));
    if (i < 2) {
      ASSERT_TRUE(event.ok()) << event.status();
    } else {
      EXPECT_EQ(event.status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

TEST(TarReader, RandomDamageNeverCrashes) {
  const std::string good = Member("a.jpg", "abc") + Pax({"path=b.jpg", "size=3"}) + Member("b", "abc") +
                           Member("L", "name", 'L') + Member("c", "abc") + End();
  Rng rng(HashKey(1, {2}));
  for (int round = 0; round < 20000; ++round) {
    std::string bad = good;
    for (int i = 0; i < 3; ++i) {
      const size_t block = rng.Below(bad.size() / 512) * 512;
      bad[block + rng.Below(512)] = static_cast<char>(rng.Next());
    }
    (void)ReadNames(bad, rng.Below(700));
  }
}

}  // namespace
}  // namespace millrace
