#include "pipeline/fetch_run.h"

#include <gtest/gtest.h>

#include "dataset/index_writer.h"
#include "net/runtime.h"
#include "store/blocking.h"
#include "store/stores.h"

namespace millrace {
namespace {

struct At {
  uint64_t offset;
  uint64_t length;
};

// Makes an index of objects "0", "1", ... with one field a sample.
std::unique_ptr<Index> MakeIndex(const std::vector<std::vector<At>>& objects) {
  Runtime runtime({.io_threads = 1, .cpu_threads = 1});
  Stores stores(runtime);
  ObjectStore& store = *stores.Open("mem://index")->store;
  IndexWriter writer(DataKind::kTar, *store.Write("index", {}));
  uint64_t number = 0;
  for (size_t object = 0; object < objects.size(); ++object) {
    for (const At& at : objects[object]) {
      const std::string key = std::to_string(number++);
      const NewSampleField field{"bin", at.offset, at.length};
      EXPECT_TRUE(writer.AddSample({.key = key, .fields = {&field, 1}, .crc32c = 7, .label = ""}).ok());
    }
    EXPECT_TRUE(writer.AddObject({std::to_string(object), uint64_t{1} << 40, "etag"}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return *Index::FromBytes(*ReadAll(store, "index", uint64_t{1} << 30));
}

std::vector<uint64_t> Samples(const FetchRun& run) {
  std::vector<uint64_t> samples;
  for (const FetchRun::Part& part : run.parts) samples.push_back(part.rank);
  return samples;
}

const auto kAll = [](uint64_t) { return true; };

TEST(RunAround, TakesTheWholeExtentInOrderOfOffset) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}, {2048, 100}, {3072, 100}, {4096, 100}, {5120, 100}}});
  const FetchRun run = *RunAround(*index, nullptr, 3, 4, {1 << 20, 4096}, kAll);
  EXPECT_EQ(Samples(run), (std::vector<uint64_t>{3, 4, 5}));
  EXPECT_EQ(run.range(), (ByteRange{3072, 2148}));
}

// Sequences without tokens are such samples: they lie where others begin and end.
TEST(RunAround, SamplesWithoutBytes) {
  const auto index = MakeIndex({{{512, 512}, {1024, 0}, {1024, 512}, {1536, 0}, {1536, 0}}});
  const FetchRun run = *RunAround(*index, nullptr, 16, 2, {1 << 20, 4096}, kAll);
  EXPECT_EQ(run.parts[1].span, (ByteRange{1024, 0}));
  EXPECT_EQ(run.parts[2].span, (ByteRange{1024, 512}));
  EXPECT_EQ(run.range(), (ByteRange{512, 1024}));
  const auto without_bytes = [](uint64_t sample) { return sample > 2; };
  EXPECT_EQ(RunAround(*index, nullptr, 16, 3, {1 << 20, 4096}, without_bytes)->range(), (ByteRange{1536, 0}));
}

TEST(RunAround, StopsAtObjectsGapsAndTheBound) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}}, {{512, 100}, {100352, 100}, {100864, 100}, {101376, 5000}}});
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 1, {1 << 20, 4096}, kAll)), (std::vector<uint64_t>{0, 1}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 2, {1 << 20, 4096}, kAll)), (std::vector<uint64_t>{2}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 4, {1000, 4096}, kAll)), (std::vector<uint64_t>{3, 4}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 5, {1, 4096}, kAll)), (std::vector<uint64_t>{5}));  // itself always
}

TEST(RunAround, SkipsWhatNobodyWantsWhenItIsSmall) {
  const auto index = MakeIndex({{{512, 1000}, {1536, 1000}, {2560, 1000}, {3584, 9000}, {12800, 10}}});
  const auto even = [](uint64_t sample) { return sample % 2 == 0; };
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 0, {1 << 20, 4096}, even)), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(Samples(*RunAround(*index, nullptr, 16, 4, {1 << 20, 4096}, even)), (std::vector<uint64_t>{4}));
}

// Makes samples of 512 bytes, one behind the other.
std::unique_ptr<Index> MakeEven(uint64_t count) {
  std::vector<At> samples;
  for (uint64_t i = 0; i < count; ++i) samples.push_back({i * 512, 512});
  return MakeIndex({samples});
}

