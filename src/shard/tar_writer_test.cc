#include "shard/tar_writer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/crypto.h"
#include "base/rng.h"
#include "shard/sample_name.h"
#include "shard/testing/tar_builder.h"

namespace millrace {
namespace {

using ::testing::HasSubstr;

std::string Archive(const std::vector<std::pair<std::string, std::string>>& members) {
  std::string out;
  for (const auto& [name, data] : members) {
    const size_t before = out.size();
    EXPECT_TRUE(AppendTarHeader(out, name, data.size()).ok());
    EXPECT_EQ(TarHeaderBytes(name, data.size()).value(), out.size() - before);
    out.append(data);
    AppendTarPadding(out, data.size());
    EXPECT_EQ(out.size() % kTarBlock, 0u);
  }
  AppendTarEnd(out);
  return out;
}

TEST(TarWriter, GoldenBytes) {
  // Frozen: packing the same data must give the same bytes in every version.
  const std::string archive =
      Archive({{"cat/0001.jpg", "abc"}, {"cat/0001.cls", ""}, {std::string(200, 'x') + ".jpg", "1"}});
  EXPECT_EQ(archive.size(), 4608u);
  EXPECT_EQ(HexEncode(Sha256(AsBytes(archive))), "0bf8c9b713cffc8f22ba9b3f86cbadf78e1e4e64bc9c756cf119966f6390728b");
}

TEST(TarWriter, PlainUstarWhereverItFits) {
  EXPECT_EQ(TarHeaderBytes(std::string(100, 'a'), 1).value(), 512u);
  EXPECT_EQ(TarHeaderBytes(std::string(155, 'd') + "/" + std::string(100, 'a'), 1).value(), 512u);
  EXPECT_EQ(TarHeaderBytes("a", (uint64_t{1} << 33) - 1).value(), 512u);
  EXPECT_EQ(TarHeaderBytes(std::string(101, 'a'), 1).value(), 1536u);
  EXPECT_EQ(TarHeaderBytes("/" + std::string(100, 'a'), 1).value(), 1536u) << "an empty prefix would lose the slash";
  EXPECT_EQ(TarHeaderBytes("a", uint64_t{1} << 33).value(), 1536u);
}

TEST(TarWriter, LargeSizesNeedPax) {
  std::string out;
  ASSERT_TRUE(AppendTarHeader(out, "a.bin", uint64_t{1} << 40).ok());
  TarReader reader;
  ASSERT_EQ(reader.Advance(AsBytes(out)).value(), TarReader::Event::kMember);
  EXPECT_EQ(reader.member().size, uint64_t{1} << 40);
  EXPECT_EQ(reader.member().name, "a.bin");
}

TEST(TarWriter, RefusesBadNames) {
  std::string out;
  EXPECT_THAT(AppendTarHeader(out, "", 0).ToString(), HasSubstr("needs a name"));
  EXPECT_THAT(AppendTarHeader(out, std::string("a\0b", 3), 0).ToString(), HasSubstr("NUL"));
  EXPECT_THAT(AppendTarHeader(out, std::string(kMaxNameBytes + 1, 'a'), 0).ToString(), HasSubstr("4097 bytes"));
  EXPECT_EQ(AppendTarHeader(out, "a", kTarMaxOffset + 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(out.empty());
}

// The names have every length around the borders of name, prefix and the digits of PAX lengths; names and data are
// random.
TEST(TarWriter, ReaderGetsBackWhatWasWritten) {
  Rng rng(HashKey(3, {4}));
  for (int round = 0; round < 400; ++round) {
    std::vector<std::pair<std::string, std::string>> members;
    const uint64_t count = rng.Below(6);
    for (uint64_t i = 0; i < count; ++i) {
      std::string name(1 + (rng.Below(3) == 0 ? rng.Below(kMaxNameBytes) : rng.Below(300)), ' ');
      for (char& c : name) c = rng.Below(9) == 0 ? '/' : static_cast<char>(1 + rng.Below(255));
      std::string data(rng.Below(2000), '\0');
      for (char& c : data) c = static_cast<char>(rng.Next());
      members.emplace_back(std::move(name), std::move(data));
    }
    const std::string archive = Archive(members);
    const auto read = testing::ReadMembers(archive, rng.Below(2000));
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(read->size(), members.size());
    for (size_t i = 0; i < members.size(); ++i) {
      EXPECT_EQ((*read)[i].name, members[i].first);
      EXPECT_TRUE((*read)[i].regular);
      EXPECT_EQ(archive.substr((*read)[i].data_offset, (*read)[i].size), members[i].second);
    }
  }
}

TEST(TarWriter, AllNameLengths) {
  for (size_t length = 1; length <= 1100; ++length) {
    for (const bool slashes : {false, true}) {
      std::string name(length, 'a');
      if (slashes) {
        for (size_t i = 30; i < length; i += 31) name[i] = '/';
      }
      const auto read = testing::ReadMembers(Archive({{name, "x"}}));
      ASSERT_TRUE(read.ok()) << read.status();
      ASSERT_EQ(read->front().name, name);
    }
  }
}

}  // namespace
}  // namespace millrace
