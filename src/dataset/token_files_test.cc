#include "dataset/token_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "dataset/testing/data_place.h"
#include "shard/npy.h"
#include "shard/testing/token_builder.h"
#include "store/blocking.h"

namespace millrace {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MegatronIdx;
namespace fs = std::filesystem;

constexpr uint8_t kUint8 = 1;

std::string Npy(std::string_view type, const std::vector<uint64_t>& shape, std::string_view values) {
  std::string file;
  AppendNpyHead(file, *ParseNumberType(type), shape);
  return file.append(values);
}

class TokenFilesTest : public ::testing::TestWithParam<std::string>, protected testing::DataPlace {
 protected:
  TokenFilesTest() : DataPlace(GetParam()) {}

  void Put(const std::string& key, std::string_view bytes) { PutAt("set/" + key, bytes); }
  void PutPair(const std::string& stem, const std::vector<int32_t>& lengths, std::string_view tokens) {
    Put(stem + ".bin", tokens);
    Put(stem + ".idx", MegatronIdx(kUint8, 1, lengths, {0, static_cast<int64_t>(lengths.size())}));
  }
  void Delete(const std::string& key) { DeleteAt("set/" + key); }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& set = "set") { return OpenAt(set); }
  absl::StatusOr<std::unique_ptr<Dataset>> OpenAnew(std::optional<TokenArrays> tokens = std::nullopt) {
    OpenOptions options = options_;
    options.rebuild = true;
    options.tokens = tokens;
    return Dataset::Open(runtime_, stores_, Uri("set"), options);
  }
  std::string IndexBytes() {
    const auto location = stores_.Open(Uri("set"));
    return *ReadAll(*location->store, location->Key(".millrace/index"), 1 << 20);
  }
  // Brings the index up to date, and compares it with that of a full build. Returns the number of objects that were
  // reused.
  uint64_t Update(std::optional<TokenArrays> tokens = std::nullopt) {
    const auto updated = OpenAnew(tokens);
    EXPECT_TRUE(updated.ok()) << updated.status();
    const std::string bytes = IndexBytes();
    OpenOptions options = options_;
    options.rebuild = true;
    options.reuse = false;
    options.tokens = tokens;
    EXPECT_TRUE(Dataset::Open(runtime_, stores_, Uri("set"), options).ok());
    EXPECT_TRUE(bytes == IndexBytes()) << "not that of a full build";
    return updated.ok() ? (*updated)->built()->reused_objects : 0;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> OpenWithoutBad(std::optional<TokenArrays> tokens = std::nullopt) {
    OpenOptions options = options_;
    options.rebuild = true;
    options.skip_bad = true;
    options.tokens = tokens;
    return Dataset::Open(runtime_, stores_, Uri("set"), options);
  }

  // Returns the kind, and each sample's key, bytes and encoding; or the error.
  std::vector<std::string> Describe(const absl::StatusOr<std::unique_ptr<Dataset>>& dataset) {
    if (!dataset.ok()) return {dataset.status().ToString()};
    const Index& index = (*dataset)->index();
    std::vector<std::string> found{std::string(KindName(index.kind()))};
    IndexedSample sample;
    IndexedObject object;
    for (uint64_t i = 0; i < index.size(); ++i) {
      EXPECT_TRUE(index.Lookup(i, &sample).ok());
      EXPECT_TRUE(index.LookupObject(sample.object, &object).ok());
      std::string bytes(sample.span.length, '\0');
      GetOptions get;
      get.range = sample.span;
      get.if_match = object.etag;
      if (!bytes.empty()) {
        if (sample.crc32c) get.checksums = {{sample.span, *sample.crc32c}};
        const auto got =
            GetBlocking((*dataset)->store(), (*dataset)->StoreKey(object.key), AsWritableBytes(bytes), std::move(get));
        EXPECT_TRUE(got.ok()) << got.status();
      }
      found.push_back(fmt::format("{} {}={} {}", sample.key, sample.fields[0].name, bytes, sample.fields[0].encoding));
    }
    return found;
  }
  void ExpectRefused(const absl::StatusOr<std::unique_ptr<Dataset>>& dataset, absl::StatusCode code,
                     const std::vector<std::string>& texts) {
    EXPECT_EQ(dataset.status().code(), code) << dataset.status();
    for (const std::string& text : texts) EXPECT_THAT(dataset.status().ToString(), HasSubstr(text));
  }
};

INSTANTIATE_TEST_SUITE_P(Stores, TokenFilesTest, ::testing::Values("mem", "file"),
                         [](const auto& i) { return i.param; });

TEST_P(TokenFilesTest, PairsAreRecognised) {
  PutPair("b", {2, 0, 1}, "xyz");
  PutPair("a/c", {1, 1}, "pq");
  Put("LICENSE", "passed over");
  const std::vector<std::string> expected = {"tokens",
                                             "a/c.bin/00000000 tokens=p u1s",
                                             "a/c.bin/00000001 tokens=q u1s",
                                             "b.bin/00000000 tokens=xy u1s",
                                             "b.bin/00000001 tokens= u1s",
                                             "b.bin/00000002 tokens=z u1s"};
  EXPECT_EQ(Describe(Open()), expected);  // builds
  const auto dataset = Open();            // finds it
  EXPECT_EQ(Describe(dataset), expected);
  EXPECT_EQ((*dataset)->index().objects(), 4);
  EXPECT_FALSE(TokenArraysOf((*dataset)->index())->has_value());
}

TEST_P(TokenFilesTest, NamesBetweenThoseOfAPair) {
  PutPair("corpus", {1}, "x");
  PutPair("corpus.de", {1}, "y");
  EXPECT_THAT(Describe(Open()),
              ElementsAre("tokens", "corpus.bin/00000000 tokens=x u1s", "corpus.de.bin/00000000 tokens=y u1s"));
}

TEST_P(TokenFilesTest, OtherBinAndIdxAreRawObjects) {
  Put("a.bin", "x");
  EXPECT_THAT(Describe(Open()), ElementsAre("raw", "a bin=x "));
  Put("a.idx", std::string(50, 'y'));
  Put("b.bin", "z");
  EXPECT_THAT(Describe(OpenAnew()), ElementsAre("raw", "a bin=x" + std::string(50, 'y') + " ", "b bin=z "))
      << "of one sample; this text shows its first field with all that follows";
}

TEST_P(TokenFilesTest, PairsAmongOtherFilesAreRefused) {
  PutPair("b", {1}, "x");
  for (const std::string other : {"a.jpg", "b.c.jpg", "c.jpg", "c.tar"}) {
    Put(other, "hello");
    const auto dataset = OpenAnew();
    EXPECT_TRUE(absl::IsInvalidArgument(dataset.status())) << other << dataset.status();
    EXPECT_THAT(dataset.status().ToString(), HasSubstr(other));
    EXPECT_THAT(dataset.status().ToString(), HasSubstr("give the URI of a folder with only one of them"));
    Delete(other);
  }
  EXPECT_TRUE(OpenAnew().ok());
  // Files that tools write beside token files are no obstacle, wherever they sort.
  for (const char* beside : {"a.txt", "b.c.txt", "c.txt", "index.json", "b_indexmap.npy"}) Put(beside, "hello");
  const auto dataset = OpenAnew();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->index().size(), 1U);
}