TEST(RunAround, ReadsOverGapsUpToTheLimit) {
  const auto index = MakeIndex({{{0, 512}, {512, 2048}, {2560, 512}, {3072, 2560}, {5632, 512}}});
  const auto even = [](uint64_t sample) { return sample % 2 == 0; };
  const auto run = [&](uint64_t bytes, uint64_t gap) {
    return Samples(*RunAround(*index, nullptr, 16, 2, {bytes, gap}, even));
  };
  EXPECT_EQ(run(1 << 20, 2047), (std::vector<uint64_t>{2}));
  EXPECT_EQ(run(1 << 20, 2048), (std::vector<uint64_t>{0, 2}));
  EXPECT_EQ(run(1 << 20, 2560), (std::vector<uint64_t>{0, 2, 4}));
  EXPECT_EQ(run(3584, 2560), (std::vector<uint64_t>{2, 4}));
}

// RunAround does not even ask about samples that are too far away: in a large extent that would cost more than the
// request.
TEST(RunAround, LooksNoFurtherThanTheGap) {
  const auto index = MakeEven(4000);
  uint64_t calls = 0;
  const auto nobody = [&](uint64_t /*sample*/) {
    ++calls;
    return false;
  };
  const FetchRun run = *RunAround(*index, nullptr, 4000, 2000, {1 << 20, uint64_t{99} * 512}, nobody);
  EXPECT_EQ(Samples(run), (std::vector<uint64_t>{2000}));
  EXPECT_EQ(calls, 200u);
}

TEST(RunAround, SpansNoMoreThanSoManySamples) {
  const auto index = MakeEven(40'000);
  const RunLimits limits{.bytes = uint64_t{1} << 30, .gap = 0};
  const auto run = [&](uint64_t rank) { return *RunAround(*index, nullptr, 39'000, rank, limits, kAll); };
  EXPECT_EQ(run(20'000).parts.size(), kMaxRunItems);
  EXPECT_EQ(run(20'000).parts.front().rank, kMaxRunItems);
  EXPECT_EQ(run(34'000).parts.front().rank, 2 * kMaxRunItems);
  EXPECT_EQ(run(34'000).parts.size(), 39'000 - 2 * kMaxRunItems);  // the extent ends
  EXPECT_EQ(run(39'500).parts.front().rank, 39'000u);
  EXPECT_EQ(run(39'500).parts.size(), 1000u);
}

TEST(RunAround, MembersOfASubsetThatLieFarApart) {
  const auto index = MakeEven(20'000);
  Selection::Builder builder(20'000);
  for (uint64_t sample = 0; sample < 20'000; sample += sample < 10'000 ? 3 : 100) builder.Add(sample);
  const Selection selection = std::move(builder).Finish();
  ASSERT_EQ(selection.size(), 3334u + 100u);
  const uint64_t gap = uint64_t{99} * 512;
  const FetchRun all = *RunAround(*index, &selection, 1 << 20, 3334, {1 << 30, gap}, kAll);
  EXPECT_EQ(all.parts.size(), selection.size());
  for (const FetchRun::Part& part : all.parts) EXPECT_EQ(part.span.offset, selection.At(part.rank) * 512);
  const FetchRun dense = *RunAround(*index, &selection, 1 << 20, 5, {1 << 30, gap - 1}, kAll);
  EXPECT_EQ(dense.parts.size(), 3335u);  // sample 10,002 still lies near
}

TEST(RunAround, ExtentsOfASubsetAreItsOwn) {
  const auto index = MakeIndex({{{512, 100}, {1024, 100}, {2048, 100}, {3072, 100}, {4096, 100}, {5120, 100}}});
  Selection::Builder builder(6);
  for (const uint64_t sample : {0u, 2u, 3u, 5u}) builder.Add(sample);
  const Selection selection = std::move(builder).Finish();
  const FetchRun run = *RunAround(*index, &selection, 2, 2, {1 << 20, 4096}, kAll);
  EXPECT_EQ(Samples(run), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(run.range(), (ByteRange{3072, 2148}));
  EXPECT_EQ(Samples(*RunAround(*index, &selection, 16, 1, {1 << 20, 4096}, kAll)), (std::vector<uint64_t>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace millrace