TEST_P(TokenFilesTest, HalvesOfPairs) {
  PutPair("a", {1}, "x");
  PutPair("b", {1}, "x");
  Delete("b.idx");
  ExpectRefused(OpenAnew(), absl::StatusCode::kInvalidArgument, {"set/b.bin: there is no", "set/b.idx' beside it"});
  Put("b.idx", MegatronIdx(kUint8, 1, {1}, {0, 1}));
  Delete("b.bin");
  ExpectRefused(OpenAnew(), absl::StatusCode::kInvalidArgument, {"set/b.idx: there is no", "set/b.bin' beside it"});
}

TEST_P(TokenFilesTest, DamagedPairs) {
  PutPair("a", {1}, "x");
  PutPair("b", {3, 1}, "xyz");
  ExpectRefused(OpenAnew(), absl::StatusCode::kDataLoss,
                {"set/b.bin: it has 3 bytes, and the sequences in", "set/b.idx' have 4", "truncated"});
  Put("b.idx", MegatronIdx(kUint8, 1, {3, 1}, {0, 2}).substr(0, 40));
  ExpectRefused(OpenAnew(), absl::StatusCode::kDataLoss, {"set/b.idx: offset 18", "truncated or damaged"});
  Put("b.idx", "");
  ExpectRefused(OpenAnew(), absl::StatusCode::kDataLoss, {"set/b.idx: offset 0: the .idx is truncated"});
  Put("b.idx", std::string(100, 'x'));
  ExpectRefused(OpenAnew(), absl::StatusCode::kInvalidArgument, {"set/b.idx: offset 0: this is no .idx of Megatron"});
}

TEST_P(TokenFilesTest, AChangedIdxIsNoticed) {
  PutPair("a", {1, 2}, "xyz");
  PutPair("b", {1}, "x");
  ASSERT_TRUE(Open().ok());
  Put("a.idx", MegatronIdx(kUint8, 1, {2, 1}, {0, 2}));
  ExpectRefused(Open(), absl::StatusCode::kFailedPrecondition, {"set/a.idx: it was replaced", "build it again"});
  EXPECT_THAT(Describe(OpenAnew()), ElementsAre("tokens", "a.bin/00000000 tokens=xy u1s", "a.bin/00000001 tokens=z u1s",
                                                "b.bin/00000000 tokens=x u1s"));
}

// This is an .idx that is read in several pieces.
TEST_P(TokenFilesTest, ALongIdx) {
  std::vector<int32_t> lengths(600'000, 1);
  lengths.back() = 2;
  PutPair("a", lengths, std::string(600'001, 'x'));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->index().size(), 600'000);
  IndexedSample sample;
  ASSERT_TRUE((*dataset)->index().Lookup(599'999, &sample).ok());
  EXPECT_EQ(sample.span, (ByteRange{599'999, 2}));
  EXPECT_EQ(sample.key, "a.bin/00599999");
}

TEST_P(TokenFilesTest, TooManySequencesForTheMemory) {
  PutPair("a", std::vector<int32_t>(600'000, 1), std::string(600'000, 'x'));
  Runtime small(RuntimeOptions{.io_threads = 1, .cpu_threads = 1, .memory_bytes = 2 << 20});
  const auto dataset = Dataset::Open(small, stores_, Uri("set"), options_);
  ExpectRefused(dataset, absl::StatusCode::kResourceExhausted,
                {"set/a.bin: ", "set/a.idx: the lengths of its sequences"});
}

TEST_P(TokenFilesTest, ArraysAreCutAsTheUserSays) {
  Put("a.bin", "aabbcc");
  Put("b/c.npy", Npy("u2", {3}, "ddeeff"));
  Put("d.npy", Npy("u2", {2, 2}, "gghhiijj"));
  Put("README.md", "passed over");
  const std::vector<std::string> expected = {"tokens",
                                             "a.bin/00000000 tokens=aabb u2s",
                                             "a.bin/00000001 tokens=cc u2s",
                                             "b/c.npy/00000000 tokens=ddee u2s",
                                             "b/c.npy/00000001 tokens=ff u2s",
                                             "d.npy/00000000 tokens=gghh u2s",
                                             "d.npy/00000001 tokens=iijj u2s"};
  EXPECT_EQ(Describe(OpenAnew(*ParseTokenArrays("2:uint16"))), expected);
  const auto dataset = Open();  // needs no option any more
  EXPECT_EQ(Describe(dataset), expected);
  EXPECT_EQ(**TokenArraysOf((*dataset)->index()), *ParseTokenArrays("2:uint16"));
  Put("e.bin", "x");
  ExpectRefused(Open(), absl::StatusCode::kFailedPrecondition,
                {"set/e.bin: it was added", "millrace index --tokens 2:uint16 "});
  Delete("e.bin");
  Put("other.txt", "hello");
  EXPECT_EQ(Describe(Open()), expected);
}

TEST_P(TokenFilesTest, WithoutTheOptionArraysAreRawObjects) {
  Put("x/a.bin", "aabbcc");
  Put("x/b.npy", Npy("u1", {3}, "abc"));
  const auto dataset = Open();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->index().kind(), DataKind::kRawObjects);
  EXPECT_THAT((*dataset)->index().field_names(), ElementsAre("bin", "cls", "npy"));
}

TEST_P(TokenFilesTest, RefusedArrays) {
  Put("a.bin", "aabbcc");
  ExpectRefused(OpenAnew(TokenArrays{.length = 2}), absl::StatusCode::kInvalidArgument,
                {"set/a.bin: an array without head does not say the type", "--tokens 2:uint16"});
  Put("b.npy", Npy("u1", {3}, "abc"));
  ExpectRefused(OpenAnew(*ParseTokenArrays("2:uint16")), absl::StatusCode::kInvalidArgument,
                {"set/b.npy: offset 0: its numbers are uint8"});
  Delete("b.npy");
  ExpectRefused(OpenAnew(*ParseTokenArrays("2:int32")), absl::StatusCode::kDataLoss,
                {"set/a.bin: offset 6: the array is truncated, or not of int32"});
  Put("a.idx", MegatronIdx(kUint8, 1, {6}, {0, 1}));
  ExpectRefused(OpenAnew(*ParseTokenArrays("2:uint8")), absl::StatusCode::kInvalidArgument,
                {"set/a.idx: says where the sequences of the .bin beside it end", "without --tokens"});
  Delete("a.idx");
  Delete("a.bin");
  Put("a.txt", "no array");
  ExpectRefused(OpenAnew(*ParseTokenArrays("2:uint8")), absl::StatusCode::kNotFound, {"no *.npy or *.bin"});
}

TEST_P(TokenFilesTest, PairsAreReusedWhereBothAreAsTheyWere) {
  PutPair("a", {1, 2}, "xyz");
  PutPair("b", {1}, "x");
  PutPair("c", {0}, "");
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Update(), 6);
  PutPair("d", {1, 1}, "pq");
  EXPECT_EQ(Update(), 6);
  Put("a.idx", MegatronIdx(kUint8, 1, {2, 1}, {0, 2}));
  EXPECT_EQ(Update(), 6);
  Put("b.bin", "y");
  EXPECT_EQ(Update(), 6);
  Delete("b.bin");
  Delete("b.idx");
  EXPECT_EQ(Update(), 6);
  Delete("a.idx");
  ExpectRefused(OpenAnew(), absl::StatusCode::kInvalidArgument, {"set/a.bin: there is no", "set/a.idx' beside it"});
}

// So many names lie between those of a pair that its .idx is not among the objects ahead.
TEST_P(TokenFilesTest, PairsFarApartAreReadAgain) {
  PutPair("a", {1, 2}, "xyz");
  for (int i = 0; i < 20; ++i) PutPair(fmt::format("a.c{:02}", i), {1}, "x");
  ASSERT_TRUE(Open().ok());
  EXPECT_EQ(Update(), 40);
  Put("a.idx", MegatronIdx(kUint8, 1, {2, 1}, {0, 2}));
  EXPECT_EQ(Update(), 40);
}

TEST_P(TokenFilesTest, ArraysAreReusedThatWereCutAlike) {
  Put("a.bin", "aabbcc");
  Put("b.npy", Npy("u2", {3}, "ddeeff"));
  const TokenArrays pairs_of_two = *ParseTokenArrays("2:uint16");
  ASSERT_TRUE(OpenAnew(pairs_of_two).ok());
  EXPECT_EQ(Update(pairs_of_two), 2);
  Put("c.bin", "gg");
  EXPECT_EQ(Update(pairs_of_two), 2);
  Put("a.bin", "aabbccdd");
  EXPECT_EQ(Update(pairs_of_two), 2);
  EXPECT_EQ(Update(*ParseTokenArrays("3:uint16")), 0);
  EXPECT_EQ(Update(*ParseTokenArrays("3:uint16")), 3);
  // The same files are other samples if they are raw objects.
  EXPECT_EQ(Update(), 0);
  EXPECT_EQ(Update(), 3);
  EXPECT_EQ(Update(pairs_of_two), 0);
}

TEST_P(TokenFilesTest, TheTypeOfReusedArraysIsThatOfAll) {
  Put("b.npy", Npy("u2", {3}, "ddeeff"));
  ASSERT_TRUE(OpenAnew(TokenArrays{.length = 2}).ok());
  Put("a.npy", Npy("u1", {3}, "abc"));
  ExpectRefused(OpenAnew(TokenArrays{.length = 2}), absl::StatusCode::kInvalidArgument,
                {"set/b.npy: its numbers are uint16", "is uint8"});
  Delete("a.npy");
  // The type of the first array is also that of arrays without heads.
  Put("c.bin", "gghhii");
  EXPECT_EQ(Update(TokenArrays{.length = 2}), 1);
  // Arrays without heads are read each time, as the type may come to be another.
  EXPECT_EQ(Update(TokenArrays{.length = 2}), 1);
  Delete("b.npy");
  ExpectRefused(OpenAnew(TokenArrays{.length = 2}), absl::StatusCode::kInvalidArgument,
                {"set/c.bin: an array without head does not say the type"});
  EXPECT_EQ(Update(*ParseTokenArrays("2:uint16")), 1);
}

TEST_P(TokenFilesTest, DamagedPairsAreLeftOutWhereTheUserSaysSo) {
  PutPair("a", {1}, "x");
  PutPair("b", {3, 1}, "xyz");
  PutPair("c", {1, 1}, "pq");
  Put("c.idx", MegatronIdx(kUint8, 1, {1, 1}, {0, 2}).substr(0, 40));
  PutPair("d", {1}, "y");
  const auto dataset = OpenWithoutBad();
  EXPECT_THAT(Describe(dataset), ElementsAre("tokens", "a.bin/00000000 tokens=x u1s", "d.bin/00000000 tokens=y u1s"));
  ASSERT_TRUE(dataset.ok());
  const std::vector<DamagedShard>& damaged = (*dataset)->built()->damaged;
  ASSERT_EQ(damaged.size(), 2);
  EXPECT_EQ(damaged[0].key, "b.bin");
  EXPECT_EQ(damaged[0].samples, 0);
  EXPECT_THAT(damaged[0].why, HasSubstr("it has 3 bytes, and the sequences in"));
  EXPECT_EQ(damaged[1].key, "c.bin");
  EXPECT_THAT(damaged[1].why, HasSubstr("set/c.idx: offset 18"));
  EXPECT_TRUE(Open().ok()) << "it serves as any other";
  ExpectRefused(OpenAnew(), absl::StatusCode::kDataLoss, {"set/b.bin: it has 3 bytes"});
  // Repaired, they are whole.
  Put("b.bin", "wxyz");
  Put("c.idx", MegatronIdx(kUint8, 1, {1, 1}, {0, 2}));
  EXPECT_EQ(Update(), 4);
  // A half that is missing is no damage.
  Delete("b.idx");
  ExpectRefused(OpenWithoutBad(), absl::StatusCode::kInvalidArgument, {"set/b.bin: there is no"});
}

TEST_P(TokenFilesTest, DamagedArraysLoseWhatFollows) {
  Put("a.bin", "aabbc");
  Put("b.npy", Npy("u2", {3}, "ddeeff").substr(0, 20));
  Put("c.bin", "gg");
  const TokenArrays one = *ParseTokenArrays("1:uint16");
  const auto dataset = OpenWithoutBad(one);
  EXPECT_THAT(Describe(dataset), ElementsAre("tokens", "a.bin/00000000 tokens=aa u2s", "a.bin/00000001 tokens=bb u2s",
                                             "c.bin/00000000 tokens=gg u2s"));
  ASSERT_TRUE(dataset.ok());
  ASSERT_EQ((*dataset)->built()->damaged.size(), 2);
  EXPECT_EQ((*dataset)->built()->damaged[0].offset, 5);
  ExpectRefused(OpenWithoutBad(TokenArrays{.length = 1}), absl::StatusCode::kInvalidArgument,
                {"set/a.bin: an array without head does not say the type"});
}

// There are two arrays, so that all ETags are different in the copy.
TEST_P(TokenFilesTest, ACopiedDataSetIsIndexedAsItWas) {
  Put("a.bin", "aabbcc");
  Put("b.bin", "dd");
  ASSERT_TRUE(OpenAnew(*ParseTokenArrays("2:uint16")).ok());
  const auto from = stores_.Open(Uri("set"));
  const auto to = stores_.Open(Uri("copy"));
  for (const std::string key : {"b.bin", "a.bin", ".millrace/index"}) {
    const auto bytes = ReadAll(*from->store, from->Key(key), 1 << 20);
    ASSERT_TRUE(PutBlocking(*to->store, to->Key(key), AsBytes(*bytes)).ok());
  }
  EXPECT_THAT(Describe(Open("copy")), ElementsAre("tokens", "a.bin/00000000 tokens=aabb u2s",
                                                  "a.bin/00000001 tokens=cc u2s", "b.bin/00000000 tokens=dd u2s"));
}

TEST_P(TokenFilesTest, OfADamagedPairTheRestIsNotFetched) {
  const std::string tokens(60 << 20, 'x');
  Put("a.bin", tokens);
  Put("a.idx", MegatronIdx(kUint8, 1, {1, 2}, {0, 2}));
  PutPair("b", {3}, "abc");
  const auto before = stores_.Open(Uri("set"))->store->counters().bytes_read.load();
  const auto dataset = OpenWithoutBad();
  EXPECT_THAT(Describe(dataset), ElementsAre("tokens", "b.bin/00000000 tokens=abc u1s"));
  const auto read = stores_.Open(Uri("set"))->store->counters().bytes_read.load() - before;
  EXPECT_LE(read, 40 << 20) << "more than was in flight when it was known";
}

}  // namespace
}  // namespace millrace
